"""M8: at its soft cost limit a task stops at a safe point and asks a human: go on, or end it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.agent.port import BUDGET_SPENT, DollarsLeft, Ending, Recorder, RunOrder, RunResult
from tasks_app.core.errors import BadAmount, BadInput, NotAllowed, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.engine.sweeper import sweep
from tasks_app.history.events.lines import format_event
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    Event,
    EventKind,
    Question,
    QuestionKind,
    QuestionState,
    Reason,
    Role,
    Task,
    Transition,
    Verdict,
)
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import (
    Reply,
    answer_question,
    decide,
    dismiss_question,
    undo_answer,
    undo_until,
)
from tasks_app.services.sequences import create_sequence, start_sequence
from tasks_app.services.tasks import cancel_task, resume_task
from tasks_app.services.usage.cost_limits import (
    END,
    FINISH,
    cost_answer_in,
    dollars_for_run,
    spent_by,
    with_limits,
)
from tests.factories import MembershipFactory, UserFactory
from tests.fake_script import End, Limit, Turn, ask, say
from tests.people import acting
from tests.racing import ROUNDS, race
from tests.runner import Runner, results, runs, step
from tests.soft_limits import LIMIT, ONE_STEP, two_steps, without_undo

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_undo(settings: Any) -> None:
    without_undo(settings)


@pytest.fixture
def asked(runner: Runner, no_undo: None) -> Question:
    """The question of a task whose first step has reached the soft limit."""
    return open_question(runner.advance(runner.task([say("Done.")], config=two_steps())))


def open_question(task: Task) -> Question:
    question: Question = task.questions.open().get()
    return question


def answer(runner: Runner, question: Question, text: str, **more: Any) -> Task:
    runner.answer(question, text, **more)
    return runner.advance(question.task)


def answers(runner: Runner, question: int, text: str) -> None:
    runner.answer(Question.objects.get(pk=question), text)


def due() -> list[int]:
    found: list[int] = []
    sweep(found.append, pending=lambda: 0)
    return found


def last_move(task: Task) -> Transition:
    return task.transitions.filter(step=None).latest("pk")


def prompts(runner: Runner) -> list[str]:
    return [order.prompt or "" for order in runner.fake.runs]


def test_a_task_asks_before_the_next_run_once_it_has_spent_its_soft_limit(asked: Question) -> None:
    task = asked.task
    assert task.phase == Phase.WAITING_FOR_INPUT and task.soft_cost_usd == 0.005
    assert [one.phase for one in task.steps.all()] == [Phase.DONE, Phase.WAITING_FOR_INPUT]
    assert (asked.kind, asked.step.name, asked.run) == (QuestionKind.COST, "implement", runs(task)[0])
    assert asked.headline.startswith("The task has reached its soft limit of $0.01: it has cost $0.01.")
    assert "1 of 2 steps done; step “implement” is next." in asked.headline
    offered = [option["label"] for option in asked.items[0]["options"]]
    assert offered == ["Allow $0.01 more", FINISH, END]
    event = Event.objects.get(run=asked.run, kind=EventKind.QUESTION)
    assert "[PORTAL] [QUESTION] The task has reached its soft limit" in format_event(event)
    assert AuditEntry.objects.get(action=Action.ASKED).actor_name == "the portal"
    assert due() == [] and last_move(task).reason == "the soft cost limit is reached"


@pytest.mark.parametrize("limit", ["", "limits: {softCostUsd: 0}\n", "limits: {softCostUsd: 5}\n"])
def test_without_a_limit_or_below_it_nothing_is_asked(runner: Runner, limit: str) -> None:
    config = limit + two_steps().partition("\n")[2]
    task = runner.advance(runner.task([say("Done.")], config=config))
    assert task.phase == Phase.DONE and not task.questions.exists()


def test_a_task_that_ends_at_its_limit_is_not_asked_about(runner: Runner) -> None:
    task = runner.advance(runner.task([say("Done.")], config=ONE_STEP))
    assert task.phase == Phase.DONE and not task.questions.exists()


def test_it_goes_on_with_what_was_granted_and_the_agent_reads_the_notes(
    runner: Runner, asked: Question
) -> None:
    task = answer(runner, asked, "Allow $0.01 more", notes="Be brief.")
    assert task.phase == Phase.DONE
    asked.refresh_from_db()
    assert asked.allowed_usd == pytest.approx(0.02) and asked.delivered_at is not None
    last = prompts(runner)[-1]
    assert "reached its soft cost limit" in last and "Allow $0.01 more" in last and "Be brief." in last
    assert last.count("Be brief.") == 1


def test_what_was_noted_at_the_limit_is_told_to_later_prompts_too(runner: Runner, asked: Question) -> None:
    """It was a note to the first run after it, and nobody else read it."""
    task = answer(runner, asked, "Allow $0.1 more", notes="Be brief.")
    retry_from(task, task.steps.all()[1], by=acting(runner.user))
    runner.advance(task)
    last = prompts(runner)[-1]
    assert last.count("Be brief.") == 1 and "at the soft cost limit ann decided" in last


def test_it_asks_again_only_when_that_is_spent_too(runner: Runner, no_undo: None) -> None:
    config = (
        LIMIT
        + "pipelines:\n  default:\n"
        + "".join(f"    - {{name: s{number}, command: implement}}\n" for number in range(4))
    )
    task = runner.advance(runner.task([say("Done.")], config=config))
    task = answer(runner, open_question(task), "0.02")
    second = open_question(task)
    assert (second.number, round(spent_by(task.pk), 6), len(runs(task))) == (2, 0.03, 3)
    assert answer(runner, second, "$3").phase == Phase.DONE
    assert task.questions.count() == 2


def test_the_answer_end_cancels_the_task_and_says_why_and_by_whom(runner: Runner, asked: Question) -> None:
    task = answer(runner, asked, END, notes="Too dear.")
    assert task.phase == Phase.CANCELLED and len(runs(task)) == 1
    last = last_move(task)
    assert last.actor == runner.user
    assert last.reason == f"{runner.user.shown_name} ended it at its soft limit: it had cost $0.01"
    asked.refresh_from_db()
    assert (asked.state, asked.allowed_usd, asked.notes) == (QuestionState.ANSWERED, None, "Too dear.")


def test_a_task_that_was_ended_can_be_resumed_and_asks_again(runner: Runner, asked: Question) -> None:
    task = answer(runner, asked, END)
    resume_task(task, by=acting(runner.user))
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT and open_question(task).number == 2
    assert answer(runner, open_question(task), "1").phase == Phase.DONE


def test_an_end_is_carried_out_even_if_no_worker_takes_the_task(runner: Runner, asked: Question) -> None:
    runner.answer(asked, END)
    assert due() == []
    asked.task.refresh_from_db()
    assert asked.task.phase == Phase.CANCELLED
    assert due() == []


def test_a_cancelled_task_withdraws_the_question_and_asks_again_when_resumed(
    runner: Runner, asked: Question
) -> None:
    task = asked.task
    cancel_task(task, by=acting(runner.user))
    asked.refresh_from_db()
    assert asked.state == QuestionState.WITHDRAWN
    task.refresh_from_db()
    resume_task(task, by=acting(runner.user))
    assert open_question(runner.advance(task)).number == 2


def test_cancelling_before_an_end_is_carried_out_forgets_the_end(runner: Runner, asked: Question) -> None:
    runner.answer(asked, END)
    task = Task.objects.get(pk=asked.task_id)
    cancel_task(task, by=acting(runner.user))
    task.refresh_from_db()
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a lot", "an amount of dollars such as 2.50, not “a lot”"),
        ("-1", "an amount of dollars"),
        ("1,5", "an amount of dollars"),
        ("nan", "an amount of dollars"),
        ("1e3", "an amount of dollars"),
        ("0", "at least 0.01 dollars"),
        ("99999999", "an amount of dollars"),
    ],
)
def test_an_answer_that_is_no_amount_is_refused(
    runner: Runner, asked: Question, text: str, said: str
) -> None:
    with pytest.raises(BadAmount, match=said):
        runner.answer(asked, text)
    asked.refresh_from_db()
    assert asked.is_open and asked.allowed_usd is None


@pytest.mark.parametrize(
    "text", ["2.5", "$2.50", " $ 2.5 ", "allow $2.50 more", "go on, up to $2.50 more", "2.50 more"]
)
def test_amounts_are_read_as_people_write_them(runner: Runner, asked: Question, text: str) -> None:
    runner.answer(asked, text)
    asked.refresh_from_db()
    assert asked.answer_text == "Allow $2.50 more" and asked.allowed_usd == pytest.approx(2.51)


def test_no_answer_allows_more_than_the_hard_limit(runner: Runner, no_undo: None) -> None:
    config = two_steps(limits=", maxCostUsd: 0.025")
    question = open_question(runner.advance(runner.task([say("Done.")], config=config)))
    with pytest.raises(BadAmount, match=r"at most 0\.02 dollars"):
        runner.answer(question, "1")
    assert answer(runner, question, "0.02").phase == Phase.DONE


def test_the_rest_up_to_the_hard_limit_is_offered_and_not_asked_about_again(
    runner: Runner, no_undo: None
) -> None:
    config = two_steps(limits=", maxCostUsd: 0.0151").replace("0.005", "0.009")
    task = runner.advance(runner.task([say("Done.")], config=config))
    question = open_question(task)
    option = question.items[0]["options"][0]
    assert option["label"] == "Allow $0.01 more" and "limits.maxCostUsd" in option["description"]
    runner.answer(question, option["label"])
    assert dollars_for_run(with_limits(task.pk)) == DollarsLeft(), "the hard limit alone holds"


def test_it_is_neither_dismissed_nor_decided(runner: Runner, asked: Question) -> None:
    by = acting(runner.user)
    with pytest.raises(BadInput, match="soft cost limit"):
        dismiss_question(asked, by=by, via=Channel.WEB)
    with pytest.raises(BadInput, match="soft cost limit"):
        decide(asked, Verdict.APPROVED, by=by, via=Channel.WEB)


def test_who_may_not_answer_questions_may_not_answer_this_one(runner: Runner, asked: Question) -> None:
    viewer = MembershipFactory.create(project=asked.task.project, role=Role.VIEWER).user
    for user in (viewer, UserFactory.create()):
        with pytest.raises(NotAllowed):
            answer_question(asked, Reply.to(asked, "1"), by=acting(user), via=Channel.API)


def test_the_first_answer_counts(runner: Runner, asked: Question) -> None:
    first = runner.answer(asked, "1")
    assert not first.repeated and runner.answer(asked, "$1.00").repeated
    with pytest.raises(NotOpen, match=r"Answered by .*Allow \$1.00 more"):
        runner.answer(asked, END)


def test_two_people_who_answer_at_once_are_one_answer(runner: Runner, no_undo: None) -> None:
    for number in range(ROUNDS):
        task = runner.advance(runner.task([say("Done.")], config=two_steps()))
        question = open_question(task)
        outcomes = race(number, *(partial(answers, runner, question.pk, text) for text in ("1", END)))
        assert sum(bool(one.refused) for one in outcomes) == 1
        question.refresh_from_db()
        ended = question.allowed_usd is None
        assert runner.advance(task).phase == (Phase.CANCELLED if ended else Phase.DONE)


@pytest.fixture
def with_undo(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})


@pytest.mark.parametrize("text", ["1", END])
def test_an_answer_is_taken_back(runner: Runner, asked: Question, with_undo: None, text: str) -> None:
    runner.answer(asked, text)
    asked = Question.objects.select_related("task").get(pk=asked.pk)
    assert undo_until(asked) is not None
    assert runner.advance(asked.task).phase == Phase.PENDING and due() == []
    undo_answer(asked, by=acting(runner.user))
    asked.refresh_from_db()
    assert asked.is_open and asked.allowed_usd is None and asked.answers == {}
    asked.task.refresh_from_db()
    assert asked.task.phase == asked.step.phase == Phase.WAITING_FOR_INPUT
    runner.answer(asked, "2")
    past = timezone.now() - timedelta(seconds=90)
    Task.objects.filter(pk=asked.task_id).update(undo_until=past)
    assert runner.advance(asked.task).phase == Phase.DONE


def test_an_agent_s_question_is_asked_first_and_its_answer_is_delivered_with_the_decision(
    runner: Runner, no_undo: None
) -> None:
    """The same session goes on: the answer is the call's result, and the decision stands beside it."""
    task = runner.task([Turn(calls=(ask("Which colour?"),)), say("Painted. {result}")], config=ONE_STEP)
    task = runner.advance(task)
    assert open_question(task).kind == QuestionKind.CLARIFICATION
    task = answer(runner, open_question(task), "Blue")
    question = open_question(task)
    assert (question.kind, len(runs(task))) == (QuestionKind.COST, 1)
    assert "step “do” has begun" in question.headline
    task = answer(runner, question, "1", notes="Be brief.")
    assert task.phase == Phase.DONE and not task.questions.filter(delivered_at=None).exists()
    (told,) = results(task)
    assert "Blue" in told and "Be brief." in told
    first, second = runs(task)
    assert second.resumed and second.session_id == first.session_id and second.reason == Reason.ANSWER


