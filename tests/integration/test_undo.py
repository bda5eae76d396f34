"""An answer can be taken back for a few seconds, and never once the agent has it (H14)."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app import composition, tasks
from tasks_app.core.errors import NotAllowed, NotOpen, TooLateToUndo
from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.history.events.reading import past_actions
from tasks_app.models import Action, AuditEntry, Channel, Project, Question, QuestionState, Task, User
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer, undo_until
from tasks_app.services.tasks import cancel_task
from tasks_app.services.workers import worker_notifier
from tests.consistent import assert_at_rest, assert_consistent
from tests.fake_agent import FakeAgent
from tests.fake_script import Turn, ask, say
from tests.people import acting
from tests.racing import ROUNDS, race
from tests.runner import results, step
from tests.without_git import Rows

ASKS = [Turn("I ask.", (ask("Red?"),)), say("Painted. {result}")]


@pytest.fixture
def rows(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    rows = Rows.of(tmp_path, monkeypatch)
    rows.agent = FakeAgent(lambda prompt: ASKS)
    return rows


@pytest.fixture
def project(rows: Rows) -> Project:
    return rows.rows().project


def waiting(rows: Rows, project: Project) -> Question:
    question: Question = rows.advance(rows.rows(project=project, queued_at=timezone.now())).questions.get()
    return question


def answer(question: Question, text: str, by: User) -> Question:
    return answer_question(question, Reply.to(question, text), by=acting(by), via=Channel.WEB).question


def answered(rows: Rows, project: Project, text: str = "Red") -> Question:
    answer(waiting(rows, project), text, rows.user)
    return fresh(Question.objects.latest("pk"))


def fresh(question: Question) -> Question:
    return Question.objects.select_related("task__project", "step", "run", "answered_by").get(pk=question.pk)


def told(task: Task) -> str:
    """Which colour the agent was told, if it was told one once."""
    (result,) = results(task)
    return "".join(colour for colour in ("Red", "Blue") if f'"{colour}"' in result)


def time_is_up(task: Task) -> None:
    past = timezone.now() - timedelta(seconds=90)
    Task.objects.filter(pk=task.pk).update(undo_until=past)
    task.questions.update(answered_at=past)


def test_no_worker_claims_the_task_before_the_time_is_up(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    task = rows.advance(question.task)
    assert task.phase == Phase.PENDING
    assert not Task.objects.due().exists()
    time_is_up(task)
    assert rows.advance(task).phase == Phase.DONE
    assert told(task) == "Red"


def test_a_job_that_comes_before_the_time_is_up_is_repeated(
    rows: Rows, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clocks of two hosts differ; without a second job, the task would wait for the sweeper."""
    repeated: list[int] = []
    monkeypatch.setattr(composition, "worker_context", lambda _: rows.context)
    monkeypatch.setattr(tasks, "notify_worker", lambda task_id, _: repeated.append(task_id))
    task = answered(rows, project).task
    tasks.look_at.call_local(task.pk)
    assert not repeated, "it is up in 60 s"
    monkeypatch.setattr(tasks, "CLOCKS_DIFFER", timedelta(hours=1))
    tasks.look_at.call_local(task.pk)
    assert repeated == [task.pk]
    time_is_up(task)
    tasks.look_at.call_local(task.pk)
    assert repeated == [task.pk]
    assert told(task) == "Red"


