"""Events of ended runs become compressed blocks, and every reader reads the same as before (F)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.logs import compaction
from tasks_app.engine.logs.compaction import compact_due_runs, compact_runs
from tasks_app.engine.runs.recovery import _runs_since_resumed
from tasks_app.history.events import blocks
from tasks_app.history.events.blocks import (
    FAILURES,
    NewEvent,
    OpenBlock,
    append,
    append_one,
    is_failure,
    make_block,
)
from tasks_app.history.events.logs import LogKind, follow_log, render_log
from tasks_app.history.events.reading import (
    Events,
    events_with,
    last_event_with,
    newest_event_id,
    past_actions,
)
from tasks_app.models import Event, EventBlock, EventKind, Outcome, Project, Run, Scope, Task
from tasks_app.operations import rows
from tasks_app.services.results import accounts_of
from tasks_app.web.rendering.activity import last_lines
from tasks_app.web.tasks.log import Only
from tests.api import Script
from tests.browser import signed_in
from tests.factories import RunFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
DAY = timedelta(days=1)
WORDS = [
    "Round",
    "the",
    "totals",
    "naïve",
    "Straße",
    "☃",
    'a "quote"',
    "line\nbreak",
    "\u2028",
    "İ",
    "back\\slash",
]


def payload_of(kind: EventKind, number: int, chance: random.Random) -> dict[str, Any]:
    text = " ".join(chance.choices(WORDS, k=8)) + f" line {number}."
    match kind:
        case EventKind.TOOL_USE:
            return {"id": f"t{number}", "name": chance.choice(["Bash", "Write"]), "input": {"command": text}}
        case EventKind.TOOL_RESULT:
            refused = {"turned_down": "sent back by Ann"} if chance.random() < 0.3 else {}
            failed = chance.random() < 0.5
            return {"tool_use_id": f"t{number - 1}", "text": text, "is_error": failed, **refused}
        case EventKind.CHECK:
            return {"check": "make test", "passed": chance.random() < 0.5, "output": text, "exit_code": 1}
        case EventKind.RESULT:
            return {"subtype": "success", "is_error": chance.random() < 0.2, "text": text}
        case EventKind.QUESTION:
            return {"number": number, "question": text, "items": [], "way": "AskUserQuestion"}
        case EventKind.ANSWER:
            return {"number": number, "question": text, "text": text, "by": "Ann", "via": "web"}
        case EventKind.SYSTEM:
            return {"subtype": "init"}
    return {"text": text}


def events_of(count: int, *, seed: int) -> list[NewEvent]:
    chance = random.Random(seed)  # noqa: S311 - the same ones each time
    kinds = list(EventKind)
    found: list[NewEvent] = []
    for number in range(count):
        kind = (
            EventKind.TOOL_RESULT if number and found[-1].kind == EventKind.TOOL_USE else chance.choice(kinds)
        )
        payload = payload_of(kind, 1000 * seed + number, chance)
        raw = (
            {"type": kind, "message": payload, "n": [1, 1.5, None, 2**53]} if chance.random() < 0.8 else None
        )
        found.append(NewEvent(kind, payload, raw=raw, at=timezone.now()))
    return found


def end(run: Run, *, ago: timedelta = 2 * DAY) -> None:
    ended = {"ended_at": timezone.now() - ago, "outcome": Outcome.FINISHED}
    Run.objects.filter(pk=run.pk).update(**ended)


def ended_run(count: int = 20, *, task: Task | None = None, number: int = 1, seed: int = 1) -> Run:
    run = RunFactory.create(number=number, **({"task": task} if task else {}))
    append(run, events_of(count, seed=seed), seq=0)
    end(run)
    run.refresh_from_db()
    return run


@pytest.fixture
def task() -> Task:
    """A done task with three ended runs, among the events of another one.

    The last event of the first run came after the second run had begun.
    """
    task: Task = TaskFactory.create(phase=Phase.DONE)
    Task.objects.filter(pk=task.pk).update(ended_at=timezone.now() - 2 * DAY)
    other = RunFactory.create()
    plan, implement = task.steps.all()
    first = RunFactory.create(step=plan)
    append(first, events_of(180, seed=1), seq=0)
    append(other, events_of(5, seed=9), seq=0)
    second = RunFactory.create(step=plan, number=2, reason="answer")
    append(second, events_of(40, seed=2), seq=0)
    append_one(first, EventKind.NOTE, {"text": "The answer was taken back.", "taken_back": 3})
    append(second, events_of(60, seed=3), seq=40)
    append(other, events_of(5, seed=8), seq=5)
    last = RunFactory.create(step=implement)
    append(last, events_of(150, seed=4), seq=0)
    for run in (first, second, last):
        end(run)
    task.refresh_from_db()
    return task


def compact_all() -> None:
    while compact_runs(older_than=DAY):
        pass


@dataclass(frozen=True)
class Reader:
    """A site admin in a browser and with a script."""

    browser: Client
    script: Script

    @classmethod
    def make(cls) -> Reader:
        admin = UserFactory.create(is_superuser=True)
        return cls(signed_in(admin), Script(admin, Scope.READ))


def every_view(task: Task, reader: Reader) -> dict[str, Any]:
    """What every reader says of the task."""
    return {
        **dict(log_parts(task, reader.browser)),
        **dict(api_pages(task, reader.script)),
        **views_without_pages(task),
    }


def views_without_pages(task: Task) -> dict[str, Any]:
    stored = Events(Q(run__step__task=task), raw=True)
    ids = [event.pk for event in stored.all()]
    return {
        "events": facts(stored.all()),
        "before": facts(stored.before(ids[200], 70)),
        "failures": facts(stored.only(FAILURES).before(None, 50)),
        "words": list(events_with(stored, "Straße")),
        "last with words": last_event_with(stored, "totals", after=ids[3], before=ids[150]),
        **{
            f"{kind} log of {step.name}": "".join(render_log(step, kind))
            for kind in LogKind
            for step in task.steps.all()
        },
        **{f"{kind} log followed": "".join(follow_log(task, kind, pause=fail)) for kind in LogKind},
        "past": [past_actions(step) for step in task.steps.all()],
        "closing": [one.text for account in accounts_of([task]) for one in account.messages],
        "last lines": [[line for _, line in last_lines(run)] for run in runs_of(task)],
        "deaths": [
            [vars(run)["had_result"], vars(run)["spoke"]]
            for step in task.steps.all()
            for run in _runs_since_resumed(step)
        ],
        "next": [run.next_seq() for run in runs_of(task)],
        "newest": (Events(Q(run__step__task=task)).newest_id(), newest_event_id()),
    }


def fail() -> None:
    raise AssertionError("an ended task is not waited for")


def runs_of(task: Task) -> list[Run]:
    return list(Run.objects.filter(step__task=task).order_by("pk"))


def log_parts(task: Task, browser: Client) -> Iterator[tuple[str, Any]]:
    address = reverse("task_log", args=[task.pk])
    ids = [event.pk for event in Events(Q(run__step__task=task)).all()]
    places = [0, ids[1], ids[90], ids[181], ids[-1], ids[-1] + 1]
    numbers = [event.payload["number"] for event in questions(task)]
    looks: list[dict[str, Any]] = [{}, {"beginning": ""}]
    looks += [{way: place} for way in ("before", "after", "around", "error") for place in places]
    looks += [{"run": run.pk} for run in runs_of(task)]
    for words in ("line 1017.", "STRASSE", 'a "quote"', "no such words"):
        looks += [{"find": words}, {"find": words, "after": ids[100]}, {"find": words, "before": ids[100]}]
    for only in Only:
        for look in looks if only in (Only.ALL, Only.ERRORS) else looks[::5]:
            answer = browser.get(address, {**look, "only": only}, headers=HTMX)
            yield f"{only} {look}", (answer.status_code, answer.text)
    for number in (*numbers[:2], 999_999):
        yield f"question {number}", found_at(browser, f"{address}?question={number}")
    for event in (*ids[::200], ids[-1] + 1):
        yield f"event {event}", found_at(browser, reverse("task_event", args=[task.pk, event]))
    yield "page", part_of_log(browser, task)


def found_at(browser: Client, address: str) -> str:
    answer = browser.get(address, headers=HTMX)
    return answer.text if answer.status_code == 200 else str(answer.status_code)


def part_of_log(browser: Client, task: Task) -> str:
    page = browser.get(reverse("task_log", args=[task.pk])).text
    return page[page.index('<div class="log"') : page.index('id="log-below"')]


def questions(task: Task) -> list[Event]:
    return list(Events(Q(run__step__task=task)).of_kinds([EventKind.QUESTION]).all())


def api_pages(task: Task, script: Script) -> Iterator[tuple[str, Any]]:
    for limit in (1, 33, 100):
        after, more, found = 0, True, []
        while more:
            page = script.get(f"/tasks/{task.pk}/events", after=after, limit=limit).json()
            found += page["items"]
            more = page["more"]
            after = page["items"][-1]["id"] if page["items"] else after
            if limit == 1 and len(found) > 20:
                break
        yield f"events by {limit}", found


@pytest.mark.long
@pytest.mark.once(on="sqlite")  # some hundred pages; what they are made of is read on both below
def test_every_reader_reads_the_same_after_compaction(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_EVENTS", 30)
    reader = Reader.make()
    before = every_view(task, reader)
    assert len(before["events by 100"]) == 431

    compact_all()

    assert not Event.objects.filter(run__step__task=task).exists()
    after = every_view(task, reader)
    assert {name for name in before if before[name] != after[name]} == set()


@pytest.mark.parametrize("most_events", [20, 60, 500])
def test_readers_read_the_same_while_blocks_come_one_by_one(
    task: Task, most_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block at a time, as sweeps make them: a log is then in rows and in blocks."""
    monkeypatch.setattr(blocks, "MOST_EVENTS", most_events)
    before = views_without_pages(task)
    steps = 0
    while compact_runs(older_than=DAY, at_once=1):
        steps += 1
        assert views_without_pages(task) == before, steps
    assert steps >= 430 // most_events


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"passed": False},
        {"passed": True},
        {"passed": None},
        {"is_error": True},
        {"is_error": False},
        {"is_error": "yes"},
        {"is_error": True, "turned_down": "by Ann"},
        {"is_error": True, "turned_down": None},
        {"is_error": 1, "passed": 0},
    ],
    ids=str,
)
def test_a_failure_in_a_block_is_one_in_a_row(kind: EventKind, payload: dict[str, Any]) -> None:
    run = RunFactory.create()
    append(run, [NewEvent(kind, payload)], seq=0)
    assert is_failure(kind, payload) == Event.objects.filter(FAILURES.rows).exists()


