"""What tasks leave behind: rows, events before and after compaction, repositories, homes and workspaces.

`python -m tests.bench.growth --tasks 30` works on the sample task with the real Claude Code and the scripted
Messages API: a plan, a question, an answer, an implementation with tool calls. With `--fake` the fake agent
writes one file for each task, which takes a tenth of the time. With `--postgres` the rows are in PostgreSQL.
Folders are measured as they are on the disk, in blocks. What 10,000 tasks take is the figure for one times
10,000, so it stands on the assumption that each is like these.

`--database URL` compacts the rows of a database that `tests.bench.filling` has filled, all of them, and says
what that did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.services import own_services
from tests.forkserver import REPOSITORY
from tests.installation import PLAIN_CONFIG
from tests.integration.git_repository import GitRepository
from tests.portal import UpPortal, WebServer
from tests.processes import start_process

if TYPE_CHECKING:
    from django.db.models import Model

#: Tasks that are started at once.
ROUND = 20
PATIENCE = 900.0
PROJECT = """
from tasks_app.services.projects.projects import add_project
user = User.objects.create(username="ann", is_superuser=True, password="!")
add_project("bench", {source!r}, by=user)
"""
START = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
ann = Principal.unrestricted(User.objects.filter(is_superuser=True).first())
project = Project.objects.get(name={project!r})
tasks = [create_task(project, {text!r}, by=ann, where="bench") for _ in range({count})]
for task in tasks:
    start_task(task, by=ann)
result = len(tasks)
"""
ANSWER = """
from tasks_app.permissions import Principal
from tasks_app.services.questions.answers import Reply, answer_question
ann = Principal.unrestricted(User.objects.filter(is_superuser=True).first())
for question in Question.objects.open():
    answer_question(question, Reply.to(question, "Spread them"), by=ann, via=Channel.WEB)
result = [Task.objects.filter(phase=phase).count() for phase in ("done", "failed")]
"""
SAMPLE_TEXT = (
    REPOSITORY / "tasks_app/rehearsal/sample/repository/tasks/split-to-the-last-cent.md"
).read_text()
FAKE_TEXT = "# Write notes\n\nbench: 0.1\n"
_OTHERS_LOOK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
"""
_WORKER = ("-m", "tests.bench.worker_with_fake_agent", "worker")


@dataclass(frozen=True)
class Events:
    """The tables of events and of blocks: rows, events in them, and bytes with indexes and long values."""

    rows: int
    blocks: int
    events: int
    size: int
    content: int

    @property
    def per_thousand(self) -> float:
        return self.size / self.events * 1_000 if self.events else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30, help="how many tasks are worked on (30)")
    parser.add_argument("--fake", action="store_true", help="by the fake agent")
    parser.add_argument("--postgres", action="store_true", help="rows in PostgreSQL")
    parser.add_argument("--database", help="the URL of a PostgreSQL database that was filled")
    chosen = parser.parse_args()
    if chosen.database:
        os.environ["DATABASE_URL"] = chosen.database
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
        import django

        django.setup()
        for line in compacted():
            print(line, flush=True)
        return
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        services = cleanup.enter_context(own_services()) if chosen.postgres else {}
        start = _fake_portal if chosen.fake else _rehearsing_portal
        running = cleanup.enter_context(start(folder, services))
        for line in _measure(running, chosen.tasks):
            print(line, flush=True)


@dataclass(frozen=True)
class Running:
    """A portal that works on tasks of a project with this text, until `stop` is called."""

    portal: UpPortal | WebServer
    project: str
    text: str
    stop: Callable[[], None]


@contextmanager
def _rehearsing_portal(folder: Path, services: dict[str, str]) -> Iterator[Running]:
    portal = UpPortal(folder / "data", CATHERDER_UNDO_SECONDS="0", **services).start()
    try:
        yield Running(portal, "sample", SAMPLE_TEXT, portal.stop)
    finally:
        portal.stop()


@contextmanager
def _fake_portal(folder: Path, services: dict[str, str]) -> Iterator[Running]:
    portal = WebServer(folder / "data", **services)
    GitRepository.make(folder / "source", **{"cat-herder.yaml": PLAIN_CONFIG})
    portal.python("from tasks_app.models import *\n" + PROJECT.format(source=str(folder / "source")))
    with (folder / "worker.log").open("w") as log:
        worker = start_process(
            [sys.executable, *_WORKER], cwd=REPOSITORY, env=portal.env(), stdout=log, stderr=log
        )

        def stop() -> None:
            worker.terminate()
            worker.wait(PATIENCE)

        try:
            yield Running(portal, "bench", FAKE_TEXT, stop)
        finally:
            stop()


def _measure(running: Running, tasks: int) -> Iterator[str]:
    portal = running.portal
    sizes = "from tests.bench.growth import row_sizes; result = row_sizes()"
    events = "from tests.bench.growth import events_now; result = vars(events_now())"
    rows_before, disk_before = portal.rows(sizes), _folders(portal.data_dir)
    started = 0
    while started < tasks:
        count = min(ROUND, tasks - started)
        # Only so many tasks may have the same title; the scripted model knows the sample by its title.
        unlike = running.text.replace("# Write notes", f"# Write notes, part {started // ROUND + 1}")
        started += int(portal.rows(START.format(project=running.project, text=unlike, count=count)))
        _until_done(portal, started)
    running.stop()
    yield f"{tasks} tasks are done"
    rows, disk = portal.rows(sizes), _folders(portal.data_dir)
    yield from _growth("database", rows_before, rows, tasks)
    yield from _growth("on the disk", disk_before, disk, tasks)
    before = Events(**portal.rows(events))
    yield _line("before compaction", before)
    portal.rows("from tests.bench.growth import compact_everything; compact_everything()")
    after = Events(**portal.rows(events))
    yield _line("after compaction", after)
    yield f"{before.per_thousand / after.per_thousand:.1f} times smaller"
    yield from _growth("database, compacted", rows_before, portal.rows(sizes), tasks)


def _until_done(portal: UpPortal | WebServer, wanted: int) -> None:
    patience = time.monotonic() + PATIENCE
    while (now := portal.rows(ANSWER))[0] < wanted:
        assert not now[1] and time.monotonic() < patience, f"{now} of {wanted} tasks are done or failed"
        time.sleep(1)


def _growth(what: str, before: dict[str, int], after: dict[str, int], tasks: int) -> Iterator[str]:
    for name, size in sorted(after.items(), key=lambda item: -item[1]):
        each = (size - before.get(name, 0)) / tasks
        if abs(each) >= 1:
            yield f"{what}: {name}: {each / 1e3:,.1f} kB for each task, {each / 1e5:,.2f} GB for 10,000"


def _line(when: str, found: Events) -> str:
    return (
        f"{when}: {found.events:,} events in {found.rows:,} rows and {found.blocks:,} blocks: {found.size:,} "
        f"bytes with indexes, {found.per_thousand:,.0f} for 1,000 events ({found.content:,} of content)"
    )


def _folders(data_dir: Path) -> dict[str, int]:
    """Return the bytes on the disk of repositories, and of homes and workspaces of all tasks."""
    places = {"repositories": ["repositories"], "whole data directory": ["."]}
    for name in ("workspace", "home", "check-home"):
        places[f"{name}s"] = [str(path.relative_to(data_dir)) for path in data_dir.glob(f"tasks/*/{name}")]
    return {name: sum(_on_disk(data_dir / path) for path in paths) for name, paths in places.items()}


def _on_disk(folder: Path) -> int:
    done = subprocess.run(["du", "-s", "-B1", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def row_sizes() -> dict[str, int]:
    """Return the used bytes of each table that grows, with indexes and long values."""
    from tasks_app.models import EventBlock, SessionEntry
    from tests.bench.sizes import measured_models, size_of, whole_size

    _settle()
    models: list[type[Model]] = [*measured_models(), EventBlock, SessionEntry]
    return {str(one._meta.verbose_name_plural): size_of(one).whole for one in models} | {
        "whole": whole_size()
    }


def events_now() -> Events:
    from django.db.models import Sum
    from django.db.models.functions import Length

    from tasks_app.models import Event, EventBlock
    from tests.bench.sizes import size_of

    _settle()
    rows, blocks = Event.objects.count(), EventBlock.objects.count()
    inside = sum(sum(kinds.values()) for kinds in EventBlock.objects.values_list("kinds", flat=True))
    content: int = EventBlock.objects.aggregate(size=Sum(Length("content")))["size"] or 0
    size = size_of(Event).whole + size_of(EventBlock).whole
    return Events(rows, blocks, rows + inside, size, content)


def _settle() -> None:
    """Give back what deleted rows took, so that only what is used is measured.

    PostgreSQL keeps deleted rows that a transaction of another process may see, for example autovacuum's.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.execute("VACUUM")
            return
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience:
            cursor.execute(_OTHERS_LOOK)
            if not cursor.fetchone()[0]:
                break
            time.sleep(0.5)
        cursor.execute("VACUUM FULL")


def compact_everything() -> int:
    """Compact all ended runs, as if they had ended long ago; return the transactions that it took."""
    from django.db.models import F

    from tasks_app.engine.logs.compaction import compact_runs
    from tasks_app.models import Run

    Run.objects.exclude(ended_at=None).update(ended_at=F("ended_at") - timedelta(days=2))
    taken = 0
    while done := compact_runs(older_than=timedelta(days=1), at_once=500):
        taken += done
    return taken


def compacted() -> Iterator[str]:
    from tests.bench.sizes import whole_size

    before: Any = events_now()
    yield _line("before compaction", before)
    yield f"The database has {whole_size() / 1e9:.2f} GB."
    began = time.monotonic()
    used = time.process_time()
    taken = compact_everything()
    took, used = time.monotonic() - began, time.process_time() - used
    yield f"{taken:,} transactions in {took:,.0f} s ({used:,.0f} s of CPU time of this process)"
    after = events_now()
    yield _line("after compaction", after)
    yield f"{before.per_thousand / after.per_thousand:.1f} times smaller"
    yield f"The database has {whole_size() / 1e9:.2f} GB."


if __name__ == "__main__":
    main()
