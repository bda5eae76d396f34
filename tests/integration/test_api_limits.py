"""So many requests a minute, so many bytes at once, and one deed for each key (W5, R1, R5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as portal
from django.db import connection
from django.utils import timezone

from tasks_app.api import limits
from tasks_app.engine.sweeper import KEYS_KEPT
from tasks_app.models import ApiToken, IdempotencyKey, Question, QuestionState, Task
from tasks_app.services.tasks import newest_commit
from tests.api import PROBLEM, Script
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.runner import Runner

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(settings: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Three requests a minute; 17 seconds of this one are gone."""
    clock = SimpleNamespace(now=600 + 17.5)
    counter = limits.ProcessCounter()
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"api_rate": 3})
    monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: clock.now))
    monkeypatch.setattr(limits, "counter", lambda: counter)
    return clock


def member(question: Question) -> Script:
    return Script(MembershipFactory.create(project=question.task.project).user)


def test_the_request_after_the_last_is_429_and_says_when_to_come_again(clock: SimpleNamespace) -> None:
    script = Script(UserFactory.create())
    answers = [script.get("/me") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert (answers[-1]["Content-Type"], answers[-1].json()["status"]) == (PROBLEM, 429)
    assert answers[-1]["Retry-After"] == answers[-1]["RateLimit-Reset"] == "43"
    clock.now += 43
    assert script.get("/me").status_code == 200


def test_each_token_is_counted_alone_and_whatever_it_asked_for(clock: SimpleNamespace) -> None:
    user = UserFactory.create()
    one = Script(user)
    ApiToken.objects.update(name="the first")
    other = Script(user)
    for address in ("/me", "/tasks/999", "/tasks?limit=0"):
        one.get(address)
    assert one.get("/me").status_code == 429
    assert other.get("/me").status_code == 200


def test_a_refused_request_does_nothing(clock: SimpleNamespace, question: Question) -> None:
    script = member(question)
    for _ in range(3):
        script.get("/me")
    refused = script.post(f"/questions/{question.pk}/answer", {"answer": "Half up"}, Idempotency_Key="k")
    assert refused.status_code == 429
    question.refresh_from_db()
    assert question.is_open and not IdempotencyKey.objects.exists()


def test_many_requests_at_once_are_counted_exactly() -> None:
    counter = limits.ProcessCounter()
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: counter.count("token-1", 7), range(800)))
    assert sorted(counts) == list(range(1, 801))


@pytest.mark.parametrize("address", ["/tasks", "/projects", "/questions/1/answer", "/sequences"])
def test_a_body_that_is_too_large_to_be_read_is_a_problem(address: str) -> None:
    script = Script(UserFactory.create(is_superuser=True))
    refused = script.post(address, b"x" * (portal.DATA_UPLOAD_MAX_MEMORY_SIZE + 1))
    assert (refused.status_code, refused["Content-Type"]) == (413, PROBLEM)
    assert refused.json()["status"] == 413


def test_a_key_is_one_persons_alone(question: Question) -> None:
    address = f"/questions/{question.pk}/answer"
    assert member(question).post(address, {"answer": "Half up"}, Idempotency_Key="k").status_code == 200
    other = member(question).post(address, {"answer": "Half up"}, Idempotency_Key="k")
    assert (other.status_code, "Idempotency-Replayed" in other) == (409, False)


def test_an_idempotency_key_reveals_nothing_to_a_narrower_token(question: Question) -> None:
    """It is the same person's, but whoever holds it may see one other project alone."""
    ann = member(question)
    user, address, body = ann.token.user, f"/questions/{question.pk}/answer", {"answer": "Half up"}
    assert ann.post(address, body, Idempotency_Key="once").status_code == 200
    ann.token.delete()
    narrow = Script(user, projects=[ProjectFactory.create()])
    again = narrow.post(address, body, Idempotency_Key="once")
    assert again.status_code == 422 and "Half up" not in again.text


def test_a_key_is_forgotten_after_a_day(question: Question) -> None:
    script, address = member(question), f"/questions/{question.pk}/answer"
    script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
    for age, kept in ((timedelta(hours=23), True), (timedelta(hours=25), False)):
        IdempotencyKey.objects.update(at=timezone.now() - age)
        IdempotencyKey.objects.prune(KEYS_KEPT)
        again = script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
        assert ("Idempotency-Replayed" in again) is kept


