"""The queue of jobs may lie in a Redis that others can write to; what they put there is not run (R4)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from django.conf import settings

from tasks_app.tasks import look_at


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
        settings.HUEY.deserialize_task(job.replace(b"look_at", b"look_up"))
