"""The only writer of phases: conditional UPDATE, history row and change row in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Max
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import ENDED, Phase, allowed, allowed_between_tasks
from tasks_app.models import (
    Change,
    ChangeKind,
    Run,
    Sequence,
    SequenceTransition,
    Step,
    Task,
    Transition,
    User,
)

#: Phases in which a task waits for a human or for the reset of a usage limit.
PAUSES = frozenset({Phase.WAITING_FOR_INPUT, Phase.WAITING_FOR_RESET, Phase.INTERRUPTED})
#: Phases in which a task that was started does not work: in the last one it is queued again.
NOT_WORKING = PAUSES | {Phase.PENDING}


def move(
    thing: Task | Step,
    target: Phase,
    *,
    reason: str = "",
    by: User | None = None,
    epoch: int | None = None,
    message: str = "",
    **fields: Any,
) -> None:
    """Move `thing` from its phase when it was read to `target`, and write `fields`.

    `message` is what `by` wrote to the agent of the task. `epoch`: given by the holder of the task's lease;
    the move fails if another worker holds it now. Raises IllegalMove, having written nothing, if the move is
    not allowed or somebody else moved it first.
    """
    fields = _values_of_move(thing, target, fields)
    with transaction.atomic(savepoint=False):
        made = _write_move(thing, target, fields, reason=reason, by=by, epoch=epoch)
        if made and message:
            runs = Run.objects.filter(step__task=made.task_id)
            made.message, made.after_run = message, runs.aggregate(newest=Max("pk"))["newest"]
        if made:
            made.save(force_insert=True)
            Change.objects.create(task_id=made.task_id, kind=ChangeKind.PHASE)
    if made is None:
        raise _moved_by_somebody(thing, target)
    _set_moved(thing, target, fields)


def move_both(
    step: Step,
    task: Task,
    target: Phase,
    *,
    reason: str = "",
    by: User | None = None,
    epoch: int | None = None,
    failure: str | None = None,
    **fields: Any,
) -> None:
    """Move a step and its task to `target`, as `move` does, with one change row.

    `failure` is written to both, `fields` to the task. Raises IllegalMove, and then neither has moved; if the
    step alone could not, a transaction around the call is undone as a whole.
    """
    own: dict[str, Any] = {}
    if failure is not None:
        own["failure"] = failure
    step_fields = _values_of_move(step, target, own)
    task_fields = _values_of_move(task, target, {**own, **fields})
    with transaction.atomic(savepoint=False):
        of_task = _write_move(task, target, task_fields, reason=reason, by=by, epoch=epoch)
        if of_task:
            of_step = _write_move(step, target, step_fields, reason=reason, by=by, epoch=epoch)
            if of_step is None:
                raise _moved_by_somebody(step, target)
            Transition.objects.bulk_create([of_step, of_task])
            Change.objects.create(task_id=task.pk, kind=ChangeKind.PHASE)
    if of_task is None:
        raise _moved_by_somebody(task, target)
    _set_moved(step, target, step_fields)
    _set_moved(task, target, task_fields)


def _values_of_move(thing: Task | Step, target: Phase, fields: dict[str, Any]) -> dict[str, Any]:
    """Return all that is written with the move. Raises IllegalMove if it is not allowed."""
    if not allowed(Phase(thing.phase), target):
        raise IllegalMove(_name_of(thing), thing.phase, target)
    return {**_stamps(thing, target), **fields}


def _write_move(
    thing: Task | Step,
    target: Phase,
    fields: dict[str, Any],
    *,
    reason: str,
    by: User | None,
    epoch: int | None,
) -> Transition | None:
    """Write the phase, and return its transition to be stored; None if it is in another phase by now."""
    source = Phase(thing.phase)
    if not _conditional_update(thing, source, target, epoch, fields):
        return None
    if isinstance(thing, Step):
        return Transition(
            task_id=thing.task_id, step=thing, source=source, target=target, reason=reason, actor=by
        )  # fmt: skip
    if thing.sequence_id:
        _move_sequence_with_task(thing.sequence_id, target, fields, reason=reason, by=by)
    return Transition(task=thing, source=source, target=target, reason=reason, actor=by)


def _moved_by_somebody(thing: Task | Step, target: Phase) -> IllegalMove:
    return IllegalMove(_name_of(thing), f"no longer {thing.phase}", target)


def _name_of(thing: Task | Step) -> str:
    return f"{type(thing).__name__} “{thing}”"


def _set_moved(thing: Task | Step, target: Phase, fields: dict[str, Any]) -> None:
    thing.phase = target
    for name, value in fields.items():
        setattr(thing, name, value)


def move_between_tasks(
    sequence: Sequence, target: Phase, *, failure: str = "", by: User | None = None
) -> None:
    """Move a sequence without a current task from its phase when it was read to `target`.

    Raises IllegalMove if the move is not allowed or somebody else moved it first.
    """
    source, what = Phase(sequence.phase), f"Sequence “{sequence}”"
    if not allowed_between_tasks(source, target):
        raise IllegalMove(what, source, target)
    fields = {"failure": failure, "ended_at": timezone.now() if target in ENDED else None}
    with transaction.atomic(savepoint=False):
        moved = _move_sequence(sequence.pk, source, target, fields, reason=failure[:300], by=by)
    if not moved:
        raise IllegalMove(what, "no longer " + source, target)
    sequence.phase, sequence.failure, sequence.ended_at = target, failure, fields["ended_at"]


def _move_sequence_with_task(
    sequence_id: int, target: Phase, fields: dict[str, Any], *, reason: str, by: User | None
) -> None:
    """Give a sequence the phase of its current task (H4), except done, which depends on its folder."""
    if target is Phase.DONE:
        return
    values = {"failure": str(fields.get("failure", "")), "ended_at": fields["ended_at"]}
    if target is Phase.RUNNING:
        values["started_at"] = Coalesce("started_at", Now())
    source = Phase(Sequence.objects.select_for_update().values_list("phase", flat=True).get(pk=sequence_id))
    _move_sequence(sequence_id, source, target, values, reason=reason, by=by)


def _move_sequence(
    sequence_id: int, source: Phase, target: Phase, fields: dict[str, Any], *, reason: str, by: User | None
) -> bool:
    """Return whether it was in `source`. Without a change of phase, no transition is recorded."""
    if not Sequence.objects.filter(pk=sequence_id, phase=source).update(phase=target, **fields):
        return False
    if target is not source:
        SequenceTransition.objects.create(
            sequence_id=sequence_id, source=source, target=target, reason=reason, actor=by
        )
    return True


def _stamps(thing: Task | Step, target: Phase) -> dict[str, Any]:
    """Return the times and texts that the move itself sets."""
    now = timezone.now()
    stamps: dict[str, Any] = {"ended_at": now if target in ENDED else None}
    if isinstance(thing, Task):
        stamps |= {"undo_until": None, "failure_dismissed": False}
        if thing.phase in NOT_WORKING:
            stamps["paused_seconds"] = paused_until_now(thing)
        elif thing.phase in ENDED:
            stamps["idle_seconds"] = thing.idle_seconds + seconds_since(
                pause_starts([thing], ENDED).get(thing.pk)
            )
        if Phase.DONE in (thing.phase, target) or target is Phase.CANCELLED:
            stamps["early_end"] = ""  # unless it says otherwise: the end decided on was reached, or is off
    if target is Phase.RUNNING:
        stamps["failure"] = ""
        if thing.started_at is None:
            stamps["started_at"] = now
    return stamps


def _conditional_update(
    thing: Task | Step, source: Phase, target: Phase, epoch: int | None, fields: dict[str, Any]
) -> int:
    rows = type(thing)._default_manager.filter(pk=thing.pk, phase=source)
    if epoch is not None:
        lease = "lease_epoch" if isinstance(thing, Task) else "task__lease_epoch"
        rows = rows.filter(**{lease: epoch})
    return rows.update(phase=target, **fields)


def cancellation_of(task: Task) -> Transition | None:
    """Return the newest cancellation of a cancelled task, with its actor; None if it is not cancelled."""
    if task.phase != Phase.CANCELLED:
        return None
    return last_cancellation(task)


def last_cancellation(task: Task) -> Transition | None:
    """Return the newest cancellation of a task, which may have been resumed since; None without one."""
    moves = Transition.objects.filter(task=task, step=None, target=Phase.CANCELLED)
    return moves.select_related("actor").order_by("-pk").first()


def paused_until_now(task: Task) -> float:
    """Return the seconds that the task has waited so far, to be stored when it stops waiting.

    The time between an end and a resume is no waiting: it is stored as `idle_seconds`.
    """
    return task.paused_seconds + seconds_since(pause_starts([task]).get(task.pk))


def pause_starts(tasks: Iterable[Task], phases: Collection[Phase] = NOT_WORKING) -> dict[int, datetime]:
    """Return when each task that is in one of these phases entered it."""
    waiting = [task.pk for task in tasks if task.phase in phases and task.started_at is not None]
    if not waiting:
        return {}
    moves = Transition.objects.filter(task__in=waiting, step=None, target=F("task__phase")).order_by()
    return dict(moves.values_list("task").annotate(Max("at")))


@dataclass(frozen=True)
class Pause:
    """A time in which a started task did not work: from one moment until another, None if it lasts."""

    began: datetime
    ended: datetime | None

    @property
    def seconds(self) -> float:
        return ((self.ended or timezone.now()) - self.began).total_seconds()


def pauses_of(task: Task) -> list[Pause]:
    """Return the pauses whose seconds `paused_seconds` counts, in order."""
    found: list[Pause] = []
    began: datetime | None = None
    for target, at in task.transitions.filter(step=None).order_by("pk").values_list("target", "at"):
        if began and target not in NOT_WORKING:
            found.append(Pause(began, at))
        if target not in NOT_WORKING:
            began = None
        elif began is None:
            began = at
    return [*found, Pause(began, None)] if began else found


def seconds_since(at: datetime | None) -> float:
    if at is None:
        return 0.0
    return (timezone.now() - at).total_seconds()