def test_an_answer_that_is_taken_back_is_a_question_again(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    undo_answer(question, by=acting(rows.user))
    question = fresh(question)
    assert (question.state, question.answers, question.answered_by) == (QuestionState.OPEN, {}, None)
    assert question.task.phase == question.step.phase == Phase.WAITING_FOR_INPUT
    assert AuditEntry.objects.filter(action=Action.ANSWER_TAKEN_BACK, task_id=question.task_id).count() == 1
    assert_at_rest(question.task)
    answer(question, "Blue", rows.user)
    time_is_up(question.task)
    assert rows.advance(question.task).phase == Phase.DONE
    assert told(question.task) == "Blue"


def test_a_session_that_begins_anew_reads_only_the_answer_that_counts(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    undo_answer(question, by=acting(rows.user))
    answer(fresh(question), "Blue", rows.user)
    answers = [action.text for action in past_actions(step(question.task)) if "human" in str(action)]
    assert answers == ["Blue"]


def test_sent_twice_it_is_taken_back_once(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    undo_answer(question, by=acting(rows.user))
    undo_answer(question, by=acting(rows.user))
    assert AuditEntry.objects.filter(action=Action.ANSWER_TAKEN_BACK).count() == 1


def test_only_who_answered_takes_it_back(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    with pytest.raises(NotAllowed, match="Only ann can"):
        undo_answer(question, by=acting(rows.member(project, "bob")))
    assert fresh(question).task.undo_until is not None


def test_not_when_the_time_is_up(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    time_is_up(question.task)
    assert undo_until(fresh(question)) is None
    with pytest.raises(TooLateToUndo, match="for 60 seconds"):
        undo_answer(question, by=acting(rows.user))
    assert fresh(question).state == QuestionState.ANSWERED


def test_not_once_a_worker_has_claimed_the_task(rows: Rows, project: Project) -> None:
    """Whatever the clocks say, and also if that worker dies before it does anything."""
    question = answered(rows, project)
    Task.objects.filter(pk=question.task_id).update(undo_until=timezone.now() - timedelta(seconds=1))
    assert Lease.claim(question.task_id, owner="a worker that dies") is not None
    with pytest.raises(TooLateToUndo, match="the agent has the answer"):
        undo_answer(question, by=acting(rows.user))
    Task.objects.update(lease_expires=timezone.now() - timedelta(seconds=1))
    task = rows.advance(question.task)
    assert (task.phase, told(task)) == (Phase.DONE, "Red")


def test_not_after_the_task_was_cancelled(rows: Rows, project: Project) -> None:
    question = answered(rows, project)
    cancel_task(fresh(question).task, by=acting(rows.user))
    with pytest.raises((NotOpen, TooLateToUndo)):
        undo_answer(question, by=acting(rows.user))
    assert undo_until(fresh(question)) is None


def test_one_of_two_answers_while_the_other_is_missing(rows: Rows, project: Project) -> None:
    rows.agent = FakeAgent(lambda prompt: [Turn("I ask.", (ask("Red?"), ask("Tall?"))), say("Done.")])
    task = rows.advance(rows.rows(project=project, queued_at=timezone.now()))
    first = task.questions.order_by("pk")[0]
    answer(first, "Red", rows.user)
    assert undo_until(fresh(first)) is not None
    undo_answer(first, by=acting(rows.user))
    assert task.questions.open().count() == 2
    assert_consistent(task)


def test_without_a_delay_the_task_resumes_at_once(
    rows: Rows, project: Project, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 0})
    told: list[tuple[int, float]] = []
    monkeypatch.setattr(worker_notifier, "_notify", lambda *of: told.append(of))
    question = answered(rows, project)
    assert told == [(question.task_id, 0)]
    with pytest.raises(TooLateToUndo, match="switched off"):
        undo_answer(question, by=acting(rows.user))
    assert rows.advance(question.task).phase == Phase.DONE


def test_a_worker_is_told_when_the_time_is_up(
    rows: Rows, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, float]] = []
    monkeypatch.setattr(worker_notifier, "_notify", lambda *of: told.append(of))
    question = answered(rows, project)
    assert told == [(question.task_id, 60)]


def test_taking_back_and_taking_up_at_the_same_moment(rows: Rows, project: Project) -> None:
    """One of them wins: either the question is open and nobody works, or the agent gets the answer."""
    taken_back_in_round = []
    for number in range(ROUNDS):
        question = answered(rows, project)
        # The time is over in the first round, lasts in the second, and is up within the race in all others:
        # the claim is refused before, and taking back afterwards.
        up = timezone.now() + timedelta(milliseconds={0: -1, 1: 60_000}.get(number, 6))
        Task.objects.filter(pk=question.task_id).update(undo_until=up)
        claims = [partial(claim_soon, question.task_id)] * 2
        outcomes = race(number, partial(undo_answer, question, by=acting(rows.user)), *claims)
        claimed = [outcome.said for outcome in outcomes[1:]].count("True")
        taken_back = not outcomes[0].refused
        assert claimed + taken_back == 1, outcomes
        assert outcomes[0].refused in ("", "TooLateToUndo")
        assert fresh(question).is_open == taken_back
        taken_back_in_round.append(taken_back)
        Task.objects.filter(pk=question.task_id).update(lease_expires=None)
        if taken_back:
            answer(fresh(question), "Red", rows.user)
            time_is_up(question.task)
        assert rows.advance(question.task).phase == Phase.DONE
        assert told(question.task) == "Red"
    assert taken_back_in_round[:2] == [False, True]


def claim_soon(task_id: int) -> bool:
    """Try often, as workers and sweepers do, and say whether it was claimed in the end."""
    return any(Lease.claim(task_id, owner="w") is not None for _ in range(40))


class TestOnThePage:
    @pytest.fixture
    def ann(self, rows: Rows, client: Client) -> Client:
        client.force_login(rows.user)
        return client

    def test_the_card_offers_undo_and_opens_with_what_was_answered(
        self, rows: Rows, project: Project, ann: Client
    ) -> None:
        question = waiting(rows, project)
        page = ann.post(f"/questions/{question.pk}/answer/", {"item-0-other": "Rather blue"})
        assert f"/questions/{question.pk}/undo/" in page.content.decode()
        page = ann.post(f"/questions/{question.pk}/undo/")
        assert page.status_code == 200
        assert "Rather blue</textarea>" in page.content.decode()
        assert fresh(question).is_open

    def test_meanwhile_the_task_and_its_step_are_answered_and_not_in_line(
        self, rows: Rows, project: Project, ann: Client
    ) -> None:
        task = fresh(answered(rows, project)).task
        assert (task.phase, task.phase_display.label) == (Phase.PENDING, "answered")
        header = ann.get(reverse("task_header", args=[task.pk])).text
        assert "answered</span>" in header and "pending" not in header and "no longer be undone" in header
        assert "answered" in ann.get(reverse("task_timeline", args=[task.pk])).text
        Task.objects.update(undo_until=timezone.now() - timedelta(seconds=1))
        assert fresh(task.questions.get()).task.phase_display.label == "pending"

    def test_others_are_not_offered_it(self, rows: Rows, project: Project, client: Client) -> None:
        question = answered(rows, project)
        client.force_login(rows.member(project, "bob"))
        page = client.get(f"/questions/{question.pk}/")
        assert "/undo/" not in page.content.decode()
        assert client.post(f"/questions/{question.pk}/undo/").status_code == 403

    def test_too_late_says_so(self, rows: Rows, project: Project, ann: Client) -> None:
        question = answered(rows, project)
        time_is_up(question.task)
        assert "/undo/" not in ann.get(f"/questions/{question.pk}/").content.decode()
        page = ann.post(f"/questions/{question.pk}/undo/")
        assert page.status_code == 409
        assert "It is too late: an answer can be taken back for 60 seconds." in page.content.decode()


def test_the_api_takes_it_back(rows: Rows, project: Project, client: Client) -> None:
    question = answered(rows, project)
    client.force_login(rows.user)
    url = f"/api/v1/questions/{question.pk}"
    assert client.get(url).json()["undo_until"]
    taken_back = client.post(f"{url}/undo", "{}", content_type="application/json")
    assert (taken_back.status_code, taken_back.json()["state"]) == (200, "open")
    answer(fresh(question), "Red", rows.user)
    time_is_up(question.task)
    late = client.post(f"{url}/undo", "{}", content_type="application/json")
    assert (late.status_code, json.loads(late.content)["type"].rpartition("-")[2]) == (409, "conflict")
