"""Two act at the same moment: one wins, the other is told the truth, and the rows fit (R1, R2)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.agent.port import RunOrder, RunResult
from tasks_app.core.errors import TemporaryFault
from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.conclude import fail
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.forms import QuestionForm
from tasks_app.mcp_server.operations import Failed
from tasks_app.models import (
    Action,
    ApiToken,
    AuditEntry,
    Channel,
    Outcome,
    Project,
    Question,
    QuestionState,
    Reason,
    Scope,
    Task,
    Transition,
    User,
)
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import Reply, answer_question, dismiss_question
from tasks_app.services.tasks import cancel_task, change_threshold, resume_task, start_task
from tests.consistent import assert_at_rest, assert_consistent
from tests.factories import RunFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Fail, Turn, ask, say
from tests.installation import Installation
from tests.people import acting
from tests.racing import ROUNDS, Result, race
from tests.runner import results, runs, step
from tests.without_git import Rows

#: Working on to the end is slow, so it is done in one of so many rounds.
FOLLOWED_UP = 5
#: How many answer one question at once, on the page and over MCP.
CROWD = int(os.environ.get("CATHERDER_TEST_CROWD_OF_RACES", "4"))
ASKS = [Turn("I ask.", (ask("Red?"),)), say("Painted. {result}")]


@pytest.fixture
def rows(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    return Rows.of(tmp_path, monkeypatch)


@pytest.fixture
def project(rows: Rows) -> Project:
    return rows.rows().project


@pytest.fixture
def bob(rows: Rows, project: Project) -> User:
    return rows.member(project, "bob")


def due(rows: Rows, project: Project, *names: str) -> Task:
    return rows.rows(*names, project=project, queued_at=timezone.now())


def waiting(rows: Rows, project: Project) -> Question:
    """The open question of a task whose agent asked it."""
    rows.agent = FakeAgent(lambda prompt: ASKS)
    question: Question = rows.advance(due(rows, project)).questions.get()
    return question


def answers(question: Question, text: str, by: User) -> Callable[[], object]:
    reply = Reply.to(question, text)
    return lambda: answer_question(question, reply, by=acting(by), via=Channel.WEB).repeated


def answers_in_a_form(question: Question, text: str, token: ApiToken) -> Callable[[], object]:
    """By the program that somebody works in, over MCP."""
    caller = Caller(Principal.of_token(token), "", "Claude Code")

    def act() -> object:
        try:
            (form,) = QuestionForm.of(caller, question)
            stored = form.store(caller, {"other_1": text})
            assert stored, "somebody was first, and this one is told nothing"
            return stored["repeated"]
        except Failed as error:
            raise error.__cause__ or error from None

    return act


def cancels(task: Task, by: User) -> Callable[[], object]:
    return lambda: cancel_task(task, by=acting(by))


def retries(task: Task, by: User) -> Callable[[], object]:
    return lambda: retry_from(task, step(task), by=acting(by))


def fails(task: Task, lease: Lease) -> Callable[[], object]:
    return lambda: fail(lease, step(task), "the old holder's word")


def one_wins(outcomes: list[Result], refusal: str) -> tuple[int, str]:
    """Which contender won, and what the other was told."""
    assert Counter(outcome.refused for outcome in outcomes) == {"": 1, refusal: 1}, outcomes
    winner = next(n for n, outcome in enumerate(outcomes) if not outcome.refused)
    return winner, outcomes[1 - winner].said


def nobody_is_refused(outcomes: list[Result]) -> None:
    assert not any(outcome.refused for outcome in outcomes), outcomes


def moves_to(task: Task, target: Phase, **where: Any) -> int:
    return Transition.objects.filter(task=task, step=None, target=target, **where).count()


def finish(rows: Rows, task: Task) -> None:
    """What happens anyway: a human lets it go on and answers, and workers look."""
    task.refresh_from_db()
    if task.phase == Phase.CANCELLED:
        resume_task(task, by=acting(rows.user))
    for _ in range(3):
        rows.answer_all(task, "In the end")
        rows.advance(task)
    assert task.phase == Phase.DONE, task.failure
    assert_at_rest(task)


def assert_told_once(rows: Rows, question: Question) -> None:
    finish(rows, question.task)
    question.refresh_from_db()
    assert question.delivered_at is not None
    assert len(results(question.task)) == 1


def test_answers_of_two_people(rows: Rows, project: Project, bob: User) -> None:
    """H5: the other one is told by whom, and what."""
    for number in range(ROUNDS):
        question = waiting(rows, project)
        people = [rows.user, bob]
        outcomes = race(number, *(answers(question, f"By {one}", one) for one in people))
        winner, told = one_wins(outcomes, "NotOpen")
        assert told.startswith(f"Answered by {people[winner].shown_name} at")
        assert told.endswith(f": By {people[winner]}")
        assert moves_to(question.task, Phase.PENDING) == 1
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)
        assert f"By {people[winner]}" in results(question.task)[0]


def test_answers_on_the_page_and_in_forms_of_programs(rows: Rows, project: Project, bob: User) -> None:
    """One counts, and all others are told whose it was."""
    token = make_token("program", [Scope.ANSWER], by=acting(bob)).token
    for number in range(ROUNDS):
        question = waiting(rows, project)
        page = [answers(question, f"Page {n}", rows.user) for n in range(CROWD // 2)]
        forms = [answers_in_a_form(question, f"Form {n}", token) for n in range(CROWD // 2)]
        outcomes = race(number, *page, *forms)
        assert Counter(one.refused for one in outcomes) == {"": 1, "NotOpen": CROWD - 1}, outcomes
        question.refresh_from_db()
        who = f"Answered by {question.answerer}"
        if question.answered_via == Channel.MCP_FORM:
            who += ", through Claude Code,"
        assert all(one.said.startswith(f"{who} at") for one in outcomes if one.refused)
        assert moves_to(question.task, Phase.PENDING) == 1


def test_the_same_answer_sent_twice_is_stored_once(rows: Rows, project: Project) -> None:
    for number in range(ROUNDS):
        question = waiting(rows, project)
        outcomes = race(number, *[answers(question, "Yes", rows.user)] * 2)
        assert sorted(outcome.said for outcome in outcomes) == ["False", "True"], "one of them is the repeat"
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)


def test_an_answer_and_a_dismissal(rows: Rows, project: Project, bob: User) -> None:
    for number in range(ROUNDS):
        question = waiting(rows, project)
        outcomes = race(
            number,
            answers(question, "Yes", rows.user),
            partial(dismiss_question, question, by=acting(bob), via=Channel.API),
        )
        winner, told = one_wins(outcomes, "NotOpen")
        assert told.startswith(["Answered by", "Dismissed by bob"][winner])
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)


def test_an_answer_and_a_cancel(rows: Rows, project: Project, bob: User) -> None:
    """Cancelled in any case; an answer that came before is kept, one that came later is refused."""
    for number in range(ROUNDS):
        question = waiting(rows, project)
        task = question.task
        answered, cancelled = race(number, answers(question, "Yes", bob), cancels(task, rows.user))
        assert not cancelled.refused
        question.refresh_from_db()
        if answered.refused:
            assert answered.said == "This question was withdrawn: the task was cancelled."
            assert question.state == QuestionState.WITHDRAWN
        else:
            assert (question.state, question.answered_by) == (QuestionState.ANSWERED, bob)
        assert_at_rest(task)
        assert task.phase == Phase.CANCELLED
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)


def test_an_answer_and_a_retry(rows: Rows, project: Project) -> None:
    """A task that waits is not retried, and one that was just answered is not either."""
    for number in range(ROUNDS):
        question = waiting(rows, project)
        task = question.task
        outcomes = race(number, answers(question, "Yes", rows.user), retries(task, rows.user))
        winner, told = one_wins(outcomes, "IllegalMove")
        assert winner == 0
        assert "cancel it first" in told
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)


def test_an_answer_and_another_threshold(rows: Rows, project: Project) -> None:
    for number in range(ROUNDS):
        question = waiting(rows, project)
        task = question.task
        nobody_is_refused(
            race(
                number,
                answers(question, "Yes", rows.user),
                partial(change_threshold, task, 5, by=acting(rows.user)),
            )
        )
        assert_consistent(task)
        assert (task.threshold, task.phase) == (5, Phase.PENDING)
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)
        assert runs(task)[-1].threshold == 5


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.INTERRUPTED])
def test_a_retry_and_a_cancel(rows: Rows, project: Project, phase: Phase) -> None:
    for number in range(ROUNDS):
        task = stopped(rows, project, phase)
        retried, cancelled = race(number, retries(task, rows.user), cancels(task, rows.user))
        assert not retried.refused
        if cancelled.refused:
            assert phase == Phase.FAILED
            assert cancelled.said.endswith("is failed and cannot become cancelled")
        assert_at_rest(task)
        assert moves_to(task, Phase.PENDING) == 1
        if number % FOLLOWED_UP:
            continue
        finish(rows, task)
        assert runs(task)[1].reason == Reason.RETRY


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.INTERRUPTED, Phase.CANCELLED])
@pytest.mark.parametrize("ways", ["go on twice", "retry twice", "go on and retry"])
def test_two_take_it_up_again(rows: Rows, project: Project, phase: Phase, ways: str) -> None:
    """The second one is told that it is pending already; it is queued once and tried once."""
    for number in range(ROUNDS // 4):
        task = stopped(rows, project, phase)
        acts: dict[str, Callable[[], object]] = {
            "go on": partial(resume_task, task, by=acting(rows.user)),
            "retry": retries(task, rows.user),
        }
        wanted = {"go on twice": ["go on"] * 2, "retry twice": ["retry"] * 2}.get(ways, ["go on", "retry"])
        _, told = one_wins(race(number, *(acts[one] for one in wanted)), "IllegalMove")
        assert "is pending and cannot become pending" in told
        assert moves_to(task, Phase.PENDING) == 1
        assert_at_rest(task)
        if number % FOLLOWED_UP:
            continue
        finish(rows, task)
        assert len(runs(task)) == 2


def stopped(rows: Rows, project: Project, phase: Phase) -> Task:
    """A task whose first run ended so; the next one ends well."""
    by_hand = phase in (Phase.INTERRUPTED, Phase.CANCELLED)
    rows.agent = FakeAgent(lambda prompt: [])
    task = due(rows, project)
    task.steps.update(config={"name": "do", "command": "implement", "retry": 0})

    def run(order: RunOrder, recorder: Any) -> RunResult:
        rows.agent = FakeAgent(lambda prompt: [say("Done.")])
        if by_hand:
            raise Stopped(StopReason.INTERRUPTED)
        return FakeAgent(lambda prompt: [Fail(), say("Done.")]).run(order, recorder)

    rows.agent.run = run  # type: ignore[method-assign]
    rows.advance(task)
    if phase == Phase.CANCELLED:
        cancel_task(task, by=acting(rows.user))
    task.refresh_from_db()
    assert task.phase == phase
    return task


def test_a_task_that_is_started_twice_is_queued_once(rows: Rows, project: Project) -> None:
    for number in range(ROUNDS):
        task = rows.rows(project=project)
        nobody_is_refused(race(number, *[partial(start_task, task, by=acting(rows.user))] * 2))
        assert AuditEntry.objects.filter(action=Action.TASK_STARTED, task_id=task.pk).count() == 1
        assert_at_rest(task)


def worker(rows: Rows, task: Task, owner: str) -> Callable[[], object]:
    return lambda: advance(task.pk, owner=owner, context=rows.context)


def test_two_workers_take_up_one_task(rows: Rows, project: Project) -> None:
    """R2: two terminals, a terminal and a worker, a worker that was rung for twice: one of them works."""
    rows.agent = FakeAgent(lambda prompt: [say("Done.")])
    for number in range(ROUNDS):
        task = due(rows, project)
        outcomes = race(number, *(worker(rows, task, owner) for owner in ("one", "two")))
        assert sorted(outcome.said for outcome in outcomes) == ["False", "True"]
        assert_at_rest(task)
        assert (task.phase, task.lease_epoch, len(runs(task))) == (Phase.DONE, 1, 1)


def test_a_cancel_while_the_agent_ends(rows: Rows, project: Project) -> None:
    """Either it was done before, and cancelling says so, or it is cancelled and done when it goes on."""
    rows.agent = FakeAgent(lambda prompt: [say("Done.")])
    for number in range(ROUNDS):
        task = due(rows, project)
        _, cancelled = race(number, worker(rows, task, "worker"), cancels(task, rows.user))
        assert_at_rest(task)
        if cancelled.refused:
            assert cancelled.said.endswith("is done and cannot become cancelled")
        assert task.phase == (Phase.DONE if cancelled.refused else Phase.CANCELLED)
        if number % FOLLOWED_UP:
            continue
        finish(rows, task)
        assert [run.outcome for run in runs(task)].count(Outcome.FINISHED) == 1


def test_a_cancel_before_the_first_step_begins(
    rows: Rows, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of a cancelled task runs, and the step begins when the task is resumed."""
    rows.agent = FakeAgent(lambda prompt: [say("Done.")])
    task = due(rows, project)

    def cancels_at(point: str) -> None:
        if point == "begun":
            cancel_task(task, by=acting(rows.user))

    with monkeypatch.context() as patch:
        patch.setattr("tasks_app.engine.advance.crash_point", cancels_at)
        worker(rows, task, "worker")()
    assert_at_rest(task)
    assert (task.phase, step(task).phase, len(runs(task))) == (Phase.CANCELLED, Phase.PENDING, 0)
    finish(rows, task)
    assert [run.outcome for run in runs(task)] == [Outcome.FINISHED]


