"""Deaths of workers and of agents' processes in one step, and when there are too many.

A death is no failed attempt: the session goes on. But a step whose agent or worker is killed repeatedly, and
which makes no progress, must not go on for ever: each run costs money.
"""

from __future__ import annotations

import json
from itertools import pairwise

from django.db.models import Q, QuerySet

from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.conclude import fail
from tasks_app.history.events.reading import Events, has_events
from tasks_app.models import EventKind, Outcome, Run, Step
from tasks_app.sandbox import killed_by

#: Deaths in a row without progress after which the step fails.
DEATHS = 5
#: Times that a step's agent may be killed altogether since a human last resumed it, progress or not.
KILLS = 20
_SPOKE = (EventKind.TEXT, EventKind.THINKING, EventKind.TOOL_USE)


def deaths_without_progress(step: Step) -> int:
    """Count how often in a row a run of the step died before it got further than the run before it.

    Progress is a turn or the result of a tool. Repeating the call in which the last run died is no progress.
    Runs that the portal stopped do not count as deaths, but their progress ends the row.
    """
    runs = list(_runs_since_resumed(step).exclude(outcome="").order_by("-number")[: 4 * DEATHS])
    count = 0
    for run, earlier in pairwise([*runs, None]):
        if run is None or run.outcome not in (Outcome.CRASHED, Outcome.INTERRUPTED):
            break
        if _made_progress(run, earlier):
            break
        count += run.outcome == Outcome.CRASHED
    return count


def fail_if_hopeless(step: Step, lease: Lease) -> bool:
    """Fail a step that is killed too often. Return whether it failed."""
    deaths = deaths_without_progress(step)
    crashed = _runs_since_resumed(step).filter(outcome=Outcome.CRASHED)
    kills = sum(1 for run in crashed if killed_by(run.exit_code))
    if step.phase != Phase.RUNNING or (deaths < DEATHS and kills < KILLS):
        return False
    fail(lease, step, _reason_of_deaths(step, deaths, kills))
    return True


def _reason_of_deaths(step: Step, deaths: int, kills: int) -> str:
    last = step.runs.order_by("-number").first()
    signal = killed_by(last.exit_code) if last else ""
    if not signal:
        return (
            f"The worker died {deaths} times in a row during this step, and the agent made no progress in "
            "between. Look into the worker's log and the system's log (memory?), then resume the task."
        )
    times = f"{deaths} times in a row without any progress" if deaths >= DEATHS else f"{kills} times"
    return (
        f"The agent's process was killed from outside ({signal}) {times}. Usually the system does that when "
        "memory runs out (look for “Out of memory” in its log). Give the machine more memory, run fewer "
        "tasks at once, or let the step do less at once; then resume the task."
    )


def _runs_since_resumed(step: Step) -> QuerySet[Run]:
    """Return the step's runs since a human last started or resumed it."""
    resumed = step.transitions.filter(target=Phase.PENDING, actor__isnull=False).last()
    runs = step.runs.filter(started_at__gt=resumed.at) if resumed else step.runs.all()
    return runs.annotate(had_result=has_events(EventKind.TOOL_RESULT), spoke=has_events(*_SPOKE))


def _made_progress(run: Run, earlier: Run | None) -> bool:
    if run.had_result:  # type: ignore[attr-defined]
        return True
    if not run.spoke:  # type: ignore[attr-defined]
        return False
    call = _last_call(run)
    return earlier is None or not call or call != _last_call(earlier)


def _last_call(run: Run) -> str:
    """Return name and input of the run's last tool call, "" if it made none."""
    event = Events(Q(run=run)).of_kinds([EventKind.TOOL_USE]).last()
    return json.dumps([event.payload["name"], event.payload["input"]], sort_keys=True) if event else ""
