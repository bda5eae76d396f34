"""How a connection to SQLite waits while another one writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from catherder_site.sqlite import base
from tasks_app.models import Project
from tests.factories import ProjectFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]


class Pauses:
    """Stands in for the clock that the connection asks: each pause is noted, and may change something."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.now = 0.0
        self.then: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.now += seconds
        if self.then and len(self.seconds) == 100:
            self.then()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    clock = Pauses()
    monkeypatch.setattr(base, "time", SimpleNamespace(sleep=clock.sleep, monotonic=clock.monotonic))
    return clock


@pytest.fixture
def other() -> Iterator[sqlite3.Connection]:
    """A connection that writes at the moment."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as writing:
        writing.execute("BEGIN IMMEDIATE")
        yield writing


def test_a_transaction_begins_as_soon_as_the_other_writer_has_ended(
    pauses: Pauses, other: sqlite3.Connection
) -> None:
    pauses.then = other.rollback
    with transaction.atomic():
        ProjectFactory.create(name="shop")
    assert pauses.seconds == [base.ASK_AGAIN] * 100
    assert Project.objects.filter(name="shop").exists()


def test_a_statement_without_a_transaction_waits_as_well(pauses: Pauses, other: sqlite3.Connection) -> None:
    pauses.then = other.rollback
    assert Project.objects.update(branch="trunk") == 0
    assert pauses.seconds == [base.ASK_AGAIN] * 100


def test_who_waits_too_long_is_told_that_the_database_is_locked(
    pauses: Pauses, other: sqlite3.Connection
) -> None:
    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic():
        ProjectFactory.create()
    assert sum(pauses.seconds) == pytest.approx(
        settings.DATABASES["default"]["OPTIONS"]["timeout"], abs=2 * base.ASK_AGAIN
    )
    assert other.in_transaction


def test_nobody_waits_within_a_transaction_for_what_cannot_come(pauses: Pauses) -> None:
    """What was read before somebody else wrote must not be written on."""
    with (
        closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as writing,
        connection.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM tasks_app_project").fetchone()
        writing.execute("CREATE TABLE elsewhere (a)")
        writing.execute("DROP TABLE elsewhere")
        with pytest.raises(OperationalError, match="database is locked"):
            cursor.execute("UPDATE tasks_app_project SET branch = 'trunk'")
        cursor.execute("ROLLBACK")
    assert pauses.seconds == []


def test_several_rows_at_once_wait_as_well(pauses: Pauses, other: sqlite3.Connection) -> None:
    pauses.then = other.rollback
    with connection.cursor() as cursor:
        rows = [("a",), ("b",)]
        cursor.executemany("UPDATE tasks_app_project SET branch = 'trunk' WHERE name = %s", rows)
    assert len(pauses.seconds) == 100
