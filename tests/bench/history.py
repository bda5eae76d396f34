"""How long pages take with 100,000 tasks, and how large they are; alone: `python -m tests.bench.history`.

Rows are made in the tables at once: 100,000 tasks in 20 projects, two steps with a run each, a question in
every fifth. Then the page is asked for over HTTP, by several addresses. `--database` asks for those of a
database in PostgreSQL that `tests.bench.filling` has filled, and for the pages that people look at all day.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.floors.plain_database import PlainDatabase
from tests.bench.floors.statements import statements_of
from tests.bench.metrics import Metric, show
from tests.bench.storing import client_of
from tests.integration.redis_server import redis_server
from tests.portal import UpPortal

if TYPE_CHECKING:
    from tasks_app.models import Project, Question, Run, Step, Task, User

BATCH = 2_000

ADDRESSES = {
    "the newest": "/tasks/all/",
    "the oldest": "/tasks/all/?sort=oldest",
    "far down": "/tasks/all/?after=20000",
    "a rare word": "/tasks/all/?q=quokka",
    "a word in every task": "/tasks/all/?q=totals",
    "two words, the last begun": "/tasks/all/?q=receipts+ro",
    "failed or cancelled": "/tasks/all/?phase=failed&phase=cancelled",
    "one project": "/tasks/all/?project=project-7",
    "a project, a phase and a word": "/tasks/all/?project=project-7&phase=done&q=cashier",
    "a person": "/tasks/all/?person=person-3",
    "a model": "/tasks/all/?model=model-b",
    "with questions": "/tasks/all/?questions=yes",
    "30 days": "/tasks/all/?from={month}",
    "nothing matches": "/tasks/all/?q=zyzzyva&pipeline=none",
    "questions": "/tasks/all/?kind=questions",
    "questions with a word": "/tasks/all/?kind=questions&q=rounded",
    "usage, 30 days": "/usage/",
    "usage, a year": "/usage/?period=365",
}
#: Milliseconds.
WANTED = {"tasks now": "30", "the newest": "30", "usage, a year": "100"}
#: Also of a filled database.
ALL_DAY = {
    "tasks now": "/tasks/",
    "inbox": "/inbox/",
    "answered questions": "/inbox/?state=answered",
    "working tasks": "/tasks/?group=working",
    "queue": "/tasks/queue/",
}
WORDS = [
    *("round", "the", "totals", "on", "receipts", "like", "cashier", "does", "make", "test", "fail", "today"),
    *(
        "pass",
        "others",
        "stay",
        "as",
        "they",
        "are",
        "price",
        "table",
        "shop",
        "rate",
        "limit",
        "reset",
        "queue",
    ),
    *("worker", "lease", "branch", "commit", "review", "plan", "step", "agent", "answer", "column", "file"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, help="how many tasks there are (100,000)")
    parser.add_argument("--requests", type=int, default=30, help="how often each page is asked for (30)")
    parser.add_argument("--database", help="the URL of a PostgreSQL database that was filled")
    chosen = parser.parse_args()
    if chosen.database:
        show(measure_filled(chosen.database, chosen.requests))
    else:
        show(measure(chosen.tasks, chosen.requests))


def measure(tasks: int, requests: int) -> list[Metric]:
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data").start()
        try:
            month = portal.rows(f"from tests.bench.history import seed; result = seed({tasks})")
            addresses = {"tasks now": "/tasks/"} | ADDRESSES
            return list(_asked_for(portal, addresses, month, requests, f"of {tasks:,} tasks"))
        finally:
            portal.stop()


def measure_filled(database: str, requests: int) -> list[Metric]:
    with tempfile.TemporaryDirectory() as folder, redis_server() as redis:
        portal = UpPortal(Path(folder) / "data", DATABASE_URL=database, REDIS_URL=redis.url).start()
        try:
            tasks = portal.rows("result = Task.objects.count()")
            month = portal.rows("from tests.bench.history import month_ago; result = month_ago()")
            addresses = ALL_DAY | _of_one_task(portal) | ADDRESSES
            return list(_asked_for(portal, addresses, month, requests, f"of {tasks:,} tasks"))
        finally:
            portal.stop()


def _of_one_task(portal: UpPortal) -> dict[str, str]:
    task = portal.rows("result = Task.objects.filter(phase='done').latest('pk').pk")
    return {"a task": f"/tasks/{task}/", "its log": f"/tasks/{task}/log/"}


def _asked_for(
    portal: UpPortal, addresses: dict[str, str], month: str, requests: int, of: str
) -> Iterator[Metric]:
    client = client_of(portal)
    paths = {name: address.format(month=month) for name, address in addresses.items()}
    statements = statements_of(portal, "admin", list(paths.values()))
    with closing(PlainDatabase(portal.database_url)) as database:
        database.add_functions()
        for name, path in paths.items():
            metric = Metric(name, "ms", WANTED.get(name, ""))
            floor = Metric(f"  floor: its {len(statements[path])} statements, rows fetched", "ms")
            metric.floor = [floor]
            size = len(client.get(path))
            database.read(statements[path])
            for _ in range(requests):
                metric.samples.append(client.timed(path))
                floor.samples.append(_read(database, statements[path]))
            metric.name = f"page {of}: {name}, {size / 1000:,.0f} kB"
            yield from (metric, floor)


def _read(database: PlainDatabase, statements: list[str]) -> float:
    began = time.perf_counter()
    database.read(statements)
    return (time.perf_counter() - began) * 1000


def seed(count: int, *, questions: bool = True) -> str:
    """Make the rows and the sums of their days; return the day a month before the newest of them.

    With `questions` every fifth task has one.
    """
    from django.utils import timezone

    from tasks_app.models import Project, User
    from tasks_app.services.usage.day_sums import add_up_days

    User.objects.bulk_create([User(username=f"person-{n}", password="!") for n in range(20)])
    Project.objects.bulk_create(
        [Project(name=f"project-{n}", source="/nowhere", branch="main") for n in range(20)]
    )
    now, rows = timezone.now(), making()
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        times = [(number, now - timedelta(days=400) * (1 - number / count)) for number in numbers]
        with given_times():
            rows.tasks(times, questions=questions)
    while add_up_days():
        pass
    return month_ago()


@contextmanager
def given_times() -> Iterator[None]:
    """Store the times that rows are made with, instead of the time at which they are made."""
    from django.db.models import DateTimeField

    from tasks_app.models import Run, Task, Transition

    names = ((Task, "created_at"), (Run, "started_at"), (Transition, "at"))
    fields = [model._meta.get_field(name) for model, name in names]
    own = [field for field in fields if isinstance(field, DateTimeField) and field.auto_now_add]
    for field in own:
        field.auto_now_add = False
    try:
        yield
    finally:
        for field in own:
            field.auto_now_add = True


def month_ago() -> str:
    return f"{datetime.now(UTC) - timedelta(days=30):%Y-%m-%d}"


def making() -> Making:
    from tasks_app.models import Project, User

    return Making(
        random.Random(4),  # noqa: S311 - the same rows each time
        list(User.objects.filter(username__startswith="person-")),
        list(Project.objects.filter(name__startswith="project-")),
    )


@dataclass
class Making:
    """Rows as a year of work would leave them."""

    chance: random.Random
    users: list[User]
    projects: list[Project]

    def tasks(self, numbered: list[tuple[int, datetime]], *, questions: bool) -> None:
        from tasks_app.models import Question, Run, Step, Task

        tasks = Task.objects.bulk_create([self._task(number, at) for number, at in numbered])
        steps = Step.objects.bulk_create(
            [
                Step(task=task, position=position, name=name, config={}, phase="done")
                for task in tasks
                for position, name in ((1, "plan"), (2, "implement"))
            ]
        )
        runs = Run.objects.bulk_create([self._run(step) for step in steps])
        if questions:
            Question.objects.bulk_create([self.question(run) for run in runs[::10]])

    def words(self, count: int) -> str:
        return " ".join(self.chance.choices(WORDS, k=count))

    def _task(self, number: int, at: datetime) -> Task:
        from tasks_app.models import Task

        rare = " quokka" if number % 1000 == 7 else ""
        body = f"# {self.words(4)}\n\nTotals.{rare} {self.words(self.chance.randint(20, 200))}\n"
        took = timedelta(seconds=self.chance.randint(60, 9000))
        return Task(
            project=self.chance.choice(self.projects),
            slug=f"task-{number}",
            title=self.words(5).capitalize(),
            text=body,
            body=body,
            pipeline=self.chance.choice(("feature", "quick", "docs")),
            created_at=at,
            branch=f"cat-herder/task-{number}",
            created_by=self.chance.choice(self.users),
            started_at=at,
            phase=self.chance.choices(("done", "failed", "cancelled"), (90, 7, 3))[0],
            ended_at=at + took,
            paused_seconds=took.total_seconds() * self.chance.random(),
        )

    def _run(self, step: Step) -> Run:
        from tasks_app.models import Run

        at = step.task.started_at
        assert at is not None
        return Run(
            step=step,
            number=1,
            reason="first",
            outcome="finished",
            session_id=uuid.uuid4(),
            started_at=at,
            ended_at=at + timedelta(seconds=self.chance.randint(20, 3000)),
            prompt=self.words(150),
            model=self.chance.choice(("model-a", "model-a", "model-b")),
            input_tokens=self.chance.randint(50, 9000),
            output_tokens=self.chance.randint(50, 20_000),
            cache_read_tokens=self.chance.randint(0, 900_000),
            cost_usd=self.chance.random() * 2,
        )

    def question(self, run: Run, number: int = 1) -> Question:
        from tasks_app.models import Question

        asked = f"How should {self.words(5)} be rounded?"
        return Question(
            task=run.step.task,
            step=run.step,
            run=run,
            number=number,
            way="AskUserQuestion",
            tool_use_id=f"toolu_{number}",
            items=[{"question": asked, "header": "Rounding", "multiSelect": False, "options": []}],
            asked_at=run.started_at,
            state="answered",
            answers={asked: f"Half {self.words(6)}"},
            answered_at=run.started_at + timedelta(seconds=self.chance.randint(30, 90_000)),
            answered_by=self.chance.choice(self.users),
            answered_via="web",
        )


if __name__ == "__main__":
    main()