def test_a_key_whose_request_is_not_answered_yet_is_409_until_that_was_cut_off(question: Question) -> None:
    script, address = member(question), f"/questions/{question.pk}/answer"
    script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
    IdempotencyKey.objects.update(status=0, carried_out=False)
    waits = script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
    assert (waits.status_code, waits["Content-Type"], waits["Retry-After"]) == (409, PROBLEM, "1")
    IdempotencyKey.objects.update(at=timezone.now() - timedelta(seconds=61))
    again = script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
    assert (again.status_code, again.json()["repeated"]) == (200, True)


def lose_response(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Carry out a request whose process dies before it stores the response."""

    def die(_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr("tasks_app.api.idempotency._body_to_store", die)
        act()


@pytest.mark.parametrize("kind", ["tasks", "sequences"])
def test_a_lost_response_is_made_again_and_nothing_else(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """R1: killed between the commit and the stored response, in which the task had already been started."""
    project = runner.project(**{"tasks/01-one.md": "# One\n"})
    given = {"text": "# Do it"} if kind == "tasks" else {"folder": "tasks"}
    script, body = Script(runner.user), {"project": project.name, "start": True, **given}
    lose_response(monkeypatch, lambda: script.post(f"/{kind}", body, Idempotency_Key="k"))
    made = Task.objects.get()
    assert made.queued_at is not None
    for _ in range(2):
        again = script.post(f"/{kind}", body, Idempotency_Key="k")
        assert (again.status_code, again.json()[kind.removesuffix("s")]) == (
            201,
            made.pk if kind == "tasks" else made.sequence_id,
        )
    assert Task.objects.count() == 1


def test_what_cannot_be_made_again_is_said_to_be_carried_out(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = runner.project()
    script, body = (
        Script(runner.user),
        {"statement": "Prices are rounded half up.", "reason": "As the till does."},
    )
    address = f"/projects/{project.name}/decisions"
    lose_response(monkeypatch, lambda: script.post(address, body, Idempotency_Key="k"))
    for age, said in ((0, "problem-key-in-use"), (61, "problem-key-done")):
        IdempotencyKey.objects.update(at=timezone.now() - timedelta(seconds=age))
        again = script.post(address, body, Idempotency_Key="k")
        assert (again.status_code, again.json()["type"].rpartition("#")[2]) == (409, said)
    assert project.decisions.count() == 1


def test_what_was_taken_back_is_not_done_again_by_a_repeated_request(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: the response was lost, and the answer was taken back before the script came again."""
    script, address = member(question), f"/questions/{question.pk}/answer"
    lose_response(monkeypatch, lambda: script.post(address, {"answer": "Half up"}, Idempotency_Key="k"))
    assert script.post(address, {"answer": "Half up"}, Idempotency_Key="k").json()["repeated"]
    IdempotencyKey.objects.update(status=0)
    Question.objects.update(state=QuestionState.OPEN, answered_at=None)
    again = script.post(address, {"answer": "Half up"}, Idempotency_Key="k")
    assert again.status_code == 409
    question.refresh_from_db()
    assert question.is_open


@pytest.mark.django_db(transaction=True)
def test_a_request_that_was_held_up_does_not_act_after_another_took_its_key(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: a claim does not end by time alone, or the first request would make a second task."""
    project = runner.project()
    script, body = Script(runner.user), {"project": project.name, "text": "# Do it"}
    held, free = threading.Event(), threading.Event()

    def wait_first(*given: Any) -> str:
        if not held.is_set():
            held.set()
            assert free.wait(60)
        return newest_commit(*given)

    monkeypatch.setattr("tasks_app.services.tasks.newest_commit", wait_first)

    def create() -> Any:
        try:
            return script.post("/tasks", body, Idempotency_Key="k")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(create)
        assert held.wait(60)
        IdempotencyKey.objects.update(at=timezone.now() - timedelta(seconds=65))
        second = create()
        free.set()
        assert first.result(60).status_code == 409
    assert second.status_code == 201
    assert Task.objects.get().pk == second.json()["task"]


def test_two_requests_at_once_with_one_key_make_one_task(runner: Runner) -> None:
    project = runner.project()
    script, together = Script(runner.user), threading.Barrier(2)

    def create(_: int) -> Any:
        try:
            together.wait(30)
            return script.post("/tasks", {"project": project.name, "text": "# Do it"}, Idempotency_Key="k")
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(create, range(2)))
    made = Task.objects.get()
    assert sorted(answer.status_code for answer in answers) in ([201, 201], [201, 409])
    for answer in answers:
        assert answer.status_code == 409 or answer.json()["task"] == made.pk
    again = script.post("/tasks", {"project": project.name, "text": "# Do it"}, Idempotency_Key="k")
    assert (again.status_code, again["Idempotency-Replayed"], again.json()["task"]) == (201, "true", made.pk)
