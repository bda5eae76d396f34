"""Stored facts about questions: decisions, and columns for the usage page (SPEC D8)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial, reduce
from itertools import takewhile
from operator import or_
from pathlib import Path
from typing import Any

from django.db.models import F, Q, Value
from django.db.models.functions import Concat
from django.utils import timezone

from tasks_app.agent.gate.patterns import WRITING
from tasks_app.agent.spools import NotDone, Said, Spooled, UnfitDecision, spooled_said
from tasks_app.core.asked_items import item_keys, recommended_items
from tasks_app.core.types import Ask
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.run_recorder import SpoolCollector
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    Decision,
    DecisionEvent,
    DecisionEventKind,
    EventKind,
    Question,
    ReviewReason,
    Run,
    Step,
    Task,
)
from tasks_app.prompting.decisions import FOLLOWED, MARKS
from tasks_app.prompting.feedback import NOT_DONE
from tasks_app.services.decisions.content import decisions_for, holding_for

#: A question is compared with this many of the newest ones of its project, so that asking stays quick.
MOST_COMPARED = 2_000


def columns_of_question(task: Task, step: Step, ask: Ask, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of a new question. Everything that is asked before the work is about the goal.

    The events of its run must be stored by then.
    """
    keys = item_keys(items)
    return {
        "about_goal": ask.about_goal or step.is_clarifying,
        "is_late": ask.about_goal and not step.is_clarifying and _has_worked(step),
        "worked_seconds": task.worked_seconds,
        "recommended": recommended_items(items),
        "item_keys": keys,
        "asked_before": _asked_before(task, keys),
    }


def _has_worked(step: Step) -> bool:
    """Return whether work had begun: in a step before, or in this one with a tool that writes files.

    A call that failed or was refused wrote nothing. What an agent writes with shell commands is not seen.
    """
    if step.position > 1:
        return True
    events = Events(Q(run__in=step.current_runs))
    if not events.of_kinds([EventKind.TOOL_USE]).any_with("name", WRITING):
        return False
    writing: set[str] = set()
    for event in events.of_kinds([EventKind.TOOL_USE, EventKind.TOOL_RESULT]).all():
        if event.payload.get("name") in WRITING:
            writing.add(event.payload["id"])
        elif event.payload.get("is_error"):
            writing.discard(event.payload.get("tool_use_id", ""))
    return bool(writing)


def _asked_before(task: Task, keys: str) -> bool:
    """Return whether an item with one of the keys was asked in the project before."""
    wanted = [Q(item_keys__contains=key) for key in keys.split()]
    newest = Question.objects.filter(task__project=task.project_id).order_by("-asked_at")[:MOST_COMPARED]
    return bool(wanted) and Question.objects.filter(reduce(or_, wanted), pk__in=newest.values("pk")).exists()


# What agents say: which decisions they followed, which do not fit (D3), and that a task is not done.


_MAX_TEXT = 200_000
#: Named decisions that do not exist, of which the log tells.
_MOST_UNKNOWN = 10


def said_collector(run: Run, lease: Lease) -> SpoolCollector[Said]:
    return SpoolCollector(run, lease, partial(_said_of_known, run), _store_all)


def _said_of_known(run: Run, home: Path, *, known: Collection[str] = ()) -> Spooled[Said]:
    """Return what was said of decisions that the agent can read, in its prompt or with its command.

    An agent writes the files, so it could name any number. May run git if there are some.
    """
    spooled = spooled_said(home, known=known)
    if not any(isinstance(one, UnfitDecision) for one in spooled.found):
        return spooled
    readable = {decision.number for decision in decisions_for(run.step)}
    found = [one for one in spooled.found if isinstance(one, NotDone) or one.number in readable]
    return Spooled(found, spooled.keys)


def _store_all(run: Run, said: Sequence[Said]) -> None:
    for one in said:
        if isinstance(one, NotDone):
            # The folder keeps it until the next run, also after the task has failed for that.
            rows = Run.objects.filter(pk=run.pk, not_done="").exclude(error__startswith=NOT_DONE)
            if rows.update(not_done=one.why):
                run.not_done = one.why
        else:
            _store_unfit(run, one.number, one.why)


def _store_unfit(run: Run, number: int, why: str) -> None:
    """Note it, once in a run, and open the decision for a review; it stays in force."""
    decision = run.step.task.project.decisions.active().filter(number=number).first()
    if decision is None:
        return
    _, is_new = DecisionEvent.objects.get_or_create(
        decision=decision, kind=DecisionEventKind.UNFIT, key=f"run-{run.pk}",
        defaults={"task": run.step.task, "run": run, "note": why},
    )  # fmt: skip
    if is_new:
        _mark_unfit(decision, why)


def _mark_unfit(decision: Decision, why: str) -> None:
    """Ask for a review. If its code has changed as well, that stays the reason, and this is added once."""
    rows = Decision.objects.filter(pk=decision.pk)
    label = str(ReviewReason.UNFIT.label)
    stale = rows.filter(review_reason=ReviewReason.STALE)
    stale.exclude(review_note__contains=label).update(
        review_note=Concat(F("review_note"), Value(f"; {label}: {why}"))
    )
    rows.exclude(review_reason=ReviewReason.STALE).update(review_reason=ReviewReason.UNFIT, review_note=why)


def note_followed(run: Run, last_message: str) -> str:
    """Note the decisions that the agent's last message says it followed. Return which of them do not exist.

    Must be called while the lease is locked.
    """
    numbers = followed_in(last_message[-_MAX_TEXT:])
    if not numbers:
        return ""
    task = run.step.task
    unfit = DecisionEvent.objects.filter(kind=DecisionEventKind.UNFIT, run=run).values("decision")
    for decision in holding_for(run.step).filter(number__in=numbers).exclude(pk__in=unfit):
        DecisionEvent.objects.update_or_create(
            decision=decision, kind=DecisionEventKind.FOLLOWED, key=f"task-{task.pk}",
            defaults={"task": task, "run": run, "at": timezone.now()},
        )  # fmt: skip
    known = task.project.decisions.filter(number__in=numbers).values_list("number", flat=True)
    unknown = [f"D-{number} does not exist" for number in sorted(numbers - set(known))[:_MOST_UNKNOWN]]
    return f"The agent says that it followed decisions: {', '.join(unknown)}." if unknown else ""


def followed_in(last_message: str) -> set[int]:
    """Return the numbers in the last line of the form `Decisions followed: D-3, D-17`.

    A mere mention is no use: “D-17 did not apply” names it, too.
    """
    lines = [line.strip(MARKS) for line in last_message.splitlines()]
    said = [line[len(FOLLOWED) :] for line in lines if line.lower().startswith(FOLLOWED.lower())]
    named = (part.strip(MARKS) for part in re.split(r",| and ", said[-1])) if said else ()
    return {int(label[2:]) for label in takewhile(Decision.is_label, named)}
