"""Rows of a portal in use, for looking around: three projects, four people and twenty tasks in every phase.

Nothing has run: the results are commits of this module, and no worker must be started on these rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from tasks_app.core.ladder import RungAction
from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.types import ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import (
    Asked,
    AskedBy,
    EventKind,
    EventType,
    Membership,
    Notice,
    Outcome,
    Project,
    Question,
    QuestionKind,
    Reason,
    Review,
    ReviewVerdict,
    Role,
    Run,
    Rung,
    RungOutcome,
    Step,
    Task,
    Transition,
    User,
)
from tasks_app.rehearsal.sample import commit_on_branch, create_sample_repository
from tasks_app.services.projects.projects import add_project

_PEOPLE = (
    ("ben", "Ben", "Okafor", Role.MEMBER),
    ("chloe", "Chloe", "Lindqvist", Role.MAINTAINER),
    ("dan", "Dan", "Moreau", Role.VIEWER),
)
PROJECTS = ("billing", "importer", "website")
_CHECK = {"check": "make test", "passed": True, "output": "12 passed"}
_FAILED_CHECK = {
    "check": "make test",
    "passed": False,
    "output": "FAILED tests/test_invoice.py::test_address\n1 failed, 11 passed",
}
#: The steps with their commands.
_PIPELINE = {"plan": "plan-task", "implement": "implement", "review": "self-review"}
_STEP_TAKES = timedelta(minutes=6)


@dataclass(frozen=True)
class DemoTask:
    """A task of the demo. `step` counts the finished steps, `minutes` since its last event.

    `dollars` are those of all its runs; `did` is what the agent reported at the end of a done task. `asked`
    is the user name of who is asked, how that was found and why; without it, all who may answer are asked.
    """

    project: str
    title: str
    phase: Phase
    minutes: int
    step: int = 0
    dollars: float = 0.0
    failure: str = ""
    approved: bool = False
    questions: tuple[dict[str, Any], ...] = ()
    asked: tuple[str, AskedBy, str] | None = None
    says: str = ""
    did: str = ""
    queued: bool = True

    @property
    def slug(self) -> str:
        return "-".join(self.title.lower().split())

    @property
    def began(self) -> bool:
        return self.phase != Phase.PENDING

    @property
    def runs(self) -> int:
        return min(self.step + 1, len(_PIPELINE))


def _command(command: str, says: str, rule: str) -> dict[str, Any]:
    evidence = [
        {"kind": "command", "title": f"The agent says: {says}", "text": command},
        {"kind": "rule", "title": "Rule", "text": rule},
    ]
    item = {"question": f"{ALLOW_COMMAND}\n\n`{command}`", "header": "Approval", "options": []}
    return {
        "items": [item],
        "kind": QuestionKind.APPROVAL,
        "evidence": evidence,
        "tool_input": {"command": command, "description": says},
    }


_PLAN = """# Plan: one place for exchange rates

1. Read the rates once a day into a table `rates`.
2. Let `convert()` take them from there; without a rate of that day it raises `NoRate`.
3. Remove the three copies in `invoice.py`, `refund.py` and `report.py`.

## Risks

