"""`/metrics` and JSON logs (O3): for monitoring, with a token, from the rows alone."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db.models.functions import Now
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from catherder_site.logs import JsonFormatter
from tasks_app.asgi_layers import metrics
from tasks_app.asgi_layers.metrics import Metrics
from tasks_app.core.phases import Phase
from tasks_app.history.events.blocks import append_one
from tasks_app.models import Event, EventKind, Outcome, QuestionKind, QuestionState, Run, Task, WorkerBeat
from tasks_app.services.usage.metrics import exposition
from tests.factories import QuestionFactory, RunFactory, TaskFactory
from tests.portal import WebServer

TOKEN = "t" * 40


class NotFound:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def asked(
    app: Any, *, token: str | None = TOKEN, path: str = "/metrics", method: str = "GET"
) -> tuple[int, str, dict[bytes, bytes]]:
    headers = [(b"host", b"10.9.8.7:8000")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
    there = ApplicationCommunicator(app, scope)
    await there.send_input({"type": "http.request", "body": b""})
    start = await there.receive_output(5)
    body = await there.receive_output(5)
    return start["status"], body["body"].decode(), dict(start["headers"])


def metrics_with(read: Any, token: str = TOKEN) -> Metrics:
    return Metrics(NotFound(), read=read, token=token)


def read_metrics() -> dict[tuple[str, str], float]:
    """The exposition as Prometheus reads it, by name and the value of the label."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition().decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("token", [None, "", "t" * 39, "x" * 40, TOKEN.upper()])
async def test_o3_nobody_reads_figures_without_the_token(token: str | None) -> None:
    status, body, headers = await asked(metrics_with(lambda: b"secret"), token=token)
    assert status == 401 and headers[b"www-authenticate"] == b"Bearer"
    assert "secret" not in body and "CATHERDER_METRICS_TOKEN" in body


async def test_o3_without_a_token_there_is_no_such_page() -> None:
    assert (await asked(metrics_with(lambda: b"secret", token=""), token=""))[0] == 404


async def test_o3_the_token_opens_it_and_nothing_else() -> None:
    app = metrics_with(lambda: b"one 1\n")
    status, body, headers = await asked(app)
    assert (status, body) == (200, "one 1\n") and headers[b"cache-control"] == b"no-store"
    assert (await asked(app, path="/metrics/more"))[0] == 404
    assert (await asked(app, method="HEAD"))[:2] == (200, "")
    assert (await asked(app, method="POST"))[0] == 405


async def test_o3_a_hundred_readers_at_once_read_the_rows_once() -> None:
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        return b"one 1\n"

    app = metrics_with(read)
    found = await asyncio.gather(*(asked(app) for _ in range(100)))
    assert {status for status, _, _ in found} == {200} and len(reads) == 1


async def test_o3_a_fault_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    def read() -> bytes:
        raise RuntimeError("password of the database")

    status, body, _ = await asked(metrics_with(read))
    assert status == 503 and "password" not in body
    assert "password of the database" in caplog.text


async def test_o3_a_database_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 0.05)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> bytes:
        asyncio.run_coroutine_threadsafe(over.wait(), loop).result(30)
        return b"one 1\n"

    app = metrics_with(read)
    assert (await asked(app))[0] == 503
    over.set()
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 30)
    assert (await asked(app))[0] == 200


@pytest.mark.django_db
def test_o3_an_empty_portal_has_figures_too() -> None:
    found = read_metrics()
    assert found["catherder_tasks", "running"] == 0
    assert found["catherder_oldest_open_question_seconds", ""] == 0
    for name in ("workers", "events_total", "waiting_notifications", "queue_depth", "running_agents"):
        assert found[f"catherder_{name}", ""] == 0
    assert not [name for name, _ in found if name == "catherder_answer_to_agent_seconds"]


@pytest.mark.django_db
def test_o3_tasks_by_phase_and_what_a_worker_could_take() -> None:
    for phase, queued in ((Phase.PENDING, True), (Phase.PENDING, False), (Phase.DONE, False)):
        task = TaskFactory.create()
        Task.objects.filter(pk=task.pk).update(phase=phase, queued_at=timezone.now() if queued else None)
    found = read_metrics()
    assert found["catherder_tasks", "pending"] == 2 and found["catherder_tasks", "done"] == 1
    assert found["catherder_tasks", "finished_early"] == 0
    Task.objects.filter(phase=Phase.DONE).update(early_end="ended")
    found = read_metrics()
    assert found["catherder_tasks", "done"] == 0 and found["catherder_tasks", "finished_early"] == 1
    assert found["catherder_queue_depth", ""] == 1


@pytest.mark.django_db
def test_o3_open_questions_and_the_age_of_the_oldest() -> None:
    now = timezone.now()
    QuestionFactory.create(asked_at=now - timedelta(hours=2))
    QuestionFactory.create(asked_at=now, kind=QuestionKind.APPROVAL)
    QuestionFactory.create(asked_at=now - timedelta(days=9), answered_at=now, state=QuestionState.ANSWERED)
    found = read_metrics()
    assert (
        found["catherder_open_questions", "clarification"]
        == found["catherder_open_questions", "approval"]
        == 1
    )
    assert 7200 <= found["catherder_oldest_open_question_seconds", ""] < 7300


