"""Storing how a run ended: one fenced transaction each, phases included."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict
from itertools import chain, count
from typing import Any

from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.agent.port import Ending, RunResult
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable, storable_text
from tasks_app.core.types import Ask, Json
from tasks_app.engine.faults import retry_pause
from tasks_app.engine.lease import Lease
from tasks_app.engine.recorder import RunRecorder
from tasks_app.history.audit import record
from tasks_app.history.events.append import NewEvent
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    EventKind,
    Outcome,
    Question,
    QuestionState,
    Run,
    Step,
    Task,
)

OUTCOMES = {
    Ending.FINISHED: Outcome.FINISHED,
    Ending.ASKED: Outcome.ASKED,
    Ending.FAILED: Outcome.FAILED,
    Ending.LIMIT: Outcome.LIMIT,
    Ending.STOPPED: Outcome.INTERRUPTED,
    Ending.LOST: Outcome.LOST,
    Ending.KILLED: Outcome.CRASHED,
}


def store_result(run: Run, result: RunResult, recorder: RunRecorder) -> None:
    """The run's own row, and which answers the agent now has. Called inside `lease.fenced()`."""
    run.outcome = OUTCOMES[result.ending]
    run.error = storable_text(result.error)
    run.model = storable_text(result.model)[:100]
    run.metered = result.metered
    run.reported_cost_usd = result.reported_cost_usd
    run.exit_code = result.exit_code
    run.ended_at = timezone.now()
    for name, value in asdict(result.usage).items():
        setattr(run, name, value)
    run.save()
    _mark_delivered(run, result, spoke=recorder.spoke)
    if result.error:
        recorder.write(NewEvent(EventKind.ERROR, {"text": result.error}))


def _mark_delivered(run: Run, result: RunResult, *, spoke: bool) -> None:
    """With the call that waited, also the answers that rode along; or those that the prompt told.

    What a process said just before it died may not have reached its session, with which the next run goes
    on: of such a run the session decides (`next_run.undelivered`).
    """
    came_to_its_end = result.ending is Ending.FINISHED or bool(result.deferred)
    if came_to_its_end and (result.delivered or (run.prompt and spoke)):
        run.answers_handed_in.filter(delivered_at=None).update(delivered_at=timezone.now())


def halt(lease: Lease, run: Run, result: RunResult, recorder: RunRecorder) -> None:
    """The agent asked: its questions, and step and task to `waiting_for_input`, in one transaction (H4).

    Without a question nobody is waited for: calls made at once were set aside, and it is told so.
    """
    with lease.fenced() as task:
        store_result(run, result, recorder)
        ask_humans(task, run, result.asks, deferred=result.deferred, recorder=recorder, epoch=lease.epoch)


def ask_humans(
    task: Task, run: Run, asks: Sequence[Ask], *, deferred: str, recorder: RunRecorder, epoch: int
) -> None:
    """Called inside `lease.fenced()`; `deferred` is the call whose result the session waits for.

    Of a task that somebody cancelled meanwhile the questions are kept withdrawn, as if they had been
    open: they are asked when it goes on.
    """
    state = QuestionState.WITHDRAWN if task.phase == Phase.CANCELLED else QuestionState.OPEN
    for ask in asks:
        question = _question(task, run, ask, deferred=deferred, state=state)
        recorder.write(NewEvent(EventKind.QUESTION, _payload(question)))
        record(
            Action.ASKED, task=task, subject=question.headline, question=question.number,
            actor_name=f"agent of {run.step.name}",
        )  # fmt: skip
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    if asks and state == QuestionState.OPEN:
        _wait_for_answers(task, run.step, epoch=epoch)


def _wait_for_answers(task: Task, step: Step, *, epoch: int) -> None:
    for thing in (step, task):
        if thing.phase == Phase.PENDING:  # somebody let it go on before it was known that it had asked
            move(thing, Phase.RUNNING, epoch=epoch)
    _both(step, task, Phase.WAITING_FOR_INPUT, reason="the agent asked", epoch=epoch)


