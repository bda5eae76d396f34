"""Database connections that the next thread takes over: few, none that is broken, none of another file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import close_old_connections, connection, connections, transaction
from django.db.backends.sqlite3 import base as sqlite_base
from django.db.utils import DatabaseError

from catherder_site.kept_connections import MOST_KEPT
from catherder_site.sqlite.base import DatabaseWrapper as SqliteWrapper
from tasks_app.models import Project

pytestmark = pytest.mark.django_db(transaction=True)

Opened = list[Any]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """The connections that were opened since; this process keeps them."""
    made: Opened = []
    wrapper: Any = type(connections["default"]).__mro__[2]
    original = wrapper.get_new_connection

    def opening(self: Any, conn_params: dict[str, Any]) -> Any:
        made.append(original(self, conn_params))
        return made[-1]

    monkeypatch.setattr(wrapper, "get_new_connection", opening)
    kept().keep_after_close()
    yield made
    kept().keep_no_more()


def kept() -> Any:
    return connections["default"]


def in_a_thread(work: Callable[[], object]) -> list[BaseException]:
    """Do the work in a thread of its own, which closes its connection; return what it raised."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return problems


def test_a_hundred_threads_one_after_the_other_share_one_connection(opened: Opened) -> None:
    """F: each request has a thread of its own."""
    for _ in range(100):
        assert in_a_thread(Project.objects.count) == []
    assert len(opened) == 1


def test_threads_at_the_same_time_have_one_each_and_few_are_kept(opened: Opened) -> None:
    everybody = threading.Barrier(MOST_KEPT + 3)

    def work() -> None:
        Project.objects.count()
        everybody.wait(20)

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(MOST_KEPT + 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == MOST_KEPT + 3
    assert len(type(kept()).kept._kept) == MOST_KEPT


def test_a_transaction_that_was_left_open_is_gone(opened: Opened) -> None:
    def leave() -> None:
        transaction.set_autocommit(False)
        Project.objects.create(name="half", source="/nowhere", branch="main")

    assert in_a_thread(leave) == []
    assert not Project.objects.filter(name="half").exists()
    assert in_a_thread(lambda: Project.objects.create(name="whole", source="/nowhere", branch="main")) == []
    assert Project.objects.filter(name="whole").exists()


def test_a_connection_that_had_an_error_is_not_used_again(opened: Opened) -> None:
    def fail() -> None:
        connection.cursor().execute("SELECT * FROM there_is_no_such_table")

    (problem,) = in_a_thread(fail)
    assert isinstance(problem, DatabaseError)
    assert in_a_thread(Project.objects.count) == []
    assert len(opened) == 2


def test_nor_if_it_ends_as_a_request_does(opened: Opened) -> None:
    """Django asks whether the connection can be used, and forgets the error then."""

    def fail() -> None:
        with suppress(DatabaseError):
            connection.cursor().execute("SELECT * FROM there_is_no_such_table")
        close_old_connections()

    assert in_a_thread(fail) == in_a_thread(Project.objects.count) == []
    assert len(opened) == 2


def test_one_that_is_closed_within_a_transaction_is_not_kept(opened: Opened) -> None:
    def close() -> None:
        with suppress(DatabaseError), transaction.atomic():
            Project.objects.count()
            connection.close()
            assert in_a_thread(Project.objects.count) == []

    assert in_a_thread(close) == []
    assert len(opened) == 2


def test_if_one_is_dead_the_others_are_not_asked(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs would let a page wait once for each of them."""
    everybody = threading.Barrier(3)
    threads = [threading.Thread(target=_meet, args=[everybody]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked: Opened = []
    monkeypatch.setattr(type(kept()), "is_alive", lambda self, found: asked.append(found))
    assert in_a_thread(Project.objects.count) == []
    assert len(asked) == 1 and len(opened) == 4


def _meet(everybody: threading.Barrier) -> None:
    try:
        Project.objects.count()
        everybody.wait(20)
    finally:
        connection.close()


def test_a_connection_that_was_closed_meanwhile_is_not_used(opened: Opened) -> None:
    """As after a restart of the server."""
    assert in_a_thread(Project.objects.count) == []
    opened[0].close()
    assert in_a_thread(Project.objects.count) == []
    assert len(opened) == 2


def test_a_child_does_not_use_its_parents_connections(opened: Opened) -> None:
    assert in_a_thread(Project.objects.count) == []
    child = os.fork()
    if child == 0:
        os._exit(0 if type(kept()).kept.take(kept().key_of_database()) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert in_a_thread(Project.objects.count) == []
    assert len(opened) == 1


def test_without_being_asked_a_process_keeps_none(opened: Opened) -> None:
    """Commands may exchange the database's file."""
    kept().keep_no_more()
    for _ in range(2):
        assert in_a_thread(Project.objects.count) == []
    assert len(opened) == 2


def test_of_a_file_that_was_exchanged_none_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With SQLite, whose file a restored backup exchanges."""
    made: Opened = []
    original = sqlite_base.DatabaseWrapper.get_new_connection

    def opening(self: Any, conn_params: dict[str, Any]) -> Any:
        made.append(original(self, conn_params))
        return made[-1]

    monkeypatch.setattr(sqlite_base.DatabaseWrapper, "get_new_connection", opening)
    file = tmp_path / "some.sqlite3"
    wrapper = SqliteWrapper({**connection.settings_dict, "NAME": str(file), "OPTIONS": {}}, alias="other")

    def tables() -> list[str]:
        with wrapper.cursor() as cursor:
            found = cursor.execute("SELECT name FROM sqlite_master").fetchall()
        wrapper.close()
        return [name for (name,) in found]

    wrapper.keep_after_close()
    try:
        sqlite3.connect(file).execute("CREATE TABLE old (it)")
        assert tables() == ["old"]
        assert tables() == ["old"]
        assert len(made) == 1
        shutil.move(file, tmp_path / "aside")
        sqlite3.connect(file).execute("CREATE TABLE new (it)")
        assert tables() == ["new"]
        assert len(made) == 2
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            made[0].execute("SELECT 1")
    finally:
        wrapper.keep_no_more()