def test_a_cancel_while_the_agent_asks(rows: Rows, project: Project) -> None:
    """It is cancelled in any case; what was asked by then is withdrawn, and open again when it goes on."""
    rows.agent = FakeAgent(lambda prompt: ASKS)
    for number in range(ROUNDS):
        task = due(rows, project)
        nobody_is_refused(race(number, worker(rows, task, "worker"), cancels(task, rows.user)))
        assert_at_rest(task)
        assert task.phase == Phase.CANCELLED
        assert not task.questions.exclude(state=QuestionState.WITHDRAWN).exists()
        if number % FOLLOWED_UP:
            continue
        finish(rows, task)
        assert task.questions.count() == 1
        assert len(results(task)) == 1


def test_a_cancel_while_a_fault_puts_the_task_off(rows: Rows, project: Project) -> None:
    """R3: it stays cancelled, and is not tried again by itself."""

    def run(order: RunOrder, recorder: Any) -> RunResult:
        raise TemporaryFault("The disk is full")

    for number in range(ROUNDS):
        rows.agent = FakeAgent(lambda prompt: [])
        rows.agent.run = run  # type: ignore[method-assign]
        task = due(rows, project)
        nobody_is_refused(race(number, worker(rows, task, "worker"), cancels(task, rows.user)))
        assert_at_rest(task)
        assert task.phase == Phase.CANCELLED
        rows.agent = FakeAgent(lambda prompt: [say("Done.")])
        if number % FOLLOWED_UP:
            continue
        finish(rows, task)


