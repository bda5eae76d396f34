"""Figures of the benchmark beside their floors."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Model

from tasks_app.cli import command
from tasks_app.core.errors import BadInput
from tasks_app.models import Change, Event
from tests.bench import filling
from tests.bench.floors.bare_application import Application, Receive, Send
from tests.bench.floors.plain_database import PlainDatabase, PlainWriter, Rows, Written, changes, events
from tests.bench.floors.statements import captured, counting_rows, reading, rows_of
from tests.bench.metrics import Metric
from tests.factories import TaskFactory, UserFactory


class TestMetrics:
    def test_a_time_is_its_floor_multiplied(self) -> None:
        row, message = Metric("row", "ms", "", [1.0, 2.0, 9.0]), Metric("message", "ms", "", [0.5])
        metric = Metric("told", "ms", "50", [5.0, 20.0], [row, message])
        assert (metric.floor_median, metric.ratio) == (2.5, 5.0)
        assert metric.times == "2.5 × 5.00"

    def test_a_rate_is_its_floor_divided(self) -> None:
        metric = Metric("stored", "/s", "10,000", [5_000.0], [Metric("plain", "/s", "", [20_000.0])])
        assert metric.ratio == 0.25
        assert metric.times == "20,000.0 ÷ 4.00"
        assert metric.line.endswith("20,000.0 ÷ 4.00    10,000")

    @pytest.mark.parametrize("samples", [[], [0.0]])
    def test_a_floor_without_samples_or_of_nothing_is_none(self, samples: list[float]) -> None:
        metric = Metric("told", "ms", "", [5.0], [Metric("row", "ms", "", samples)])
        assert metric.ratio is None
        assert metric.times == ""

    def test_json_has_the_floor_with_its_parts(self) -> None:
        metric = Metric("stored", "/s", "", [5_000.0], [Metric("plain", "/s", "", [20_000.0])])
        known = json.loads(json.dumps(metric.as_json()))
        assert (known["floor"], known["floor_of"], known["ratio"]) == (20_000.0, ["plain"], 0.25)


class TestStatements:
    def test_those_that_write_are_left_out(self) -> None:
        both = ['SELECT "a" FROM "b"', "(SELECT 1) UNION (SELECT 2)", "WITH found AS (SELECT 1) SELECT 2"]
        assert (
            reading([*both, "BEGIN", "SAVEPOINT a", 'UPDATE "b" SET "a" = 1', 'INSERT INTO "b" ("a")'])
            == both
        )

    @pytest.mark.parametrize(
        ("sql", "rowcount", "rows"),
        [
            ('SELECT "a" FROM "b"', 7, 0),
            ('INSERT INTO "b" ("a", "c") VALUES (%s, %s) RETURNING "b"."id"', 0, 1),
            ('INSERT INTO "b" ("a", "c") VALUES (%s, %s), (%s, %s), (%s, %s)', 3, 3),
            ('INSERT INTO "b" ("a") SELECT * FROM UNNEST(%s)', 4, 4),
            ('UPDATE "b" SET "a" = %s', 2, 2),
            ('DELETE FROM "b"', -1, 0),
        ],
    )
    def test_rows_of_a_statement(self, sql: str, rowcount: int, rows: int) -> None:
        assert rows_of(sql, rowcount) == rows

    @pytest.mark.django_db
    def test_rows_of_a_block_are_counted(self) -> None:
        task = TaskFactory.create()
        with counting_rows() as counted:
            made = Change.objects.bulk_create(Change(task=task, kind="phase") for _ in range(3))
            Change.objects.filter(pk__in=[one.pk for one in made]).update(kind="events")
        assert sum(counted) == 3 + 3

    @pytest.mark.django_db
    def test_statements_of_a_page_have_their_values(self) -> None:
        UserFactory.create(username="quokka", is_superuser=True)
        statements = captured("quokka", ["/tasks/all/?q=zyzzyva"])["/tasks/all/?q=zyzzyva"]
        assert any("zyzzyva" in one for one in statements)
        assert all("%s" not in one for one in statements)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "plain.sqlite3")) as connection:
        connection.execute("CREATE TABLE tasks_app_event (run_id, seq UNIQUE, kind, at, payload, raw)")
        connection.execute("CREATE TABLE tasks_app_change (task_id, kind, at)")
        yield connection


@pytest.fixture
def plain(file: sqlite3.Connection, tmp_path: Path) -> Iterator[PlainDatabase]:
    with closing(PlainDatabase(f"sqlite:///{tmp_path / 'plain.sqlite3'}")) as database:
        yield database


class TestPlainDatabase:
    def test_a_writer_continues_behind_its_events_with_a_change_for_each_batch(
        self, file: sqlite3.Connection, plain: PlainDatabase
    ) -> None:
        writer = PlainWriter(plain, task=7, run=8, batch=3, payload={"text": "word"})
        written = [writer.write(0.001)]
        while sum(one.events for one in written) < 6:  # a busy machine may leave it no time at all
            written.append(writer.write(0.001))
        found = file.execute("SELECT count(*), min(seq), max(seq) FROM tasks_app_event").fetchone()
        count = sum(one.events for one in written)
        assert found == (count, 1, count)
        assert file.execute("SELECT count(*) FROM tasks_app_change WHERE task_id = 7").fetchone() == (
            count // 3,
        )
        row = file.execute("SELECT run_id, kind, payload, raw FROM tasks_app_event").fetchone()
        assert row == (8, "text", '{"text": "word"}', None)

    def test_nothing_of_a_transaction_stays_if_a_part_fails(
        self, file: sqlite3.Connection, plain: PlainDatabase
    ) -> None:
        twice = Rows("tasks_app_event", ["seq"], [(1,), (1,)])
        with pytest.raises(sqlite3.IntegrityError):
            plain.insert(changes(7), twice)
        assert file.execute("SELECT count(*) FROM tasks_app_change").fetchone() == (0,)

    def test_it_reads_all_rows(self, plain: PlainDatabase) -> None:
        plain.insert(changes(7, 3))
        assert plain.read(["SELECT * FROM tasks_app_change", "SELECT count(*) FROM tasks_app_change"]) == 4

    @pytest.mark.parametrize(("model", "rows"), [(Change, changes(7)), (Event, events(8, [1], "", None))])
    def test_its_rows_have_all_columns(self, model: type[Model], rows: Rows) -> None:
        assert rows.table == model._meta.db_table
        assert {"id", *rows.columns} == {field.column for field in model._meta.concrete_fields}

    def test_what_was_written_in_a_second(self) -> None:
        written = Written(events=500, seconds=0.5, cpu_seconds=0.25)
        assert (written.per_second, written.cpu_ms_per_thousand) == (1_000, 500)


class TestBareApplication:
    async def test_each_post_stores_once(self) -> None:
        stored: list[int] = []
        application = Application(lambda: stored.append(1))
        sent = [await _answered(application, method) for method in ("GET", "POST", "POST")]
        assert len(stored) == 2
        assert [messages[0]["status"] for messages in sent] == [200, 200, 200]

    async def test_what_a_socket_says_is_sent_to_those_that_are_open(self) -> None:
        application = Application(lambda: None)
        gone = await _kept(application, [])
        last = await _kept(application, ["change"])
        assert [message.get("text") for message in gone] == [None, "hello"]
        assert [message.get("text") for message in last] == [None, "hello", "change"]


async def _answered(application: Application, method: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = [{"body": b"a", "more_body": True}, {"body": b"b"}]
    await application({"type": "http", "method": method}, _receiving(iter(requests)), _sending(sent))
    return sent


async def _kept(application: Application, says: list[str]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    said = [{"type": "websocket.receive", "text": text} for text in says]
    moments: list[dict[str, Any]] = [{"type": "websocket.connect"}, *said, {"type": "websocket.disconnect"}]
    await application({"type": "websocket"}, _receiving(iter(moments)), _sending(sent))
    return sent


def _receiving(events: Iterator[dict[str, Any]]) -> Receive:
    async def receive() -> dict[str, Any]:
        return next(events)

    return receive


def _sending(sent: list[dict[str, Any]]) -> Send:
    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    return send


def test_filling_a_database_without_tables_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmigrated() -> None:
        raise BadInput("The database is not prepared.")

    monkeypatch.setattr(command, "require_tables", unmigrated)
    with pytest.raises(
        SystemExit, match=r"not prepared.*\n.*DATABASE_URL='postgresql:///a b' .*cat-herder django migrate"
    ):
        filling.require_migrated("postgresql:///a b")
