"""Traces (O3): spans of tasks, steps, runs and waits, made from rows and sent to an OTLP/HTTP endpoint."""

from __future__ import annotations

import json
import logging
import signal
import socket
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catherder_site.logs import JsonFormatter
from tasks_app.agent.port import Recorder, RunOrder, RunResult
from tasks_app.core.phases import Phase
from tasks_app.engine.sweeper import prune
from tasks_app.engine.traces import span_exporter
from tasks_app.engine.traces.otlp import SpanSender
from tasks_app.engine.traces.span_exporter import (
    EndedSpans,
    SpanExporter,
    send_ended,
    start_exporter,
)
from tasks_app.engine.traces.spans import context_of_run, context_of_task
from tasks_app.models import Run, SentSpan, Task
from tasks_app.operations.doctor import services
from tasks_app.services.tasks import cancel_task, resume_task
from tests.crash.test_sweep import dies_at
from tests.fake_script import Act, Die, End, Fail, Turn, ask, say, write
from tests.installation import Installation, answering
from tests.integration.collectors import Collector, Received
from tests.people import acting
from tests.runner import TWO_STEPS, Runner, file_in, runs
from tests.soft_limits import LIMIT
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

ASKS = {
    "plan": [say("Planned, at length.")],
    "implement": [
        Turn("I ask.", (ask("Red or blue?"),)),
        Turn(calls=(write("paint.txt", "{}"),)),
        say("Painted. {result}"),
    ],
}

CHECKED = """\
pipelines:
  default:
    - {name: do, command: self, check: {type: fileExists, path: done.txt}, retry: 1}
"""


def endpoint(settings: Any, url: str) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"otlp_endpoint": url})


@pytest.fixture
def traced(runner: Runner, collector: Collector, settings: Any) -> Runner:
    """A portal with an endpoint for traces."""
    endpoint(settings, collector.url)
    return runner


@pytest.fixture
def waiting(traced: Runner) -> Task:
    """A traced task whose second step waits for an answer."""
    task = traced.task(ASKS, config=TWO_STEPS)
    assert traced.advance(task).phase == Phase.WAITING_FOR_INPUT
    return task


def nanoseconds(at: datetime | None) -> int:
    assert at is not None
    return int(at.replace(microsecond=0).timestamp()) * 10**9 + at.microsecond * 1000


def ids(collector: Collector) -> list[tuple[str, str]]:
    return [(span.name, span.span_id) for span in collector.spans()]


def one(spans: list[Received]) -> Received:
    (span,) = spans
    return span


