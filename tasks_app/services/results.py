"""What came of a task that is done: what its agent said at the end, and which checks passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from tasks_app.history.events.reading import Events
from tasks_app.models import EventKind, Outcome, Run, Task

_CLOSING_CHARACTERS = 20_000


@dataclass(frozen=True)
class PassedCheck:
    """A check that the newest run of a step passed."""

    step: str
    check: str


def closing_message(tasks: Sequence[Task]) -> str:
    """Return what the agent of the last run said at its end."""
    end = Events(Q(run__step__task__in=tasks[-1:])).of_kinds([EventKind.RESULT]).last()
    return str(end.payload.get("text", ""))[:_CLOSING_CHARACTERS] if end else ""


def passed_checks(tasks: Sequence[Task]) -> list[PassedCheck]:
    """Return the checks that the newest finished run of each step passed, in the order of the steps."""
    newest: dict[int, Run] = {}
    finished = Run.objects.filter(step__task__in=tasks, outcome=Outcome.FINISHED).exclude(checks=None)
    for run in (
        finished.select_related("step").defer("prompt").order_by("step__task", "step__position", "number")
    ):
        newest[run.step_id] = run
    return [
        PassedCheck(run.step.name, str(report.get("check", "")))
        for run in newest.values()
        for report in run.checks or []
        if report.get("passed") and report.get("check")
    ]