def test_only_runs_that_ended_long_ago_are_compacted(settings: Any) -> None:
    old, recent, running = ended_run(seed=1), ended_run(seed=2), RunFactory.create()
    append(running, events_of(3, seed=3), seq=0)
    end(recent, ago=timedelta(hours=23))
    assert settings.ENVIRONMENT.compact_after_hours == 24

    compact_due_runs()

    assert set(EventBlock.objects.values_list("run", flat=True)) == {old.pk}
    assert set(Event.objects.values_list("run", flat=True)) == {recent.pk, running.pk}
    old.refresh_from_db()
    assert old.compacted_at is not None


def test_zero_hours_mean_never(settings: Any) -> None:
    ended_run()
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"compact_after_hours": 0})
    assert compact_due_runs() == 0 and not EventBlock.objects.exists()


def test_one_sweep_makes_a_bounded_number_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_EVENTS", 4)
    for seed in range(5):
        ended_run(20, seed=seed)
    assert compact_runs(older_than=DAY, at_once=3) == 3
    assert EventBlock.objects.count() == 3


def test_large_events_make_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_CHARACTERS", 10_000)
    run = RunFactory.create()
    append(run, [NewEvent(EventKind.TEXT, {"text": "x" * 6_000})] * 6, seq=0)
    end(run)
    compact_all()
    assert [block.last_seq - block.first_seq + 1 for block in run.event_blocks.all()] == [2, 2, 2]


