"""The CPU time of pages with 80 tasks, of which 30 work; alone: `python -m tests.bench.pages`.

The rows are those of `cat-herder demo`, several times, with more agents at work and a log for each run. One
process renders the pages, so that other work on the machine matters little. Subprocesses count, too.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.metrics import Metric, show
from tests.databases import copy_migrated
from tests.installation import Installation

if TYPE_CHECKING:
    from tasks_app.management.demo import DemoTask
    from tasks_app.models import Run

TASKS, WORKING = 80, 30
#: Calls with a text and a result in the log of each run.
CALLS = 40
#: Milliseconds.
WANTED = "200"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=30, help="how often each page is asked for (30)")
    show(measure(parser.parse_args().requests))


def measure(requests: int) -> list[Metric]:
    with tempfile.TemporaryDirectory() as folder:
        copy_migrated(Path(folder) / "data")
        portal = Installation(Path(folder) / "data")
        found = portal.rows(
            f"from tests.bench.pages import measure_here, seed\nseed()\nresult = measure_here({requests})"
        )
    return [Metric(f"CPU of a page with {TASKS} tasks: {name}", "ms", WANTED, found[name]) for name in found]


def seed() -> None:
    """Create the admin, and the tasks with their logs."""
    from tasks_app.management.demo import fill
    from tasks_app.models import Run, User

    fill(User.objects.create(username="ann", is_superuser=True, is_staff=True, password="!"), _tasks())
    for run in Run.objects.select_related("step__task"):
        _write_log(run)


def _tasks() -> list[DemoTask]:
    from tasks_app.core.phases import Phase
    from tasks_app.management.demo import TASKS as OF_DEMO

    running = [one for one in OF_DEMO if one.phase == Phase.RUNNING]
    others = [one for one in OF_DEMO if one.phase != Phase.RUNNING]
    chosen = [running[n % len(running)] for n in range(WORKING)]
    chosen += [others[n % len(others)] for n in range(TASKS - WORKING)]
    seen: Counter[str] = Counter()
    named: list[DemoTask] = []
    for one in chosen:
        seen[one.title] += 1
        named.append(replace(one, title=f"{one.title} {seen[one.title]}", minutes=one.minutes + len(named)))
    return named


def _write_log(run: Run) -> None:
    from tasks_app.history.events.blocks import NewEvent, append
    from tasks_app.models import Event, EventKind

    events = []
    for number in range(CALLS):
        call, path = f"call-{number}", f"shop/part_{number}.py"
        events += [
            NewEvent(EventKind.TEXT, {"text": f"I read `{path}` first, then its **tests**."}),
            NewEvent(EventKind.TOOL_USE, {"id": call, "name": "Read", "input": {"file_path": path}}),
            NewEvent(EventKind.TOOL_RESULT, {"tool_use_id": call, "text": "price = 1\n" * 12}),
        ]
    append(run, events, seq=Event.objects.filter(run=run).count() + 1)


def paths() -> dict[str, str]:
    from tasks_app.core.phases import Phase
    from tasks_app.models import Task

    phases = (Phase.RUNNING, Phase.WAITING_FOR_INPUT, Phase.FAILED, Phase.PENDING)
    task = {phase: Task.objects.filter(phase=phase).latest("pk").pk for phase in phases}
    result = Task.objects.filter(phase=Phase.DONE).exclude(head_commit="").latest("pk")
    return {
        "Tasks": "/tasks/",
        "working tasks": "/tasks/?group=working",
        "All": "/tasks/all/",
        "queue": "/tasks/queue/",
        "inbox": "/inbox/",
        "inbox, to review": "/inbox/?state=review",
        "projects": "/projects/",
        "a project": f"/projects/{result.project_id}/",
        "usage": "/usage/",
        "a working task": f"/tasks/{task[Phase.RUNNING]}/",
        "its log": f"/tasks/{task[Phase.RUNNING]}/log/",
        "a waiting task": f"/tasks/{task[Phase.WAITING_FOR_INPUT]}/",
        "a done task": f"/tasks/{result.pk}/",
        "its changes": f"/tasks/{result.pk}/diff/",
        "its details": f"/tasks/{result.pk}/details/",
        "a failed task": f"/tasks/{task[Phase.FAILED]}/",
        "a task that is not started": f"/tasks/{task[Phase.PENDING]}/",
        "new task": "/tasks/new/",
    }


def measure_here(requests: int) -> dict[str, list[float]]:
    """Return the milliseconds of each page by its name; the first view is not counted."""
    from django.test import Client

    from tasks_app.models import User

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(username="ann"))
    found = {}
    for name, path in paths().items():
        page = client.get(path)
        assert page.status_code == 200, (path, page.status_code)
        samples = []
        for _ in range(requests):
            before = _used()
            client.get(path)
            samples.append((_used() - before) * 1000)
        found[name] = samples
    return found


def _used() -> float:
    """Return the CPU seconds of this process and of the subprocesses that it waited for."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in times)


if __name__ == "__main__":
    main()
