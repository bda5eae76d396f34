"""What the log leaves out: the same line from every thread while Redis or the database is away."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, ProgrammingError
from redis.exceptions import ConnectionError as RedisAway

from catherder_site.logs import SeldomWithoutServices


def record_of(fault: Exception) -> logging.LogRecord:
    return logging.LogRecord(
        "huey", logging.ERROR, __file__, 1, "Error reading from queue", (), (type(fault), fault, None)
    )


@pytest.mark.parametrize("fault", [RedisAway("not here"), sqlite3.OperationalError("not here")])
def test_a_queue_that_is_away_is_logged_now_and_then_without_a_traceback(fault: Exception) -> None:
    seldom = SeldomWithoutServices(seconds=60)
    first, second = record_of(fault), record_of(fault)
    assert seldom.filter(first) and not seldom.filter(second)
    assert first.getMessage() == "Error reading from queue: not here" and not first.exc_info


def test_it_is_logged_again_after_a_while() -> None:
    seldom = SeldomWithoutServices(seconds=0)
    assert seldom.filter(record_of(RedisAway("gone"))) and seldom.filter(record_of(RedisAway("gone")))


def test_every_other_fault_keeps_its_traceback() -> None:
    seldom = SeldomWithoutServices(seconds=60)
    for _ in range(2):
        record = record_of(KeyError("task"))
        assert seldom.filter(record) and record.exc_info


def test_a_database_that_is_away_has_no_traceback_and_a_wrong_statement_has_one() -> None:
    seldom = SeldomWithoutServices(seconds=60)
    away, wrong = (
        record_of(OperationalError("connection refused")),
        record_of(ProgrammingError("no column x")),
    )
    assert seldom.filter(away) and not away.exc_info and "connection refused" in away.getMessage()
    assert seldom.filter(wrong) and wrong.exc_info


def test_all_that_is_logged_goes_through_the_filter() -> None:
    """Also what libraries log, which read from Redis without a pause."""
    logging_settings: dict[str, Any] = settings.LOGGING
    console = logging_settings["handlers"]["console"]
    assert logging_settings["root"]["handlers"] == ["console"]
    assert console["filters"] == ["seldom_without_services"]
    assert not any("handlers" in logger for logger in logging_settings["loggers"].values())