def test_an_answer_while_the_worker_lets_go(rows: Rows, project: Project, bob: User) -> None:
    """The task is due again although its lease was still held when the answer came."""
    for number in range(ROUNDS):
        question = waiting(rows, project)
        task = question.task
        epoch = task.lease_epoch + 1
        Task.objects.filter(pk=task.pk).update(
            lease_owner="worker", lease_epoch=epoch, lease_expires=timezone.now() + timedelta(seconds=20)
        )
        lease = Lease(task.pk, "worker", epoch)
        nobody_is_refused(race(number, answers(question, "Yes", bob), lease.release))
        assert Task.objects.due().filter(pk=task.pk).exists()
        if number % FOLLOWED_UP:
            continue
        assert_told_once(rows, question)


def test_a_lease_is_taken_over_while_its_holder_writes(rows: Rows, project: Project) -> None:
    """R2: either the old holder was first, and there is nothing left to take over, or it is refused."""
    rows.agent = FakeAgent(lambda prompt: [say("Done.")])
    for number in range(ROUNDS):
        task = due(rows, project)
        old = Lease.claim(task.pk, owner="old")
        assert old is not None
        Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING, lease_expires=timezone.now())
        Transition.objects.create(task=task, source=Phase.PENDING, target=Phase.RUNNING)
        task.steps.update(phase=Phase.RUNNING)
        Transition.objects.create(task=task, step=step(task), source=Phase.PENDING, target=Phase.RUNNING)
        RunFactory.create(step=step(task), task=None, lease_epoch=old.epoch)
        written, taken = race(number, fails(task, old), worker(rows, task, "new"))
        task.refresh_from_db()
        if written.refused:
            assert (written.refused, taken.said, task.phase) == ("LeaseLost", "True", Phase.DONE)
            assert "was taken over by another worker" in written.said
            assert_at_rest(task)
        else:
            assert (taken.said, task.phase, task.failure) == ("False", Phase.FAILED, "the old holder's word")
            assert_consistent(task)
            assert task.lease_epoch == old.epoch


@pytest.mark.once(on="sqlite")
def test_two_terminals_on_one_task(installation: Installation) -> None:
    """R2, H6: one of the two processes works, and both see the same end."""
    installation = installation.with_fake_agent()
    path = installation.task_file("# Ask once\n\nrehearsal: ask-and-end\n")
    for number in (1, 2):
        installation.manage("run_task", path, "--project", "plain", "--new", "--no-input")
        both = [installation.piped("run_task", str(number)) for _ in range(2)]
        said = [process.communicate(f"By terminal {n}\n") for n, process in enumerate(both)]
        assert [process.poll() for process in both] == [0, 0], said
        (answer,) = installation.answers(number).values()
        late = "Your answer came too late." in said[0], "Your answer came too late." in said[1]
        assert answer in ("By terminal 0", "By terminal 1")
        assert not late[int(answer[-1])]
        assert installation.phase(number) == "done"