def test_an_event_that_comes_later_goes_behind_and_is_compacted_too() -> None:
    """An answer is noted in the run that asked, which may have ended days ago."""
    run = ended_run(20)
    compact_all()
    run.refresh_from_db()

    append_one(run, EventKind.ANSWER, {"number": 1, "text": "Up", "by": "Ann", "via": "web"})

    assert [event.seq for event in Events(Q(run=run)).all()] == list(range(21))
    compact_all()
    assert [block.last_seq for block in run.event_blocks.all()] == [19, 20]
    assert [event.seq for event in Events(Q()).of_run(run)] == list(range(21)) and run.next_seq() == 21


class PowerCut(BaseException):
    pass


@pytest.mark.both
@pytest.mark.parametrize("where", ["insert", "delete", "mark"])
def test_a_process_that_is_killed_in_between_changes_nothing(
    where: str, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended_run(20)
    statements = {
        "insert": 'INSERT INTO "tasks_app_eventblock"',
        "delete": 'DELETE FROM "tasks_app_event"',
        "mark": 'UPDATE "tasks_app_run"',
    }

    def cut(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        done = execute(sql, *args)
        if sql.startswith(statements[where]):
            raise PowerCut
        return done

    with connection.execute_wrapper(cut), pytest.raises(PowerCut):
        compact_runs(older_than=DAY)
    assert (Event.objects.count(), EventBlock.objects.count()) == (20, 0)
    run.refresh_from_db()
    assert run.compacted_at is None
    compact_all()
    assert (Event.objects.count(), EventBlock.objects.count()) == (0, 1)


def test_a_block_whose_rows_somebody_else_has_taken_is_not_stored() -> None:
    """Both have read the same rows; the second finds that they are gone."""
    run = ended_run(20)
    due = compaction._due(timezone.now() - DAY)
    block = make_block(run, Event.objects.filter(run=run).order_by("seq"))
    Event.objects.filter(run=run, seq__lt=5).delete()
    with pytest.raises(compaction._ChangedMeanwhileError):
        compaction._store(run, block, due)
    assert Event.objects.filter(run=run).count() == 15 and not EventBlock.objects.exists()


def test_a_run_that_is_removed_meanwhile_gets_no_block() -> None:
    run = Run.objects.select_related("step").get(pk=ended_run(20).pk)
    due = compaction._due(timezone.now() - DAY)
    block = make_block(run, Event.objects.filter(run=run).order_by("seq"))
    Project.objects.all().delete()
    with pytest.raises(compaction._ChangedMeanwhileError):
        compaction._store(run, block, due)
    assert not EventBlock.objects.exists()


@pytest.mark.both
@pytest.mark.parametrize("compactors", [1, 2])
def test_a_reader_misses_and_repeats_nothing_while_others_compact(
    compactors: int, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MOST_EVENTS", 5)
    task = TaskFactory.create(phase=Phase.DONE)
    found = [ended_run(120, task=task, number=number, seed=number) for number in (1, 2)]
    ids = list(Event.objects.order_by("pk").values_list("pk", flat=True))
    stored, troubles = Events(Q(run__step__task=task)), []

    def compact() -> None:
        try:
            while Event.objects.exists():
                compact_runs(older_than=DAY, at_once=1)
        except Exception as error:
            troubles.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=compact) for _ in range(compactors)]
    for thread in threads:
        thread.start()
    looks = 0
    while any(thread.is_alive() for thread in threads) or looks < 3:
        fresh = Events(stored.runs)
        assert [event.pk for event in fresh.all()] == ids
        assert [event.pk for event in fresh.before(None, 30)] == ids[::-1][:30]
        assert [event.pk for event in fresh.after(ids[100], 40)] == ids[101:141]
        assert [event.seq for event in fresh.of_run(found[0])] == list(range(120))
        assert fresh.get(ids[57]) is not None
        looks += 1
    for thread in threads:
        thread.join()
    assert not troubles and not Event.objects.exists()
    counted = [sum(block.kinds.values()) for block in EventBlock.objects.all()]
    assert sum(counted) == len(ids)


def test_a_part_of_a_log_opens_only_the_blocks_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    run = RunFactory.create(step=task.steps.first())
    append(run, [NewEvent(EventKind.TEXT, {"text": f"line {n}."}) for n in range(5_000)], seq=0)
    append(run, [NewEvent(EventKind.ERROR, {"text": "No luck."})], seq=5_000)
    end(run)
    ids = list(Event.objects.order_by("pk").values_list("pk", flat=True))
    compact_all()
    browser, opened = signed_in(UserFactory.create(is_superuser=True)), []
    is_opened = OpenBlock.__init__

    def counted(self: OpenBlock, block: EventBlock) -> None:
        opened.append(block.pk)
        is_opened(self, block)

    monkeypatch.setattr(OpenBlock, "__init__", counted)
    costs = {}
    for look in ({}, {"around": ids[2_300]}, {"before": ids[700]}, {"after": ids[60]}, {"error": 0}):
        opened.clear()
        with CaptureQueriesContext(connection) as captured:
            page = browser.get(reverse("task_log", args=[task.pk]), look, headers=HTMX)
        assert page.status_code == 200
        costs[str(look)] = (len(captured), len(opened))
    assert max(blocks for _, blocks in costs.values()) <= 3, costs
    assert max(queries for queries, _ in costs.values()) <= 15, costs


def test_a_sweep_finds_nothing_to_compact_without_looking_at_compacted_runs() -> None:
    for seed in range(3):
        ended_run(5, seed=seed)
    compact_all()
    with CaptureQueriesContext(connection) as captured:
        assert compact_runs(older_than=DAY) == 0
    assert len(captured) == 1
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {captured[0]['sql']}")
            assert "run_not_compacted" in str(cursor.fetchall())


def facts(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    return [(one.pk, one.seq, one.kind, one.at, one.payload, one.raw) for one in events]


def test_blocks_are_in_backups() -> None:
    run = ended_run(20)
    compact_all()
    before = facts(Events(Q(), raw=True).all())
    names = [field.attname for field in rows.fields_of(EventBlock)]
    dumped = [json.loads(line) for line in rows.dump_rows(EventBlock, alias="default")]
    EventBlock.objects.all().delete()

    assert rows.load(connection, EventBlock, names, dumped) == 1

    assert facts(Events(Q(), raw=True).of_run(run)) == before


def test_a_removed_project_takes_its_blocks_along(task: Task) -> None:
    compact_all()
    assert EventBlock.objects.exists()
    Project.objects.all().delete()
    assert not EventBlock.objects.exists()
