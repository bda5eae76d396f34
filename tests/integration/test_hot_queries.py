"""What is asked all day reads few rows of a large database (F): pages, live updates, what workers look for.

PostgreSQL says what a statement really read, by EXPLAIN ANALYZE. The bound is far above what a page shows and
far below what the tables hold: a statement that reads a table, or all done tasks, exceeds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tasks_app.engine.logs.compaction import compact_runs
from tasks_app.engine.logs.removal import remove_some_logs
from tasks_app.engine.runs.decisions import note_followed
from tasks_app.engine.sweeper import sweep
from tasks_app.models import Channel, Event, IndexedAnswer, Project, Question, Role, Step, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.decisions.citing import related_decisions_of_each
from tasks_app.services.decisions.content import decisions_for
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.questions.earlier_answers import find_similar_answers
from tasks_app.services.usage.cost_limits import budgets_of_task, end_waits_for_budgets, with_limits
from tasks_app.services.usage.day_sums import add_up_days
from tasks_app.services.usage.metrics import exposition
from tasks_app.services.workers.queue import LINE
from tasks_app.web.live.consumers import look_up_visibility
from tasks_app.web.live.updates import missed_changes, newest_change_id
from tests import machine
from tests.api import Script
from tests.bench.filling import Amounts, fill
from tests.browser import signed_in
from tests.databases import undone
from tests.factories import MembershipFactory, RunFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db

AMOUNTS = Amounts(tasks=20_000, questions=60_000, events=40_000, first=200)
#: Rows that one statement may read: the list of tasks counts eight groups up to 1,000 by one.
MOST_READ = 8_000
#: The task whose agent has written more than that.
WORKING = "At work since the morning"
PAGES = {
    "tasks now": "/tasks/",
    "done tasks": "/tasks/?group=finished",
    "inbox": "/inbox/",
    "answered questions": "/inbox/?state=answered",
    "tasks to review": "/tasks/?group=review",
    "all tasks": "/tasks/all/",
    "working tasks": "/tasks/?group=working",
    "queue": "/tasks/queue/",
    "task": "/tasks/{task}/",
    "log": "/tasks/{task}/log/",
    "new task": "/tasks/new/",
    "question": "/questions/{question}/",
    "decisions": "/projects/{project}/decisions/",
    "decisions with a word": "/projects/{project}/decisions/?state=all&q=cashier",
    "decision": "/projects/{project}/decisions/7/",
    "decisions to review": "/projects/{project}/decisions/?state=review",
    "projects": "/projects/",
    "a project": "/projects/{project}/",
    "a task at work": "/tasks/{working}/",
    "the log of a task at work": "/tasks/{working}/log/",
    "what a task at work does": "/tasks/{working}/activity/",
    "usage": "/usage/",
    "usage of a year": "/usage/?period=365",
    "usage of a year by person": "/usage/?period=365&by=person",
    "usage of a project": "/usage/?period=365&project=project-0",
}
LISTS = (
    *("/tasks", "/tasks?phase=done&limit=20", "/questions", "/questions?state=answered", "/projects"),
    *("/queue", "/usage", "/sequences", "/me/notices"),
)

if machine.ON_POSTGRES:  # SQLite does not say what it read

    def test_what_is_asked_all_day_reads_few_rows(subtests: pytest.Subtests) -> None:
        list(fill(AMOUNTS))
        assert (Task.objects.count(), Event.objects.count()) == (AMOUNTS.tasks, AMOUNTS.events)
        assert IndexedAnswer.objects.count() == AMOUNTS.questions
        let_tasks_wait(600)
        let_an_agent_write()
        add_up_days(at_once=1_000)
        admin, member = UserFactory.create(is_superuser=True), UserFactory.create()
        for project in Project.objects.filter(name__startswith="project-")[:10]:
            MembershipFactory.create(user=member, project=project, role=Role.MEMBER)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        looks = dict(looks_of_workers())
        for user in (admin, member):
            looks |= looks_of_people(user, "a site admin" if user == admin else "a member of ten projects")
        for name, look in looks.items():
            with subtests.test(name):
                statements = asked_by(look)
                assert statements, "nothing was asked"
                costly = [plan for one in statements if (plan := Plan.of(*one)).read > MOST_READ]
                assert not costly
        (whole_table,) = asked_by(lambda: list(Question.objects.filter(notes="none are like this")))
        assert Plan.of(*whole_table).read > MOST_READ, "what reads too much is found"


def looks_of_people(user: User, who: str) -> dict[str, Callable[[], object]]:
    browser = signed_in(user)
    task = Task.objects.filter(phase="done", project__name="project-0").latest("pk")
    asked = Question.objects.open().filter(task__project=task.project_id).latest("pk")
    working = Task.objects.get(phase="running", title=WORKING)
    ids = {"task": task.pk, "question": asked.pk, "project": task.project_id, "working": working.pk}
    looks: dict[str, Callable[[], object]] = {
        f"{name}, {who}": page_of(browser, path.format(**ids)) for name, path in PAGES.items()
    }
    script = Script(user)
    looks |= {f"GET {path}, {who}": answer_of(script, path) for path in LISTS}
    looks[f"a waiting task, {who}"] = look_at_the_queue_of(browser)
    looks[f"a live socket, {who}"] = lambda: look_up_visibility([str(browser.session.session_key)])
    return looks


def page_of(browser: Client, path: str) -> Callable[[], object]:
    def look() -> None:
        assert browser.get(path).status_code == 200, path

    return look


def answer_of(script: Script, path: str) -> Callable[[], object]:
    def look() -> None:
        LINE.forget()
        assert script.get(path).status_code == 200, path

    return look


def look_at_the_queue_of(browser: Client) -> Callable[[], object]:
    task = Task.objects.due().filter(project__name="project-0", phase="pending").latest("pk")

    def look() -> None:
        LINE.forget()
        assert " in line: " in browser.get(f"/tasks/{task.pk}/").text

    return look


def let_an_agent_write() -> None:
    """Let a task of a project that everybody sees run, with more events than a statement may read."""
    now, project = timezone.now(), Project.objects.get(name="project-0")
    task = TaskFactory.create(project=project, title=WORKING, phase="running", started_at=now)
    run = RunFactory.create(task=task)
    events = (
        Event(run=run, seq=seq, kind="text", at=now, payload={"text": "I go on."}) for seq in range(9_000)
    )
    Event.objects.bulk_create(events, batch_size=1_000)


def let_tasks_wait(count: int) -> None:
    """Let so many done tasks wait for a worker, a few of them for a budget."""
    newest = Task.objects.filter(phase="done").order_by("-pk").values_list("pk", flat=True)
    waiting = list(newest[:count])
    Task.objects.filter(pk__in=waiting).update(phase="pending", queued_at=timezone.now(), ended_at=None)
    config = {"name": "implement", "command": "implement-task"}
    Step.objects.filter(task__in=waiting).update(config=config)
    Project.objects.filter(name__startswith="project-").update(overrides={"monthly_budget_usd": 0.01})
    User.objects.filter(username__startswith="person-").update(monthly_budget_usd=0.01)
    Task.objects.filter(pk__in=list(newest[:20])).update(
        phase="waiting_for_reset", waits_for_budget=True, resets_at=timezone.now() + timedelta(days=9)
    )


def looks_of_workers() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "the sweeper", lambda: sweep(lambda _task: None, pending=lambda: 0)
    yield "the newest change", newest_change_id
    yield "missed changes", lambda: missed_changes(0)
    yield "the metrics", exposition
    asked = Question.objects.open().select_related("task__project", "step").latest("pk")
    yield "the budgets of a running agent", lambda: budgets_of_task(with_limits(asked.task_id))
    yield "waits for budgets", end_waits_for_budgets
    yield "adding up days", add_up_days
    yield "compacting a run", lambda: compact_runs(older_than=timedelta(days=1), at_once=1)
    yield "removing an old log", lambda: remove_some_logs(older_than=timedelta(days=1))
    yield "earlier answers", lambda: find_similar_answers(asked)
    yield "decisions that questions concern", lambda: related_decisions_of_each([asked])
    yield "decisions of a prompt", lambda: decisions_for(asked.step)
    yield "an agent that followed decisions", lambda: note_followed(asked.run, "Decisions followed: D-7, D-8")
    yield (
        "an answer",
        lambda: answer_question(
            asked,
            Reply({str(item["question"]): "Yes" for item in asked.items}),
            by=Principal.unrestricted(User.objects.get(is_superuser=True)),
            via=Channel.WEB,
        ),
    )


def asked_by(look: Callable[[], object]) -> list[tuple[str, Any]]:
    """Return the statements that `look` executes, with their parameters. What it changes is undone."""
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        if statement.lstrip("( ").upper().startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            asked.append((statement, tuple(params or ())))
        return execute(statement, params, many, context)

    with undone(), connection.execute_wrapper(note):
        look()
    return asked


@dataclass(frozen=True)
class Plan:
    """What PostgreSQL did for a statement: how many rows it read, and from where."""

    statement: str
    reads: Counter[str]

    @classmethod
    def of(cls, statement: str, params: Any) -> Plan:
        with undone(), connection.cursor() as cursor:
            # Else the planner reads these small tables whole to join a day's runs, but never large ones.
            cursor.execute("SET LOCAL random_page_cost = 1.1")
            cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", params)
            ((plan,),) = cursor.fetchone()
        reads: Counter[str] = Counter()
        for place, rows in _reads(plan["Plan"]):
            reads[place] += rows
        return cls(statement, reads)

    @property
    def read(self) -> int:
        return self.reads.total()


def _reads(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for one in node.get("Plans", []):
        yield from _reads(one)
    if "Relation Name" in node:
        removed = sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck"))
        name = (
            f"{node['Node Type']} of {node['Relation Name']} {node.get('Alias')} {node.get('Index Name', '')}"
        )
        yield name, round((node["Actual Rows"] + removed) * node["Actual Loops"])
