"""What the log leaves out: the same line from every thread while Redis is away."""

from __future__ import annotations

import logging

import pytest
from redis.exceptions import ConnectionError as RedisAway

from catherder_site.logs import SeldomWithoutRedis


def record_of(fault: Exception) -> logging.LogRecord:
    return logging.LogRecord(
        "huey", logging.ERROR, __file__, 1, "Error reading from queue", (), (type(fault), fault, None)
    )


def test_redis_that_is_away_is_told_once_in_a_while_and_without_a_traceback() -> None:
    seldom = SeldomWithoutRedis(seconds=60)
    first, second = record_of(RedisAway("Connection refused.")), record_of(RedisAway("Connection refused."))
    assert seldom.filter(first) and not seldom.filter(second)
    assert first.getMessage() == "Error reading from queue: Connection refused." and not first.exc_info


def test_it_is_told_again_after_a_while() -> None:
    seldom = SeldomWithoutRedis(seconds=0)
    assert seldom.filter(record_of(RedisAway("gone"))) and seldom.filter(record_of(RedisAway("gone")))


def test_every_other_fault_keeps_its_traceback() -> None:
    seldom = SeldomWithoutRedis(seconds=60)
    for _ in range(2):
        record = record_of(KeyError("task"))
        assert seldom.filter(record) and record.exc_info


@pytest.mark.parametrize(
    "name",
    ["huey.consumer.Worker", "huey.consumer.Scheduler", "channels_redis.pubsub", "tasks_app.engine.sweeper"],
)
def test_who_reads_from_redis_without_pause_has_the_filter(name: str) -> None:
    assert any(isinstance(one, SeldomWithoutRedis) for one in logging.getLogger(name).filters)
