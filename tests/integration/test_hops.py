"""The moments of a halt and of a resume that no row has, as events of spans (O3)."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import IntegrityError, connection
from django.db.models import QuerySet
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app import composition, tasks
from tasks_app.core.hops import HopName
from tasks_app.core.phases import Phase
from tasks_app.engine.traces import hop_writer
from tasks_app.engine.traces.hop_writer import HopWriter, writing_hops
from tasks_app.engine.traces.otlp import SpanSender
from tasks_app.engine.traces.span_exporter import SETTLED, SpanExporter, send_ended
from tasks_app.history import noted_hops
from tasks_app.history.noted_hops import HopQueue, hops_of_request, note_of_wait
from tasks_app.models import Membership, NotedHop, Question, Span, SpanKind, Task, User
from tasks_app.services.tasks import cancel_task
from tasks_app.web.live import consumers
from tasks_app.web.live.broadcaster import broadcaster
from tasks_app.web.live.detectors import PollingDetector
from tasks_app.web.live.tailer import Tailer
from tests.browser import signed_in
from tests.factories import QuestionFactory
from tests.integration.collectors import Collector
from tests.integration.test_live_socket import Browser
from tests.integration.test_traces import ASKS, endpoint, one
from tests.people import acting
from tests.runner import TWO_STEPS, Runner
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> HopQueue:
    """An empty queue: other tests may have left something in that of the process."""
    queue = HopQueue()
    for module in ("tasks_app.history.noted_hops", "tasks_app.engine.traces.hop_writer"):
        monkeypatch.setattr(f"{module}.QUEUE", queue)
    monkeypatch.setattr("tasks_app.engine.traces.span_exporter.QUEUE", queue)
    return queue


@pytest.fixture
def traced(queue: HopQueue, collector: Collector, settings: Any) -> None:
    endpoint(settings, collector.url)


@pytest.fixture
def waiting(runner: Runner, traced: None) -> Task:
    """A traced task whose second step waits for an answer, with what was noted of it so far stored."""
    task = runner.task(ASKS, config=TWO_STEPS)
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    noted_hops.QUEUE.store()
    return task


def of_waits() -> QuerySet[NotedHop]:
    return NotedHop.objects.filter(span__kind=SpanKind.WAIT)


def stored() -> list[str]:
    noted_hops.QUEUE.store()
    return list(of_waits().values_list("name", flat=True))


def names(events: list[tuple[str, int]]) -> list[str]:
    return [name for name, _ in events]


class TestStory:
    @pytest.mark.bubblewrap
    def test_o3_one_halt_and_resume_shows_every_hop(
        self, real: Runner, traced: None, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the real agent, its sandbox, a socket, pages and a job of the worker."""
        monkeypatch.setattr(composition, "worker_context", lambda _: real.context)
        tailer = Tailer(PollingDetector(0), broadcaster)
        async_to_sync(tailer.begin)()
        task = real.task(text="# Ask\n\nrehearsal: ask-command\n")
        assert real.advance(task).phase == Phase.WAITING_FOR_INPUT
        question = task.questions.get()
        browser = signed_in(real.user)
        async_to_sync(see)(browser, tailer, question)
        assert (
            browser.post(reverse("question_answer", args=[question.pk]), {"item-0": "Left"}).status_code
            == 200
        )
        tasks.look_at.call_local(task.pk)
        async_to_sync(tailer.close)()
        task.refresh_from_db()
        assert task.phase == Phase.DONE
        assert send_ended(SpanSender()) == ""
        asking, told = collector.named("invoke_agent claude-code")
        *before, one_of_both, other = names(asking.events)
        assert before == [
            "spawned", "sandboxed", "first message", "tool call read", "gate", "deferral read",
        ]  # fmt: skip
        assert {one_of_both, other} == {"question stored", "agent exited"}, "both follow from the deferral"
        assert names(one(collector.named("wait for answer")).events) == [
            "notice", "socket", "card fetched", "card painted", "posted", "answered", "woken", "claimed",
            "workspace laid out",
        ]  # fmt: skip
        assert names(told.events) == [
            "spawned", "sandboxed", "first message", "answer delivered", "agent exited"
        ]  # fmt: skip
        for span in (asking, told, one(collector.named("wait for answer"))):
            times = [span.start, *(at for _, at in span.events), span.end]
            assert times == sorted(times)
        assert names(one(collector.named("step do")).events) == ["workspace laid out"]
        assert not NotedHop.objects.exists()

    def test_o3_a_halted_run_lasts_until_its_agent_has_exited(
        self, waiting: Task, collector: Collector
    ) -> None:
        span = Span.objects.get(kind=SpanKind.RUN, run=waiting.questions.get().run)
        assert span.run is not None and span.run.ended_at is not None
        exited = span.run.ended_at + timedelta(milliseconds=4)
        NotedHop.objects.create(span=span, name=HopName.AGENT_EXITED, at=exited)
        assert send_ended(SpanSender()) == ""
        sent = collector.named("invoke_agent claude-code")[-1]
        assert sent.events[-1] == ("agent exited", sent.end)