class TestStory:
    def test_o3_a_task_with_a_halt_is_one_trace(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        """What has ended is sent while the task waits; another process sends the rest."""
        assert send_ended(SpanSender()) == ""
        before = Counter(span.name for span in collector.spans())
        assert before == {"invoke_agent claude-code": 2, "checks": 1, "step plan": 1}
        traced.answer_all(waiting, "Blue")
        assert traced.advance(waiting, owner="another-host:1").phase == Phase.DONE
        assert send_ended(SpanSender()) == "" == send_ended(SpanSender())
        spans = collector.spans()
        assert Counter(span.name for span in spans) == {
            "task": 1,
            "step plan": 1,
            "step implement": 1,
            "invoke_agent claude-code": 3,
            "checks": 2,
            "wait for answer": 1,
        }
        assert len({span.span_id for span in spans}) == 9
        assert {span.trace_id for span in spans} == {context_of_task(waiting).trace_id}

    def test_o3_parents_and_times_are_those_of_the_rows(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        traced.answer_all(waiting, "Blue")
        traced.advance(waiting)
        send_ended(SpanSender())
        task, plan, implement = (one(collector.named(n)) for n in ("task", "step plan", "step implement"))
        assert task.parent_id == "" and plan.parent_id == implement.parent_id == task.span_id
        agents = collector.named("invoke_agent claude-code")
        assert [span.parent_id for span in agents] == [plan.span_id, implement.span_id, implement.span_id]
        rows = runs(waiting)
        assert [span.start for span in agents] == [nanoseconds(run.started_at) for run in rows]
        assert [span.end for span in agents] == [nanoseconds(run.ended_at) for run in rows]
        wait = one(collector.named("wait for answer"))
        question = waiting.questions.get()
        assert wait.parent_id == implement.span_id
        assert wait.events == [("answered", nanoseconds(question.answered_at))]
        assert nanoseconds(question.asked_at) <= wait.start < wait.events[0][1] < wait.end <= agents[2].start
        assert task.start <= implement.start <= agents[1].start and agents[2].end <= implement.end <= task.end
        judged = collector.named("checks")
        assert [span.parent_id for span in judged] == [plan.span_id, implement.span_id]
        assert [(span.start, span.end) for span in judged] == [
            (agents[0].end, plan.end), (agents[2].end, implement.end)
        ]  # fmt: skip
        assert [span.attributes["cat_herder.checks.passed"] for span in judged] == [True, True]

    def test_o3_the_agent_gets_the_context_of_its_run(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        traced.answer_all(waiting, "Blue")
        traced.advance(waiting)
        send_ended(SpanSender())
        agents = collector.named("invoke_agent claude-code")
        expected = [f"00-{span.trace_id}-{span.span_id}-01" for span in agents]
        assert [order.traceparent for order in traced.fake.runs] == expected

    def test_o3_spans_have_figures_and_no_texts(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        traced.answer_all(waiting, "Ultramarine")
        traced.advance(waiting)
        send_ended(SpanSender())
        run = collector.named("invoke_agent claude-code")[1]
        row = runs(waiting)[1]
        assert run.attributes == {
            "cat_herder.task.id": waiting.pk,
            "cat_herder.project.name": waiting.project.name,
            "cat_herder.pipeline.name": "default",
            "cat_herder.step.name": "implement",
            "cat_herder.run.number": 1,
            "cat_herder.run.reason": "first",
            "cat_herder.run.outcome": "asked",
            "cat_herder.run.cost_usd": row.cost_usd,
            "cat_herder.run.sandboxed": False,
            "cat_herder.run.network": row.network,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.agent.name": "claude-code",
            "gen_ai.conversation.id": str(row.session_id),
            "gen_ai.response.model": "fake-1",
            "gen_ai.usage.input_tokens": 320,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.usage.cache_creation.input_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": 200,
        }
        wait = one(collector.named("wait for answer")).attributes
        assert wait["cat_herder.wait.outcome"] == "answered"
        assert wait["cat_herder.wait.question_kinds"] == ["clarification"]
        assert {span.kind for span in collector.spans()} == {1}  # INTERNAL
        assert {span.resource["service.name"] for span in collector.spans()} == {"cat-herder"}
        sent = b"".join(body for _, _, body in collector.receiver.posts)
        for text in (b"Paint", b"Red or blue", b"Ultramarine", b"paint.txt", b"Planned"):
            assert text not in sent

    def test_o3_an_operator_names_the_service(
        self, traced: Runner, waiting: Task, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", "herd-of-berlin")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=berlin")
        send_ended(SpanSender())
        assert {span.resource["service.name"] for span in collector.spans()} == {"herd-of-berlin"}
        assert {headers["x-tenant"] for _, headers, _ in collector.receiver.posts} == {"berlin"}
        assert {path for path, _, _ in collector.receiver.posts} == {"/v1/traces"}


class TestEnds:
    def test_o3_a_failure_is_marked_without_its_text(self, traced: Runner, collector: Collector) -> None:
        task = traced.task([Fail("API Error: 400 Something private.")])
        assert traced.advance(task).phase == Phase.FAILED
        send_ended(SpanSender())
        assert [span.failed for span in collector.spans()] == [True, True, True]
        assert {span.attributes["error.type"] for span in collector.spans()} == {"failed"}
        assert b"private" not in b"".join(body for _, _, body in collector.receiver.posts)

    def test_o3_a_wait_ends_with_the_cancellation(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        cancel_task(waiting, by=acting(traced.user))
        send_ended(SpanSender())
        wait, task = one(collector.named("wait for answer")), one(collector.named("task"))
        assert wait.attributes["cat_herder.wait.outcome"] == "cancelled" and wait.events == []
        assert task.attributes["cat_herder.task.outcome"] == "cancelled" and not task.failed

    def test_o3_what_goes_on_after_the_end_stays_in_the_trace(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        cancel_task(waiting, by=acting(traced.user))
        resume_task(waiting, by=acting(traced.user))
        traced.answer_all(waiting, "Blue")
        assert traced.advance(waiting).phase == Phase.DONE
        send_ended(SpanSender())
        first, second = collector.named("task")
        assert (first.parent_id, second.parent_id) == ("", first.span_id)
        assert len({span.trace_id for span in collector.spans()}) == 1
        steps, waits = collector.named("step implement"), collector.named("wait for answer")
        assert [span.parent_id for span in steps] == [first.span_id, second.span_id]
        assert [span.parent_id for span in waits] == [steps[0].span_id, steps[1].span_id]
        assert [span.attributes["cat_herder.wait.outcome"] for span in waits] == ["cancelled", "answered"]

    def test_o3_a_step_that_was_pending_ends_with_its_task(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        """Answered, and cancelled before a worker took it."""
        traced.answer_all(waiting, "Blue")
        cancel_task(waiting, by=acting(traced.user))
        send_ended(SpanSender())
        assert len(collector.named("step implement")) == 1
        assert one(collector.named("wait for answer")).attributes["cat_herder.wait.outcome"] == "cancelled"

    def test_o3_a_run_whose_process_died_has_a_span(self, traced: Runner, collector: Collector) -> None:
        task = traced.task([Die(), say("Never.")])
        traced.advance(task)
        send_ended(SpanSender())
        outcomes = [
            span.attributes["cat_herder.run.outcome"] for span in collector.named("invoke_agent claude-code")
        ]
        assert outcomes == [run.outcome for run in runs(task)] and "failed" in outcomes

    def test_o3_a_failed_check_ends_with_the_next_attempt(self, traced: Runner, collector: Collector) -> None:
        acts: list[Act] = [say("Done."), End(), Turn(calls=(write("done.txt", ""),)), say("Now.")]
        task = traced.task(acts, config=CHECKED)
        assert traced.advance(task).phase == Phase.DONE
        send_ended(SpanSender())
        failed, passed = collector.named("checks")
        assert (failed.failed, passed.failed) == (True, False)
        assert failed.end == collector.named("invoke_agent claude-code")[1].start

    def test_o3_a_publication_is_a_span(self, traced: Runner, waiting: Task, collector: Collector) -> None:
        end = timezone.now() + timedelta(minutes=1)
        asked = {"commit": "0" * 40, "url": "https://git.example.org/x.git", "branch": "x"}
        waiting.publications.create(state="refused", ended_at=end, answer="Because of this.", **asked)
        send_ended(SpanSender())
        span = one(collector.named("publish"))
        assert (span.parent_id, span.failed) == (context_of_task(waiting).span_id, True)
        assert span.end == nanoseconds(end) and "Because" not in str(span.attributes)

    def test_o3_the_portals_own_question_about_costs_is_a_wait(
        self, traced: Runner, collector: Collector
    ) -> None:
        task = traced.task([say("Done.")], config=LIMIT + TWO_STEPS)
        assert traced.advance(task).phase == Phase.WAITING_FOR_INPUT
        question = task.questions.get()
        traced.answer(question, question.items[0]["options"][0]["label"])
        assert traced.advance(task).phase == Phase.DONE
        send_ended(SpanSender())
        wait, step = one(collector.named("wait for answer")), one(collector.named("step implement"))
        assert wait.parent_id == step.span_id
        assert wait.attributes["cat_herder.wait.question_kinds"] == ["cost"]
        assert wait.end <= nanoseconds(runs(task)[1].started_at)

    def test_o3_a_worker_without_an_endpoint_continues_a_trace(
        self, traced: Runner, waiting: Task, collector: Collector, settings: Any
    ) -> None:
        sender = SpanSender()
        endpoint(settings, "")
        traced.answer_all(waiting, "Blue")
        assert traced.advance(waiting).phase == Phase.DONE
        expected = [context_of_run(run).traceparent for run in runs(waiting)]
        assert [order.traceparent for order in traced.fake.runs] == expected
        send_ended(sender)
        assert len(collector.spans()) == 9


class TestWithoutAnEndpoint:
    def test_o3_there_is_no_thread_and_no_statement(self, runner: Runner) -> None:
        task = runner.task(ASKS, config=TWO_STEPS)
        with CaptureQueriesContext(connection) as captured:
            assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
        assert not [query for query in captured.captured_queries if "sentspan" in query["sql"]]
        assert start_exporter() is None

    def test_o3_nothing_that_sends_spans_is_imported(self, installation: Installation) -> None:
        code = """
import sys
from tasks_app import composition, tasks
from tasks_app.management.commands import worker
from tasks_app.operations.doctor import services
from tasks_app.engine.traces.span_exporter import start_exporter
start_exporter(), list(services.traces())
ours = ("opentelemetry.exporter", "opentelemetry.sdk.trace", "opentelemetry.proto")
print([name for name in sys.modules if name.startswith(ours)])
"""
        assert installation.python(code).strip() == "[]"


class TestUnavailableEndpoint:
    def test_o3_spans_are_kept_and_sent_once_it_is_back(
        self, traced: Runner, waiting: Task, collector: Collector, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One line in the log, however often it is tried."""
        collector.receiver.status = 401
        exporter, sender = SpanExporter(SpanSender), SpanSender()
        with caplog.at_level(logging.INFO, logger="tasks_app"):
            for _ in range(3):
                exporter._round(sender)
            refused = len(collector.spans())
            assert refused == 12 and not SentSpan.objects.exists()
            collector.receiver.status = 200
            exporter._round(sender)
            exporter._round(sender)
        said = [record.getMessage() for record in caplog.records if "spans" in record.getMessage()]
        url = f"{collector.url}/v1/traces"
        kept = "They are kept for a day and tried again."
        assert said == [
            f"spans cannot be sent to {url}: it answers 401. {kept}",
            f"spans are sent to {url} again",
        ]
        assert len(collector.spans()) == refused + 4 == refused + SentSpan.objects.count()

    def test_o3_an_endpoint_that_is_down_fails_no_task(
        self, runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        endpoint(settings, f"http://user:s3cret@127.0.0.1:{port}")
        task = runner.task([say("Done.")])
        assert runner.advance(task).phase == Phase.DONE
        assert "cannot be reached" in send_ended(SpanSender())
        assert not SentSpan.objects.exists()

    def test_o3_a_worker_ends_although_the_endpoint_never_answers(
        self, runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(span_exporter, "SECONDS", 0.01)
        monkeypatch.setattr(span_exporter, "FLUSH_SECONDS", 0.1)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint(settings, f"http://127.0.0.1:{silent.getsockname()[1]}")
            exporter = start_exporter()
            assert exporter is not None
            task = runner.task([say("Done.")])
            assert runner.advance(task).phase == Phase.DONE
            wait_until(SentSpan.objects.exists)
            exporter.stop()
            assert exporter.is_alive(), "stop waits no longer than it may"
            exporter.join()

    def test_o3_a_redirect_is_no_success(self, traced: Runner, waiting: Task, collector: Collector) -> None:
        collector.receiver.status, collector.receiver.location = 302, "http://127.0.0.1:1/"
        assert send_ended(SpanSender()) == "it answers 302"
        assert not SentSpan.objects.exists()

    def test_o3_spans_of_a_day_ago_are_not_sent(self, waiting: Task, collector: Collector) -> None:
        long_ago = Now() - timedelta(hours=25)
        Run.objects.filter(step__name="plan").update(started_at=long_ago, ended_at=long_ago)
        send_ended(SpanSender())
        assert len(collector.named("invoke_agent claude-code")) == 1

    def test_o3_what_was_sent_is_known_for_longer_than_it_could_be_sent_again(
        self, waiting: Task, collector: Collector
    ) -> None:
        send_ended(SpanSender())
        prune()
        assert SentSpan.objects.count() == len(collector.spans()) == 4
        SentSpan.objects.update(taken_at=Now() - 2 * span_exporter.KEPT - timedelta(hours=1))
        prune()
        assert not SentSpan.objects.exists()


@pytest.mark.both
class TestOnce:
    def test_o3_of_two_processes_one_takes_a_span(self) -> None:
        assert SentSpan.objects.take(["a", "b"]) == {"a", "b"}
        assert SentSpan.objects.take(["b", "c"]) == {"c"} and SentSpan.objects.take(["a", "c"]) == set()

    def test_o3_a_process_that_dies_while_it_sends_sends_nothing_twice(
        self, waiting: Task, collector: Collector
    ) -> None:
        assert dies_at("spans-sent", lambda: send_ended(SpanSender())) == 137
        first = ids(collector)
        assert send_ended(SpanSender()) == "" and ids(collector) == first and len(first) == 4

    def test_o3_only_what_has_changed_is_looked_at_again(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        spans, sender = EndedSpans(), SpanSender()
        spans.send(sender)
        spans.send(sender)
        with CaptureQueriesContext(connection) as captured:
            spans.send(sender)
        assert len(captured) == 1, "at rest a round is one statement"
        cancel_task(waiting, by=acting(traced.user))
        spans.send(sender)
        assert Counter(span.name for span in collector.spans()) == {
            "task": 1, "step plan": 1, "step implement": 1, "invoke_agent claude-code": 2, "checks": 1,
            "wait for answer": 1,
        }  # fmt: skip

    def test_o3_a_span_waits_until_it_is_settled(
        self, traced: Runner, waiting: Task, collector: Collector
    ) -> None:
        """A run that asked is completed a moment later; nobody waits for a clock that is far ahead."""
        spans, sender = EndedSpans(), SpanSender()
        spans.send(sender, settled=timedelta(minutes=5))
        assert collector.spans() == []
        Run.objects.filter(outcome="asked").update(ended_at=timezone.now() + timedelta(hours=1))
        spans.send(sender, settled=timedelta(minutes=5))
        assert [span.attributes["cat_herder.run.outcome"] for span in collector.spans()] == ["asked"]
        spans.send(sender)
        assert len(collector.spans()) == 4


class Talkative:
    """An agent that logs during its run."""

    name, sandboxed = "talkative", False

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        logging.getLogger("tasks_app.agent").warning("during the run")
        result: RunResult = self._agent.run(order, recorder)
        return result


class TestLog:
    def test_o3_lines_in_json_have_the_ids_of_what_they_are_about(self, traced: Runner) -> None:
        lines: list[dict[str, Any]] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
        logger = logging.getLogger("tasks_app")
        logger.addHandler(handler)
        try:
            task = traced.task([say("Done.")])
            traced.agent = Talkative(traced.agent)
            traced.advance(task)
            logger.warning("afterwards")
        finally:
            logger.removeHandler(handler)
        during, afterwards = (
            next(x for x in lines if x["message"] == m) for m in ("during the run", "afterwards")
        )
        (run,) = runs(task)
        context = context_of_run(run)
        assert "trace_id" not in afterwards
        assert (during["trace_id"], during["span_id"]) == (context.trace_id, context.span_id)


class TestDoctor:
    def test_o3_it_says_whether_the_endpoint_takes_spans(self, collector: Collector, settings: Any) -> None:
        assert list(services.traces()) == []
        endpoint(settings, collector.url.replace("//", "//user:s3cret@"))
        for status, level, text in [
            (200, "ok", "takes spans"),
            (403, "warning", "takes no spans: it answers 403"),
        ]:
            collector.receiver.status = status
            (finding,) = services.traces()
            assert finding.level.value == level and text in finding.text and "s3cret" not in finding.text
        assert collector.spans() == []


@pytest.mark.bubblewrap
def test_o3_the_real_agents_shell_has_the_context_and_no_credentials(
    real: Runner, collector: Collector, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    endpoint(settings, collector.url)
    task = real.task(text="# Note it\n\nrehearsal: tell-the-trace\n")
    assert real.advance(task).phase == Phase.WAITING_FOR_INPUT
    real.answer_all(task, "Left")
    assert real.advance(task).phase == Phase.DONE
    send_ended(SpanSender())
    agents = collector.named("invoke_agent claude-code")
    expected = [f"00-{span.trace_id}-{span.span_id}-01" for span in agents]
    assert file_in(task, "trace.txt").read_text().splitlines() == expected and len(expected) == 2
    assert file_in(task, "secrets.txt").read_text().split() == ["0", "0"]
    assert len(collector.spans()) == 6


def test_o3_a_trace_goes_on_in_other_processes(
    installation: Installation, collector: Collector, tmp_path: Path
) -> None:
    """A terminal works until the halt, a web process stores the answer, a real worker does the rest."""
    path = installation.task_file("# Ask once\n\nrehearsal: ask-and-end\n")
    installation = installation.with_fake_agent()
    installation.variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    assert installation.manage("run_task", path, "--project", "plain", "--no-input").returncode != 0
    assert [span.name for span in collector.spans()] == ["invoke_agent claude-code"], "sent when it left"
    installation.python(answering(1, "Go on"))
    worker = installation.popen("worker")
    try:
        wait_until(lambda: installation.phase() == "done")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    spans = collector.spans()
    assert Counter(span.name.split()[0] for span in spans) == {
        "task": 1, "step": 1, "invoke_agent": 2, "checks": 1, "wait": 1
    }  # fmt: skip
    assert len({span.trace_id for span in spans}) == 1 and len({span.span_id for span in spans}) == 6
    task, step = one(collector.named("task")), next(span for span in spans if span.name.startswith("step"))
    parents = {span.name: span.parent_id for span in spans}
    assert parents[step.name] == task.span_id
    assert parents["invoke_agent claude-code"] == parents["wait for answer"] == step.span_id
