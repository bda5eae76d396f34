"""The queue of jobs may lie in a Redis that others can write to; what they put there is not run (R4)."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any

import pytest
from django.conf import settings
from django.core.signing import Signer, b64_encode

from catherder_site.queue import JobSerializer
from tasks_app.tasks import look_at

SECRET = "the key of the queue"


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("what lay in the queue was run",))


@pytest.mark.parametrize("signature", [b"", b":", b":" + b"0" * 40])
def test_a_job_that_the_portal_did_not_sign_is_refused(signature: bytes) -> None:
    with pytest.raises(ValueError):
        settings.HUEY.deserialize_task(pickle.dumps(Bomb()) + signature)


def test_a_job_that_was_changed_is_refused_and_its_own_is_not() -> None:
    job = settings.HUEY.serialize_task(look_at.s(7))
    assert settings.HUEY.deserialize_task(job).args == (7,)
    with pytest.raises(ValueError):
        settings.HUEY.deserialize_task(b"A" + job[1:])


@pytest.mark.parametrize(
    "message",
    [
        pickle.dumps(Bomb()), b"", b"7", b"{}", b"[]", b"\xff", b"[" * 90_000, b'["job", "name", "7", null]',
        b'["job", "name", 7, 7]', b'["job", "name", 7, "soon"]', b'["job", "name", true, null]',
        b'["job", "name", 7, null, "more"]',
    ],
    ids=lambda message: message[:30],
)  # fmt: skip
def test_the_key_of_the_queue_does_not_run_code(message: bytes) -> None:
    """Worker hosts have it, also one that was broken into: it can name a task to look at, and no more."""
    signed = Signer(key=SECRET, salt="cat-herder-queue").sign(b64_encode(message).decode()).encode()
    with pytest.raises(ValueError):
        JobSerializer(secret=SECRET).deserialize(signed)


def test_a_job_for_later_is_read_as_it_was_written() -> None:
    job = look_at.s(7, eta=datetime(2026, 5, 4, 3, 2, 1, 5))
    read = settings.HUEY.deserialize_task(settings.HUEY.serialize_task(job))
    assert (read.id, read.name, read.args, read.eta) == (job.id, job.name, job.args, job.eta)
    assert (read.retries, read.retry_delay, read.kwargs) == (0, 0, {})