Refunds of last year used the rate of the invoice. Step 3 keeps that.
"""
_MIGRATE = _command("make migrate DATABASE=staging", "Apply the new column", "Bash(make migrate*)")
_REMOVE = _command("aws s3 rm s3://media/unused --recursive", "Remove 214 files", "Bash(aws s3 rm*)")
_REVIEW = {
    "items": [{"question": REVIEW_PLAN, "header": "Plan", "options": []}],
    "kind": QuestionKind.PLAN,
    "evidence": [{"kind": "markdown", "title": "Plan", "text": _PLAN}],
}
_ROUND = {
    "items": [
        {
            "question": "How should half cents be rounded?",
            "header": "Rounding",
            "options": [
                {"label": "Half to even", "description": "As banks do; sums stay close."},
                {"label": "Half up", "description": "As at school and on the old receipts."},
            ],
        }
    ]
}
_NO_ADDRESS = "`make test` failed with exit code 2.\nFAILED tests/test_invoice.py::test_address"

TASKS = (
    DemoTask("billing", "Round prices the way the cashier does", Phase.WAITING_FOR_INPUT, 34, 1, 0.42,
             questions=(_ROUND,), asked=("ben", AskedBy.OWNER, "owns billing/prices.py by CODEOWNERS")),
    DemoTask("importer", "Keep the exchange rates in one place", Phase.WAITING_FOR_INPUT, 12, 0, 0.18,
             questions=(_REVIEW,)),
    DemoTask("website", "Move the newsletter to double opt-in", Phase.WAITING_FOR_INPUT, 3, 1, 0.77,
             questions=(_MIGRATE, _MIGRATE, _MIGRATE)),
    DemoTask("website", "Delete unused images from the bucket", Phase.WAITING_FOR_INPUT, 95, 1, 0.31,
             questions=(_REMOVE,), asked=("chloe", AskedBy.ON_CALL, "on call until tomorrow")),
    DemoTask("billing", "Show the tax on every receipt", Phase.DONE, 50, 3, 1.12,
             did="Each receipt now has a line with its tax; a receipt without a tax has none."),
    DemoTask("importer", "Skip empty rows of bank statements", Phase.DONE, 140, 3, 0.64, approved=True,
             did="Rows without a date and an amount are skipped. The log counts them."),
    DemoTask("website", "Load the map only when it is in view", Phase.DONE, 300, 3, 0.93,
             did="The map is loaded when it comes into view. Without JavaScript there is a link."),
    DemoTask("billing", "Refuse invoices without an address", Phase.FAILED, 22, 1, 0.88, _NO_ADDRESS),
    DemoTask("importer", "Read statements of a second bank", Phase.FAILED, 400, 2, 2.4,
             "The task has cost the $2.40 that its project allows (limits.maxCostUsd)."),
    DemoTask("website", "Cache the front page for a minute", Phase.INTERRUPTED, 70, 1, 0.2,
             "The worker was stopped."),
    DemoTask("billing", "Export the sales of a month as CSV", Phase.RUNNING, 9, 1, 0.35,
             says="pytest -q tests/test_export.py"),
    DemoTask("importer", "Find duplicates across two imports", Phase.RUNNING, 4, 0, 0.05,
             says="rg -n 'def import_' importer"),
    DemoTask("website", "Describe each image for screen readers", Phase.RUNNING, 31, 2, 1.4,
             says="npm run lint"),
    DemoTask("billing", "Count refunds in the total of the day", Phase.PENDING, 2),
    DemoTask("website", "Update the imprint", Phase.PENDING, 6),
    DemoTask("importer", "Translate the messages of the importer", Phase.WAITING_FOR_RESET, 15, 1, 0.5),
    DemoTask("billing", "Send a reminder after thirty days", Phase.PENDING, 600, queued=False),
    DemoTask("website", "Search without accents", Phase.PENDING, 900, queued=False),
    DemoTask("importer", "Try a faster CSV reader", Phase.CANCELLED, 1500, 1, 0.3),
    DemoTask("website", "Use system fonts", Phase.DONE, 2900, 3, 0.4, approved=True,
             did="All pages use the fonts of the system. The font files are gone."),
)  # fmt: skip


def fill(admin: User, tasks: Sequence[DemoTask] = TASKS) -> None:
    """Add the projects, people and tasks, as of this moment. Only the admin can log in."""
    folder = Path(settings.DATA_DIR) / "demo"
    people = [_person(*names) for *names, _ in _PEOPLE]
    results: dict[str, tuple[str, str]] = {}
    projects = {}
    for name in PROJECTS:
        create_sample_repository(folder / name)
        for task in (one for one in tasks if one.project == name and one.phase == Phase.DONE):
            note = f"# {task.title}\n\n{task.did}\n"
            results[task.title] = commit_on_branch(folder / name, task.slug, "NOTES.md", note)
        projects[name] = add_project(name, str(folder / name), by=admin)
        for user, (*_, role) in zip(people, _PEOPLE, strict=True):
            Membership.objects.create(project=projects[name], user=user, role=role)
    for place, task in enumerate(tasks):
        base, head = results.get(task.title, ("", ""))
        made = make_task(
            task, projects[task.project], by=(admin, *people)[place % 3], base_commit=base, head_commit=head
        )
        if task.approved:
            reviewer = next(one for one in people if one != made.created_by)
            Review.objects.create(
                task=made, number=1, author=reviewer, verdict=ReviewVerdict.APPROVE, commit=head,
                sent_at=timezone.now(),
            )  # fmt: skip
        if task.phase == Phase.CANCELLED:
            cancelled = made.transitions.filter(step=None, target=Phase.CANCELLED)
            cancelled.update(actor=people[0])
            Notice.objects.create(
                user=admin, task=made, transition=cancelled.get(), event_type=EventType.CANCELLED
            )


def _person(username: str, first_name: str, last_name: str) -> User:
    user = User(username=username, first_name=first_name, last_name=last_name)
    user.set_unusable_password()
    user.save()
    return user


def make_task(demo: DemoTask, project: Project, *, by: User, **values: Any) -> Task:
    """Create the task with its steps, a run of each step that began, and its questions."""
    at = timezone.now() - timedelta(minutes=demo.minutes)
    body = f"# {demo.title}\n\nThe details are in the ticket.\n"
    task = Task.objects.create(
        project=project, slug=demo.slug, title=demo.title, text=body, body=body, created_by=by,
        phase=demo.phase, failure=demo.failure,
        queued_at=at - timedelta(minutes=20) if demo.queued else None,
        started_at=at - demo.runs * _STEP_TAKES if demo.began else None,
        ended_at=at if demo.phase in ENDED else None,
        resets_at=timezone.now() + timedelta(hours=2) if demo.phase == Phase.WAITING_FOR_RESET else None,
        threshold=3, pipeline="feature", branch=f"cat-herder/{demo.slug}", **values,
    )  # fmt: skip
    Task.objects.filter(pk=task.pk).update(created_at=at - timedelta(minutes=25))
    if task.started_at:
        _record_moves(task, None, demo.phase, task.started_at, at)
    for position, name in enumerate(_PIPELINE, start=1):
        _make_step(task, demo, position, name)
    return task


def _record_moves(task: Task, step: Step | None, phase: Phase, began: datetime, ended: datetime) -> None:
    """Record how the task or step came into its phase, and that everybody was told of it."""
    moves = [(Phase.PENDING, Phase.RUNNING, began)]
    if phase != Phase.RUNNING:
        moves.append((Phase.RUNNING, phase, ended))
    for source, target, at in moves:
        made = Transition.objects.create(task=task, step=step, source=source, target=target, announced_at=at)
        Transition.objects.filter(pk=made.pk).update(at=at)


_OUTCOMES = {
    Phase.DONE: Outcome.FINISHED,
    Phase.FAILED: Outcome.FINISHED,  # then its check failed, or the task reached its limit
    Phase.WAITING_FOR_INPUT: Outcome.ASKED,
    Phase.WAITING_FOR_RESET: Outcome.LIMIT,
    Phase.INTERRUPTED: Outcome.INTERRUPTED,
    Phase.CANCELLED: Outcome.INTERRUPTED,
}


def _make_step(task: Task, demo: DemoTask, position: int, name: str) -> None:
    phase = Phase.PENDING
    if position <= demo.step:
        phase = Phase.DONE
    elif position == demo.step + 1 and demo.began:
        phase = demo.phase
    config: dict[str, Any] = {"name": name, "command": _PIPELINE[name]}
    plan, checked = "", name == "implement"
    if name == "plan":
        plan = f"# Plan: {demo.title}\n\n1. A test that fails.\n2. The change that lets it pass.\n"
    if checked:
        config["check"] = [{"type": "shell", "command": _CHECK["check"]}]
    began = ended = None
    if phase != Phase.PENDING and task.started_at:
        began = task.started_at + (position - 1) * _STEP_TAKES
        ended = None if phase == Phase.RUNNING else began + _STEP_TAKES
    step = Step.objects.create(
        task=task, position=position, name=name, config=config, phase=phase, started_at=began,
        ended_at=ended if phase in ENDED else None,
        plan=plan if phase == Phase.DONE else "",
    )  # fmt: skip
    if began is None:
        return
    _record_moves(task, step, phase, began, began + _STEP_TAKES)
    checks = [_CHECK] if checked and phase == Phase.DONE else None
    if checked and phase == Phase.FAILED:
        checks = [_FAILED_CHECK]
    run = Run.objects.create(
        step=step, number=1, reason=Reason.FIRST, session_id=uuid.uuid4(), model="claude-sonnet-4-5",
        outcome=_OUTCOMES.get(phase, ""),
        cost_usd=demo.dollars / demo.runs, cache_read_tokens=48_200, input_tokens=2_310, output_tokens=5_940,
        checks=checks,
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(started_at=began, ended_at=ended)
    append(run, list(_events(demo, name, phase, began)), seq=run.next_seq())
    if phase == Phase.WAITING_FOR_INPUT:
        for number, asked in enumerate(demo.questions, start=1):
            at = began + _STEP_TAKES
            question = Question.objects.create(
                task=task, step=step, run=run, number=number, way="call", tool_use_id=f"call-{number}",
                asked_at=at, routed_at=at, **asked,
            )  # fmt: skip
            if demo.asked:
                _ask(question, *demo.asked)


def _ask(question: Question, username: str, asked_by: AskedBy, why: str) -> None:
    """Put the question to a person, with a ladder: it asks everybody in an hour."""
    at, soon = question.asked_at, timezone.now() + timedelta(hours=1)
    Asked.objects.create(
        question=question, user=User.objects.get(username=username), asked_by=asked_by, why=why, at=at
    )
    Rung.objects.create(
        question=question, position=0, action=RungAction.ASK, due=at, done_at=at, outcome=RungOutcome.DONE
    )
    Rung.objects.create(question=question, position=1, action=RungAction.EVERYBODY, due=soon)


_SAID = {
    "plan": "I read the code first, then its tests.",
    "implement": "The test fails, as it should. Now the change.",
    "review": "I read the whole change once more.",
}
_REPORTS = {
    "plan": "The plan is in PLAN.md: a test first, then the change.",
    "review": "I found nothing to change.",
}


def _events(demo: DemoTask, step: str, phase: Phase, began: datetime) -> Iterator[NewEvent]:
    yield NewEvent(EventKind.TEXT, {"text": _SAID[step]}, at=began + timedelta(minutes=1))
    if demo.says and phase == Phase.RUNNING:
        call = {"id": "a", "name": "Bash", "input": {"command": demo.says}}
        yield NewEvent(EventKind.TOOL_USE, call, at=began + _STEP_TAKES)
    if phase == Phase.DONE:
        report = {"text": _REPORTS.get(step) or demo.did or "The change is made, and its test passes."}
        yield NewEvent(EventKind.RESULT, report, at=began + _STEP_TAKES)