async def see(client: Client, tailer: Tailer, question: Question) -> None:
    """An open page learns of the question, fetches its card and says that it is painted."""
    async with Browser(client) as browser:
        assert browser.hello["painted"] is True
        await tailer.publish_new()
        assert "question" in (await browser.update())["kinds"]
        url = reverse("question", args=[question.pk])
        await sync_to_async(client.get)(url, headers={"HX-Request": "true"})
        await browser.send(f'{{"painted":{question.pk}}}')
        await painted(question)


async def painted(question: Question) -> None:
    found = NotedHop.objects.filter(name=HopName.CARD_PAINTED, question=question.pk)
    for _ in range(500):
        await sync_to_async(noted_hops.QUEUE.store)()
        if await found.aexists():
            return
        await sync_to_async(threading.Event().wait)(0.02)
    raise AssertionError("it did not come")


class TestWithoutAnEndpoint:
    def test_o3_nothing_is_noted_and_no_thread_runs(self, runner: Runner, queue: HopQueue) -> None:
        task = runner.task(ASKS, config=TWO_STEPS)
        before = threading.active_count()
        with writing_hops(), CaptureQueriesContext(connection) as captured:
            assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
            browser = signed_in(runner.user)
            assert browser.get(reverse("task", args=[task.pk])).status_code == 200
            runner.answer_all(task, "Blue")
            assert runner.advance(task).phase == Phase.DONE
            assert threading.active_count() == before
        assert not queue and not NotedHop.objects.exists()
        assert not [query for query in captured.captured_queries if "notedhop" in query["sql"]]

    def test_o3_an_open_page_is_asked_for_nothing(self, runner: Runner, queue: HopQueue) -> None:
        async def look() -> None:
            question = await sync_to_async(QuestionFactory.create)()
            async with Browser(client) as browser:
                assert "painted" not in browser.hello
                await browser.send(f'{{"painted":{question.pk}}}')

        client = signed_in(runner.user)
        async_to_sync(look)()
        assert not queue


class TestPages:
    def test_o3_a_page_with_the_card_counts_once_as_fetched(self, runner: Runner, waiting: Task) -> None:
        browser = signed_in(runner.user)
        pages = [reverse("inbox"), reverse("task", args=[waiting.pk])]
        for url in [*pages, *pages]:
            assert browser.get(url).status_code == 200
        assert stored() == ["card fetched"]
        assert of_waits().get().question == waiting.questions.get().pk

    def test_o3_a_card_that_the_page_has_already_is_not_fetched(self, runner: Runner, waiting: Task) -> None:
        question = waiting.questions.get()
        url = reverse("question", args=[question.pk])
        shown = signed_in(runner.user).get(f"{url}?shown=open", headers={"HX-Request": "true"})
        assert shown.status_code == 204 and stored() == []

    def test_o3_only_the_answer_that_counts_is_posted(self, runner: Runner, waiting: Task) -> None:
        question, browser = waiting.questions.get(), signed_in(runner.user)
        url = reverse("question_answer", args=[question.pk])
        assert browser.post(url, {"item-0": ""}).status_code == 400
        assert stored() == []
        assert browser.post(url, {"item-0": "Blue"}).status_code == 200
        first = timezone.now()
        assert browser.post(url, {"item-0": "Red"}).status_code == 409
        assert stored() == ["posted"]
        question.refresh_from_db()
        assert question.answered_at is not None
        assert of_waits().get().at < question.answered_at < first

    def test_o3_an_answer_through_the_api_is_posted_too(self, runner: Runner, waiting: Task) -> None:
        question, browser = waiting.questions.get(), signed_in(runner.user)
        url = f"/api/v1/questions/{question.pk}/answer"
        answers = {item["question"]: "Blue" for item in question.items}
        sent = browser.post(url, {"answers": answers}, content_type="application/json")
        assert sent.status_code == 200, sent.text
        assert stored() == ["posted"]

    def test_o3_a_terminal_posts_nothing(self, runner: Runner, waiting: Task) -> None:
        runner.answer_all(waiting, "Blue")
        assert stored() == []


