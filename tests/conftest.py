"""What all tests share. The environment they run in is put in order in tests/settings.py."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from django.core.cache import cache
from psycopg import sql

from tasks_app.api import limits
from tests import machine, rounds

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


if machine.ON_POSTGRES:
    from django.db.backends.postgresql.operations import DatabaseOperations

    def _emptied(
        self: DatabaseOperations,
        style: Any,
        tables: list[str],
        *,
        reset_sequences: bool = False,
        allow_cascade: bool = False,
    ) -> list[str]:
        """After a test with transactions of its own. Django's TRUNCATE makes a new file for each table."""
        assert not reset_sequences
        return [f"DELETE FROM {self.quote_name(table)};" for table in tables]  # noqa: S608

    DatabaseOperations.sql_flush = _emptied  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    # What is started in the background, as by `make test &`, ignores Ctrl+C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if machine.ON_POSTGRES and not hasattr(config, "workerinput"):
        reason = machine.MISSING["postgres"]()
        if reason:
            pytest.exit(f"Not run on PostgreSQL: {reason}", returncode=1 if machine.STRICT else 0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is slow and would say the same on both databases is run in one of the two rounds."""
    others = [item for item in items if _is_of_the_other_round(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not _is_of_the_other_round(item)]


def _is_of_the_other_round(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("once")
    database = marker.kwargs["on"] if marker else rounds.only_round(item.path)
    return database is not None and machine.leaves_to_the_other_round(database)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        missing = machine.MISSING.get(marker.name)
        if missing is not None and (reason := missing()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _strictly((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strictly((yield))


def _strictly(report: Report) -> Report:
    """A skipped test has failed where nothing may be missing. Expected failures stay what they are."""
    if machine.STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped here (CATHERDER_TEST_STRICT). {reason}"
    return report


@pytest.fixture(autouse=True)
def no_attempts_counted() -> None:
    """Failed logins of other tests do not count, nor what they sent to the API."""
    cache.clear()
    limits.counter.cache_clear()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The address of an empty database, gone after the test. For tests with the mark `postgres`."""
    name = f"test_catherder_{uuid4().hex[:12]}"
    identifier = sql.Identifier(name)
    with psycopg.connect(machine.POSTGRES, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            yield urlsplit(machine.POSTGRES)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


@pytest.fixture
def redis_url() -> str:
    """The address of a Redis that others use too. For tests with the mark `redis`."""
    return machine.REDIS
