"""The log of a task's setups, as text."""

from __future__ import annotations

from collections.abc import Iterator

from tasks_app.core.control_characters import strip_controls
from tasks_app.history.events.lines import format_time
from tasks_app.models import Setup, SetupOutcome, Task


def render_setup_log(task: Task) -> Iterator[str]:
    """Yield the commands of all setups of the task with their output, in order. Times are UTC."""
    if task.setup is None:
        yield "The project had no setup when this task was created.\n"
    for setup in task.setups.all():
        yield f"{'=' * 72}\nSetup {setup.number}, started {format_time(setup.started_at)}\n{'-' * 72}\n"
        for report in setup.reports:
            output = strip_controls(str(report["output"])).rstrip("\n")
            ended = report["problem"] or f"Succeeded in {report['seconds']:.1f} s."
            yield strip_controls(f"$ {report['command']}\n") + (f"{output}\n" if output else "")
            yield strip_controls(f"{ended}\n\n")
        yield _footer(setup)


def _footer(setup: Setup) -> str:
    if setup.ended_at is None:
        return strip_controls(f"$ {setup.current}\nNot ended yet.\n\n")
    outcome = SetupOutcome(setup.outcome).label
    why = f": {setup.problem}" if setup.problem and not any(one["problem"] for one in setup.reports) else ""
    return strip_controls(f"Ended {format_time(setup.ended_at)}, {outcome}{why}\n\n")
