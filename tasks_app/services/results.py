"""What came of a task that is done: what its agent said at the end, and which checks passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks_app.models import Event, EventKind, Outcome, Run, Task

_CLOSING_CHARACTERS = 20_000


@dataclass(frozen=True)
class PassedCheck:
    """A check that the newest run of a step passed."""

    step: str
    check: str


def closing_message(tasks: Sequence[Task]) -> str:
    """Return what the agent of the last run said at its end."""
    ends = Event.objects.filter(run__step__task__in=tasks[-1:], kind=EventKind.RESULT)
    payload = ends.order_by("-pk").values_list("payload", flat=True).first() or {}
    return str(payload.get("text", ""))[:_CLOSING_CHARACTERS]


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