class TestPainted:
    """What browsers say over the socket."""

    def test_o3_who_may_not_see_a_question_cannot_have_painted_it(self, waiting: Task) -> None:
        other = another_question()
        member = User.objects.create_user("eve")
        Membership.objects.create(user=member, project=other.task.project)
        say(member, f'{{"painted":{waiting.questions.get().pk}}}', f'{{"painted":{other.pk}}}', until=other)
        assert list(of_waits().values_list("name", "question")) == [("card painted", other.pk)]

    @pytest.mark.parametrize(
        "garbage",
        [
            "", "{", "[]", "null", '"painted"', '{"painted":0}', '{"painted":-1}', '{"painted":1.5}',
            '{"painted":true}', '{"painted":"1"}', '{"painted":99999999999999999999}', '{"painted":123456}',
            '{"painted":1} ', '{"painted":²}', "[" * 100_000, '{"painted":1, "at":"2020-01-01"}',
        ],
    )  # fmt: skip
    def test_o3_garbage_is_ignored(self, runner: Runner, waiting: Task, garbage: str) -> None:
        question = waiting.questions.get()
        say(runner.user, garbage, f'{{"painted":{question.pk}}}', until=question)
        assert stored() == ["card painted"]

    def test_o3_a_question_counts_once_for_a_socket_and_so_many_of_them(
        self, runner: Runner, waiting: Task, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[int] = []
        note = consumers._note_painted

        def look(question_id: int, *more: Any) -> None:
            looked.append(question_id)
            note(question_id, *more)

        monkeypatch.setattr(consumers, "_note_painted", look)
        monkeypatch.setattr(consumers, "MOST_PAINTED", 2)
        question = waiting.questions.get()
        unknown = [f'{{"painted":{question.pk + number}}}' for number in (1, 1, 0, 0, 2, 3)]
        say(runner.user, *unknown, until=question)
        assert looked == [question.pk + 1, question.pk]

    def test_o3_a_question_that_is_answered_is_not_painted_any_more(
        self, runner: Runner, waiting: Task
    ) -> None:
        question, other = waiting.questions.get(), another_question()
        runner.answer_all(waiting, "Blue")
        say(runner.user, f'{{"painted":{question.pk}}}', f'{{"painted":{other.pk}}}', until=other)
        assert of_waits().get().question == other.pk


def another_question() -> Question:
    """An open question in a project of its own, whose wait is traced."""
    question: Question = QuestionFactory.create(task__project__name="other")
    begun = timezone.now() - timedelta(seconds=1)
    Span.objects.create(
        task=question.task, step=question.step, run=question.run, kind=SpanKind.WAIT, started_at=begun
    )
    return question


def say(user: User, *texts: str, until: Question) -> None:
    """Send messages over one socket, until the question counts as painted."""

    async def send() -> None:
        async with Browser(client) as browser:
            for text in texts:
                await browser.send(text)
            await painted(until)

    client = signed_in(user)
    async_to_sync(send)()


class TestQueue:
    def test_o3_a_full_queue_drops_and_goes_on(
        self, waiting: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(noted_hops, "MOST_WAITING", 2)
        with caplog.at_level(logging.WARNING, logger="tasks_app"):
            for number in range(5):
                note_of_wait(waiting.pk, HopName.CARD_FETCHED, question_id=number)
        said = [record.getMessage() for record in caplog.records]
        assert said == ["events of spans are dropped, because more than 2 wait to be stored"]
        assert len(stored()) == 2
        note_of_wait(waiting.pk, HopName.NOTICE)
        assert "notice" in stored()

    def test_o3_the_first_of_a_name_is_kept_with_one_statement_for_all(self, waiting: Task) -> None:
        first = timezone.now()
        for seconds in (2, 0, 1):
            note_of_wait(waiting.pk, HopName.NOTICE, first + timedelta(seconds=seconds))
        note_of_wait(waiting.pk, HopName.SOCKET, first)
        with CaptureQueriesContext(connection) as captured:
            assert stored() == ["notice", "socket"]
        inserts = [query for query in captured.captured_queries if query["sql"].startswith("INSERT")]
        assert len(inserts) == 1
        note_of_wait(waiting.pk, HopName.NOTICE, first)
        assert stored() == ["notice", "socket"]
        assert of_waits().get(name="notice").at == first

    def test_o3_what_belongs_to_no_wait_is_left_out(self, runner: Runner, waiting: Task) -> None:
        wait = Span.objects.get(kind=SpanKind.WAIT)
        note_of_wait(waiting.pk, HopName.NOTICE, wait.started_at - timedelta(seconds=1))
        note_of_wait(waiting.pk + 1000, HopName.NOTICE)
        cancel_task(waiting, by=acting(runner.user))
        note_of_wait(waiting.pk, HopName.SOCKET)
        assert stored() == []

    def test_o3_a_span_that_is_sent_meanwhile_takes_only_its_own_with_it(
        self, runner: Runner, waiting: Task, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Read, then sent by another process, then stored."""
        gone = another_question()
        for task in (gone.task_id, waiting.pk):
            note_of_wait(task, HopName.NOTICE)
        read = noted_hops._Spans.of

        def sent(self: Any, noted: Any) -> Any:
            found = read(self, noted)
            Span.objects.filter(task=gone.task_id).delete()
            return found

        monkeypatch.setattr(noted_hops._Spans, "of", sent)
        assert stored() == ["notice"]
        assert of_waits().get().span.task_id == waiting.pk

    def test_o3_what_is_refused_twice_waits_on(self, waiting: Task, monkeypatch: pytest.MonkeyPatch) -> None:
        """Spans may be sent just then once more."""
        note_of_wait(waiting.pk, HopName.NOTICE)

        def refused(*_: Any, **options: Any) -> None:
            raise IntegrityError("no such span")

        with monkeypatch.context() as patch:
            patch.setattr(type(NotedHop.objects), "bulk_create", refused)
            with pytest.raises(IntegrityError):
                noted_hops.QUEUE.store()
        assert stored() == ["notice"]

    def test_o3_what_cannot_be_stored_now_waits_on(
        self, waiting: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The log says so once."""
        note_of_wait(waiting.pk, HopName.NOTICE)
        writer, store = HopWriter(), noted_hops._store

        def fails(batch: Any) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(noted_hops, "_store", fails)
        with caplog.at_level(logging.WARNING, logger="tasks_app"):
            writer._store()
            writer._store()
        assert len(caplog.records) == 1 and len(noted_hops.QUEUE) == 1
        monkeypatch.setattr(noted_hops, "_store", store)
        writer._store()
        assert stored() == ["notice"]

    def test_o3_a_web_process_stores_by_itself_and_at_its_end(
        self, waiting: Task, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hop_writer, "SECONDS", 0.01)
        with writing_hops():
            note_of_wait(waiting.pk, HopName.NOTICE)
            wait_until(of_waits().exists)
            monkeypatch.setattr(hop_writer, "SECONDS", 3600)
        with writing_hops():
            note_of_wait(waiting.pk, HopName.SOCKET)
        assert set(of_waits().values_list("name", flat=True)) == {"notice", "socket"}

    def test_o3_a_task_is_deleted_with_what_was_noted(self, waiting: Task) -> None:
        note_of_wait(waiting.pk, HopName.NOTICE)
        assert stored() == ["notice"]
        waiting.delete()
        assert not NotedHop.objects.exists()


class TestSending:
    def test_o3_a_span_is_sent_once_others_have_stored_what_they_noted(
        self, waiting: Task, collector: Collector
    ) -> None:
        exporter, sender = SpanExporter(SpanSender), SpanSender()
        exporter._round(sender, settled=SETTLED)
        assert collector.spans() == []
        Span.objects.filter(kind=SpanKind.STEP, ended_at__isnull=False).update(
            ended_at=timezone.now() - SETTLED - timedelta(seconds=1)
        )
        exporter._round(sender, settled=SETTLED)
        assert [span.name for span in collector.spans()] == ["step plan"]

    def test_o3_a_host_whose_clock_is_ahead_delays_no_span(self, waiting: Task, collector: Collector) -> None:
        ahead = timezone.now() + timedelta(hours=1)
        Span.objects.filter(kind=SpanKind.STEP, ended_at__isnull=False).update(ended_at=ahead)
        SpanExporter(SpanSender)._round(SpanSender(), settled=SETTLED)
        assert [span.name for span in collector.spans()] == ["step plan"]

    def test_o3_the_change_of_an_answer_is_not_taken_for_that_of_the_question(
        self, runner: Runner, waiting: Task, collector: Collector
    ) -> None:
        """The web process was not there when the agent asked."""
        runner.answer_all(waiting, "Blue")
        note_of_wait(waiting.pk, HopName.NOTICE)
        note_of_wait(waiting.pk, HopName.SOCKET)
        runner.advance(waiting)
        send_ended(SpanSender())
        events = names(one(collector.named("wait for answer")).events)
        assert events == ["answered", "claimed", "workspace laid out"]


def test_o3_a_request_outside_of_any_context_notes_nothing(queue: HopQueue, traced: None) -> None:
    noted_hops.note_card(1, 2)
    noted_hops.note_answer(1, 2)
    assert not queue
    with hops_of_request():
        noted_hops.note_answer(1, 2)
    assert len(queue) == 1
