"""A process that compresses events and is killed at any moment loses and doubles none (F)."""

from __future__ import annotations

import itertools
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.databases import copy_migrated, copy_migrated_to_postgres
from tests.installation import Installation

EVENTS = 3_000
KILLS = 8
MAKE = f"""
from datetime import timedelta
from django.utils import timezone
from tasks_app.history.events.blocks import NewEvent, append
from tests.factories import RunFactory
run = RunFactory.create()
said = (NewEvent(EventKind.TEXT, {{"text": f"line {{n}}."}}, raw={{"n": n}}) for n in range({EVENTS}))
append(run, list(said), seq=0)
Run.objects.update(ended_at=timezone.now() - timedelta(days=2), outcome="finished")
"""
COMPACT = """
from datetime import timedelta
from tasks_app.engine.logs.compaction import compact_runs
from tasks_app.history.events import blocks
blocks.MOST_EVENTS = 20
while compact_runs(older_than=timedelta(days=1)):
    pass
"""
SEEN = """
from django.db.models import Q
from tasks_app.history.events.reading import Events
found = [(event.seq, event.payload["text"], event.raw["n"]) for event in Events(Q(), raw=True).all()]
result = [found == [(n, f"line {n}.", n) for n in range(len(found))], len(found), EventBlock.objects.count(),
          sum(sum(kinds.values()) for kinds in EventBlock.objects.values_list("kinds", flat=True)),
          Event.objects.count()]
"""


@pytest.fixture(params=["sqlite", "postgres"])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    if request.param == "sqlite":
        copy_migrated(tmp_path / "data")
        return Installation(tmp_path / "data")
    url = request.getfixturevalue("postgres_url")
    copy_migrated_to_postgres(url)
    return Installation(tmp_path / "data", DATABASE_URL=url)


@pytest.mark.once(on="sqlite")
@pytest.mark.postgres
def test_killed_again_and_again_it_loses_and_doubles_nothing(installation: Installation) -> None:
    installation.rows(MAKE)
    chance = random.Random(7)  # noqa: S311 - the same pauses each time
    seen: list[Any] = []
    for kill in itertools.count():
        process = compact(installation)
        if kill < KILLS:
            before = blocks(installation)
            while process.poll() is None and blocks(installation) == before:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.02))
            os.kill(process.pid, 9)
        process.wait()
        is_whole, count, made, compacted, rows = installation.rows(SEEN)
        assert is_whole and count == EVENTS and compacted + rows == EVENTS
        seen.append(made)
        if kill >= KILLS:
            break
    assert seen == sorted(seen) and 0 < seen[0] < seen[-1] == EVENTS // 20, seen


def blocks(installation: Installation) -> int:
    return int(installation.row("SELECT count(*) FROM tasks_app_eventblock")[0])


def compact(installation: Installation) -> forkserver.Forked:
    with Path(os.devnull).open("r+b") as nothing:
        streams = (nothing.fileno(),) * 3
        code = f"from tasks_app.models import *\n{COMPACT}"
        return forkserver.start(forkserver.with_django(code), installation.env(), streams=streams)