def _question(task: Task, run: Run, ask: Ask, *, deferred: str, state: QuestionState) -> Question:
    return Question.objects.create(
        task=task,
        step=run.step,
        run=run,
        number=task.questions.count() + 1,
        state=state,
        way=ask.way,
        tool_use_id=ask.tool_use_id,
        tool_input=storable(ask.tool_input),
        deferred=ask.tool_use_id == deferred,
        kind=ask.kind,
        items=storable(items_json(ask)),
        evidence=storable([asdict(piece) for piece in ask.evidence]),
        asked_at=timezone.now(),
    )


def items_json(ask: Ask) -> list[dict[str, Any]]:
    """An ask's items as a question's row keeps them; equal questions are told apart by a number."""
    items: list[dict[str, Any]] = []
    taken: set[str] = set()
    for item in ask.items:
        question = _told_apart(storable_text(item.question), taken)
        taken.add(question)
        items.append(
            {
                "question": question,
                "header": item.header,
                "options": [asdict(option) for option in item.options],
                "multiSelect": item.multi_select,
            }
        )
    return items


def _told_apart(question: str, taken: Container[str]) -> str:
    """The question, or with the first number that makes it one of its own: answers are kept by it."""
    numbered = (f"{question} ({number})" for number in count(2))
    return next(text for text in chain([question], numbered) if text not in taken)


def _payload(question: Question) -> dict[str, Json]:
    return {
        "number": question.number,
        "kind": question.kind,
        "question": question.headline,
        "items": question.items,
        "way": question.way,
        "evidence": question.evidence,
    }


def fail(lease: Lease, step: Step, reason: str) -> None:
    """The step and its task end here, for a reason that people can read."""
    with lease.fenced() as task:
        _both(
            step,
            task,
            Phase.FAILED,
            reason=reason.partition("\n")[0][:300],
            epoch=lease.epoch,
            failure=reason,
        )


def put_back(lease: Lease, step: Step, target: Phase, reason: str, **fields: Any) -> None:
    """Stop here in a phase from which it goes on later."""
    with lease.fenced() as task:
        move(step, target, reason=reason, epoch=lease.epoch)
        move(task, target, reason=reason, epoch=lease.epoch, **fields)


def put_off(lease: Lease, fault: str, *, faults: int | None = None) -> None:
    """Have the task tried again later, because of something in the way that passes.

    `faults`: how often in a row by now, which makes the pause longer; counted in the task's row if not given.
    """
    with lease.fenced() as task:
        task.faults = min(task.faults + 1, 1000) if faults is None else faults
        fields = {"fault": fault, "fault_at": Now(), "faults": task.faults}
        Task.objects.filter(pk=task.pk).update(retry_at=Now() + retry_pause(task.faults), **fields)
        step = task.steps.filter(phase=Phase.RUNNING).first()
        if step is not None:
            move(step, Phase.PENDING, reason=fault[:300], epoch=lease.epoch)
        if task.phase == Phase.RUNNING:
            move(task, Phase.PENDING, reason=fault[:300], epoch=lease.epoch)


def note_progress(lease: Lease) -> None:
    """A run came to its own end, so nothing is in the way any more."""
    rows = Task.objects.held(lease.task_id, epoch=lease.epoch).exclude(faults=0)
    rows.update(faults=0, fault="", fault_at=None, retry_at=None)


def _both(step: Step, task: Task, target: Phase, *, reason: str, epoch: int, **fields: Any) -> None:
    move(step, target, reason=reason, epoch=epoch, **fields)
    move(task, target, reason=reason, epoch=epoch, **fields)


def may_try_again(step: Step, lease: Lease, failure: str) -> bool:
    """Count a failed attempt; whether another one is left. If not, the step has failed (P6)."""
    with lease.fenced():
        counted = Step.objects.filter(pk=step.pk, phase=Phase.RUNNING).update(failures=F("failures") + 1)
        if not counted:  # cancelled, and perhaps let go on with fresh attempts, meanwhile
            raise IllegalMove(f"Step “{step}”", "no longer running", Phase.FAILED)
        step.refresh_from_db(fields=["failures"])
    if step.failures <= step_from_json(step.config).retry:
        return True
    fail(lease, step, failure or "The agent ended with an error and gave no reason.")
    return False
