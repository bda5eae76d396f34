"""Deaths of workers and of agents' processes in one step, and when they are too many.

A death is nobody's failed attempt: the session goes on. But a step whose agent or worker is killed again and
again and gets no further must not go on for ever, at some dollars each time.
"""

from __future__ import annotations

import json
from itertools import pairwise

from django.db.models import Exists, OuterRef, QuerySet

from tasks_app.core.phases import Phase
from tasks_app.engine.conclude import fail
from tasks_app.engine.lease import Lease
from tasks_app.models import Event, EventKind, Outcome, Run, Step
from tasks_app.sandbox import killed_by

#: Deaths in a row without progress after which the step fails.
DEATHS = 5
#: Times that a step's agent may be killed in all since a human last said go on, however far it got.
KILLS = 20
_SPOKE = (EventKind.TEXT, EventKind.THINKING, EventKind.TOOL_USE)


def deaths_without_progress(step: Step) -> int:
    """How often in a row a run of the step died before it got any further than the one before it.

    Progress is a turn or the result of a tool. Only to repeat the call in which the last run died is none.
    Runs that the portal stopped in order count for nothing, unless they made progress.
    """
    runs = list(_since_told(step).exclude(outcome="").order_by("-number")[: 4 * DEATHS])
    count = 0
    for run, earlier in pairwise([*runs, None]):
        if run is None or run.outcome not in (Outcome.CRASHED, Outcome.INTERRUPTED) or _got_on(run, earlier):
            break
        count += run.outcome == Outcome.CRASHED
    return count


def fail_if_hopeless(step: Step, lease: Lease) -> bool:
    """End a step that cannot get on because it is killed each time; whether it was ended."""
    deaths = deaths_without_progress(step)
    kills = sum(1 for run in _since_told(step).filter(outcome=Outcome.CRASHED) if killed_by(run.exit_code))
    if step.phase != Phase.RUNNING or (deaths < DEATHS and kills < KILLS):
        return False
    fail(lease, step, _why(step, deaths, kills))
    return True


def _why(step: Step, deaths: int, kills: int) -> str:
    last = step.runs.order_by("-number").first()
    signal = killed_by(last.exit_code) if last else ""
    if not signal:
        return (
            f"Its worker died {deaths} times in a row while this step was at work, and the agent got no "
            "further in between. Look into the worker's log and the system's (memory?), then resume the task."
        )
    times = f"{deaths} times in a row without getting any further" if deaths >= DEATHS else f"{kills} times"
    return (
        f"The agent's process was killed from outside ({signal}) {times}. Mostly the system does that when "
        "memory runs out (look for “Out of memory” in its log): give the machine more memory, run fewer "
        "tasks at once, or let the step do less at once; then resume the task."
    )


def _since_told(step: Step) -> QuerySet[Run]:
    """The step's runs since a human last let it go on."""
    told = step.transitions.filter(target=Phase.PENDING, actor__isnull=False).last()
    runs = step.runs.filter(started_at__gt=told.at) if told else step.runs.all()
    result = Event.objects.filter(run=OuterRef("pk"), kind=EventKind.TOOL_RESULT)
    spoke = Event.objects.filter(run=OuterRef("pk"), kind__in=_SPOKE)
    return runs.annotate(had_result=Exists(result), spoke=Exists(spoke))


def _got_on(run: Run, earlier: Run | None) -> bool:
    if run.had_result:  # type: ignore[attr-defined]
        return True
    if not run.spoke:  # type: ignore[attr-defined]
        return False
    call = _last_call(run)
    return earlier is None or not call or call != _last_call(earlier)


def _last_call(run: Run) -> str:
    """What the run's last call wanted done, "" if it made none."""
    event = run.events.filter(kind=EventKind.TOOL_USE).order_by("-seq").first()
    return json.dumps([event.payload["name"], event.payload["input"]], sort_keys=True) if event else ""