def test_a_failed_check_is_sent_back_with_the_decision(runner: Runner, no_undo: None) -> None:
    config = ONE_STEP + '      check: {type: shell, command: "test -e done || { touch done; false; }"}\n'
    task = runner.task([say("Once."), End(), say("Twice.")], config=config + "      retry: 2\n")
    task = runner.advance(task)
    task = answer(runner, open_question(task), "1", notes="Be brief.")
    assert task.phase == Phase.DONE
    last = prompts(runner)[-1]
    assert "the check failed" in last and "Be brief." in last
    assert len({run.session_id for run in runs(task)}) == 1


def test_a_usage_limit_is_waited_for_before_it_asks(runner: Runner, no_undo: None) -> None:
    config = "waitForRateLimitReset: true\n" + ONE_STEP
    task = runner.task([say("One."), Limit(4_000_000_000)], config=config)
    assert runner.advance(task).phase == Phase.WAITING_FOR_RESET
    Task.objects.filter(pk=task.pk).update(resets_at=timezone.now() - timedelta(seconds=1))
    task = runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT
    assert answer(runner, open_question(task), "1", notes="Be brief.").phase == Phase.DONE
    assert prompts(runner)[-1].count("Be brief.") == 1


def test_a_retried_step_asks_only_when_it_has_spent_what_was_granted(runner: Runner, asked: Question) -> None:
    task = answer(runner, asked, "0.02")
    assert task.phase == Phase.DONE and task.questions.count() == 1
    retry_from(task, step(task, "implement"), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, "0.03 dollars were granted, and 0.02 are spent"
    retry_from(task, step(task, "implement"), by=acting(runner.user))
    assert open_question(runner.advance(task)).number == 2


def test_a_worker_that_dies_at_the_question_leaves_one(
    runner: Runner, no_undo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its transaction nothing is asked, after it everything; the next worker asks once in all."""
    for place in ("_store_question", "crash_point"):

        def dies(*args: object) -> None:
            raise SystemExit

        task = runner.task([say("Done.")], config=two_steps())
        with monkeypatch.context() as patch:
            patch.setattr(f"tasks_app.engine.runs.gates.{place}", dies)
            with pytest.raises(SystemExit):
                runner.advance(task)
        Task.objects.filter(pk=task.pk).update(lease_expires=timezone.now() - timedelta(seconds=1))
        task = runner.advance(task)
        assert (task.phase, task.questions.count()) == (Phase.WAITING_FOR_INPUT, 1)


def test_what_is_left_of_the_soft_limit_limits_a_run_too(runner: Runner, asked: Question) -> None:
    task = asked.task
    assert dollars_for_run(with_limits(task.pk)).of_soft_limit == pytest.approx(-0.005)
    runner.answer(asked, "2")
    assert dollars_for_run(with_limits(task.pk)).of_soft_limit == pytest.approx(2)
    task.project.overrides = {"monthly_budget_usd": 1}
    task.project.save()
    assert dollars_for_run(with_limits(task.pk)).of_budgets == pytest.approx(0.99)


def test_it_asks_when_what_is_left_pays_for_no_request(
    runner: Runner, no_undo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further run begins only to be cut off, and the agent is told the true reason afterwards."""
    config = two_steps().replace("softCostUsd: 0.005", "softCostUsd: 0.02")
    task = runner.task([say("Half."), End(), say("Done.")], config=config)
    play = runner.fake.run

    def spent(order: RunOrder, recorder: Recorder) -> RunResult:
        result = play(order, recorder)
        return (
            replace(result, ending=Ending.BUDGET, error=BUDGET_SPENT)
            if len(runner.fake.runs) == 1
            else result
        )

    monkeypatch.setattr(runner.fake, "run", spent)
    runner.advance(task)
    assert (task.phase, len(runs(task))) == (Phase.WAITING_FOR_INPUT, 1)
    question = open_question(task)
    assert "would not fit below its soft limit of $0.02" in question.headline
    label = question.items[0]["options"][0]["label"]
    assert cost_answer_in(question, label).allowed_usd == pytest.approx(0.04), "more than what did not do"
    answer(runner, question, "2")
    assert "soft cost limit" in prompts(runner)[1] and "usage limit of the model" not in prompts(runner)[1]


def test_a_sequence_waits_and_ends_with_its_task(runner: Runner, no_undo: None) -> None:
    files = {"tasks/1.md": "# One\n", "tasks/2.md": "# Two\n"}
    project = runner.project(two_steps(), **files)
    runner.task([say("Done.")], project=project)
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    task = runner.advance(sequence.tasks.get())
    sequence.refresh_from_db()
    assert sequence.phase == Phase.WAITING_FOR_INPUT
    answer(runner, open_question(task), END)
    sequence.refresh_from_db()
    assert sequence.phase == Phase.CANCELLED