@pytest.mark.django_db
@pytest.mark.parametrize(("waits", "median", "worst"), [([2.0], 2.0, 2.0), ([1.0, 3.0, 9.0], 3.0, 9.0)])
def test_o3_seconds_from_an_answer_to_its_agent(waits: list[float], median: float, worst: float) -> None:
    now = timezone.now()
    for wait in waits:
        answered = now - timedelta(minutes=10)
        QuestionFactory.create(
            state=QuestionState.ANSWERED,
            answered_at=answered,
            delivered_at=answered + timedelta(seconds=wait),
        )
    long_ago = now - timedelta(hours=3)
    QuestionFactory.create(state=QuestionState.ANSWERED, answered_at=long_ago, delivered_at=now)
    found = read_metrics()
    assert found["catherder_answer_to_agent_seconds", "0.5"] == median
    assert found["catherder_answer_to_agent_seconds", "1"] == worst


@pytest.mark.django_db
def test_o3_runs_tokens_and_cost() -> None:
    for outcome in (Outcome.FINISHED, Outcome.FINISHED, Outcome.CRASHED, ""):
        run = RunFactory.create()
        Run.objects.filter(pk=run.pk).update(
            outcome=outcome, input_tokens=100, output_tokens=7, cost_usd=0.25
        )
    append_one(run, EventKind.NOTE, {"text": "Hello."})
    found = read_metrics()
    assert found["catherder_runs_total", "finished"] == 2 and found["catherder_runs_total", "crashed"] == 1
    assert found["catherder_running_agents", ""] == 1
    assert found["catherder_tokens_total", "input"] == 400 and found["catherder_tokens_total", "output"] == 28
    assert found["catherder_cost_dollars_total", ""] == 1.0
    assert found["catherder_events_total", ""] == Event.objects.latest("pk").pk


@pytest.mark.django_db
def test_o3_slots_are_those_of_living_workers() -> None:
    for name, problem in (("one", ""), ("two", "No disk."), ("gone", "")):
        ended = name == "gone"
        WorkerBeat.objects.beat(host=name, pid=1, slots=4, busy=1, version="1", ended=ended, problem=problem)
    WorkerBeat.objects.create(
        host="lost", pid=1, slots=64, started_at=Now(), seen_at=Now() - timedelta(days=1)
    )
    found = read_metrics()
    assert found["catherder_workers", ""] == 2
    assert found["catherder_workers_taking_tasks", ""] == 1
    assert (found["catherder_worker_slots", ""], found["catherder_worker_slots_busy", ""]) == (8, 2)


@pytest.mark.django_db
def test_o3_more_rows_need_no_more_queries(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(11) as few:
        exposition()
    for _ in range(3):
        append_one(QuestionFactory.create().run, EventKind.NOTE, {"text": "Hello."})
    with django_assert_max_num_queries(len(few)):
        exposition()


def test_o3_a_line_of_a_json_log_is_one_object_without_secrets() -> None:
    try:
        raise ValueError("two\nlines at /invitations/abcdefghijklmnop/")
    except ValueError as error:
        fault = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("tasks_app", logging.WARNING, __file__, 1, "task %s\nhas “ended”", (7,), fault)
    line = JsonFormatter().format(record)
    assert "\n" not in line and "abcdefghijklmnop" not in line
    fields = json.loads(line)
    assert fields["message"] == "task 7\nhas “ended”" and fields["level"] == "WARNING"
    assert fields["logger"] == "tasks_app" and fields["time"].endswith("Z")
    assert "ValueError" in fields["traceback"]


@pytest.mark.once(on="sqlite")
def test_o3_a_running_server_has_figures_and_logs_json(tmp_path: Path) -> None:
    portal = WebServer(tmp_path, CATHERDER_METRICS_TOKEN=TOKEN, CATHERDER_LOG_FORMAT="json").start()
    try:
        statuses = {}
        for token in (TOKEN, "x" * 40):
            there = HTTPConnection(portal.address, timeout=30)
            there.request("GET", "/metrics", headers={"Host": "10.9.8.7", "Authorization": f"Bearer {token}"})
            answer = there.getresponse()
            statuses[token] = answer.status, b"catherder_queue_depth 0.0" in answer.read()
            there.request("GET", "/invitations/abcdefghijklmnop/", headers={"Host": "localhost"})
            there.getresponse().read()
            there.close()
    finally:
        said = portal.stop()
    assert statuses == {TOKEN: (200, True), "x" * 40: (401, False)}
    lines = [json.loads(line) for line in said.splitlines()]
    asked_for = [line["message"] for line in lines if line["logger"] == "uvicorn.access"]
    assert any("/invitations/[secret]" in message for message in asked_for), asked_for
    assert "abcdefghijklmnop" not in said and TOKEN not in said
