"""Storing how a run ended, phases included, each time in one fenced transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.agent.port import Ending, RunResult
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.asked_items import SHELL_FOLDER
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable, storable_text, visible
from tasks_app.core.types import Ask, Evidence
from tasks_app.engine.lease import Lease
from tasks_app.engine.prompts.review_requests import mark_delivered
from tasks_app.engine.runs.decisions import columns_of_question
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.temporary_faults import retry_pause
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import NewEvent, question_payload
from tasks_app.history.transitions import move, move_both
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    EventKind,
    Outcome,
    Question,
    QuestionState,
    Run,
    SessionEntry,
    Step,
    Task,
    paths,
)
from tasks_app.models.run import stored_by_model

OUTCOMES = {
    Ending.FINISHED: Outcome.FINISHED,
    Ending.ASKED: Outcome.ASKED,
    Ending.FAILED: Outcome.FAILED,
    Ending.LIMIT: Outcome.LIMIT,
    Ending.BUDGET: Outcome.LIMIT,
    Ending.STOPPED: Outcome.INTERRUPTED,
    Ending.REFUSED: Outcome.FAILED,
    Ending.TOO_LONG: Outcome.FAILED,
    Ending.LOST: Outcome.LOST,
    Ending.UNDELIVERED: Outcome.UNDELIVERED,
    Ending.KILLED: Outcome.CRASHED,
}


def store_result(run: Run, result: RunResult, recorder: RunRecorder) -> None:
    """Store the end of the run in its row, and which answers and reviews the agent has received.

    Must be called while the lease is locked.
    """
    run.outcome = OUTCOMES[result.ending]
    fields = _fields_at_end(result)
    for name, value in fields.items():
        setattr(run, name, value)
    run.save(update_fields=["outcome", *fields])
    # The answers of this run were delivered in the result of the deferred call, or in the prompt. If the
    # process died early, its last messages may be missing in the session that the next run continues. For
    # such a run `next_run.undelivered` looks into the session instead.
    ended_in_order = result.ending is Ending.FINISHED or bool(result.deferred)
    if ended_in_order and recorder.hands_in:
        if result.delivered or (run.prompt and recorder.spoke):
            run.answers_handed_in.filter(delivered_at=None).update(delivered_at=timezone.now())
        if run.prompt:
            mark_delivered(run)
    if result.undelivered:
        questions = run.step.questions
        lost = questions.filter(tool_use_id__in=result.undelivered)
        runs = list(lost.values_list("handed_in", flat=True))  # others were told beside these
        questions.filter(handed_in__in=runs).update(delivered_at=None)
    if result.error:
        kind = EventKind.NOTE if result.ending is Ending.BUDGET else EventKind.ERROR
        recorder.write(NewEvent(kind, {"text": result.error}))


def _fields_at_end(result: RunResult) -> dict[str, Any]:
    """Return the fields of a run that say how its process ended and what it used."""
    return {
        "error": storable_text(result.error),
        "model": storable_text(result.model)[:100],
        "by_model": stored_by_model(result.by_model),
        "metered": result.metered,
        "reported_cost_usd": result.reported_cost_usd,
        "needed_usd": result.needed_usd,
        "exit_code": result.exit_code,
        "ended_at": result.exited_at or timezone.now(),
        **asdict(result.usage),
    }


def halt(lease: Lease, run: Run, result: RunResult, recorder: RunRecorder) -> None:
    """Store the agent's questions and move step and task to `waiting_for_input`, in one transaction (H4).

    A run without a question leaves the phases as they are: its calls were set aside, and the next run tells
    the agent so.
    """
    with lease.fenced() as task:
        store_result(run, result, recorder)
        ask_humans(task, run, result.asks, deferred=result.deferred, recorder=recorder, epoch=lease.epoch)


def complete_halt(lease: Lease, run: Run, result: RunResult, recorder: RunRecorder) -> None:
    """Store what was not known yet when the run halted, because its process was still ending.

    Its task may have been answered, cancelled or resumed since.
    """
    with lease.fenced() as task:
        Run.objects.filter(pk=run.pk).update(**_fields_at_end(result))
        if result.error:
            recorder.write(NewEvent(EventKind.ERROR, {"text": result.error}))
        known = set(run.questions.values_list("tool_use_id", flat=True))
        if more := [ask for ask in result.asks if ask.tool_use_id not in known]:
            ask_humans(task, run, more, deferred=result.deferred, recorder=recorder, epoch=lease.epoch)


def ask_humans(
    task: Task, run: Run, asks: Sequence[Ask], *, deferred: str, recorder: RunRecorder, epoch: int
) -> None:
    """Store questions and wait for their answers. Must be called while the lease is locked.

    `deferred` is the call whose result the session waits for. If somebody has cancelled the task meanwhile,
    the questions are stored as withdrawn and are asked when the task is resumed.
    """
    state = QuestionState.WITHDRAWN if task.phase == Phase.CANCELLED else QuestionState.OPEN
    for ask in asks:
        question = _store_question(task, run, ask, deferred=deferred, state=state)
        recorder.write(NewEvent(EventKind.QUESTION, question_payload(question)))
        record(
            Action.ASKED, task=task, subject=question.headline, question=question.pk,
            actor_name=f"agent of {run.step.name}",
        )  # fmt: skip
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    # It waits already if an answer was taken back during the run: its question is open, too.
    if asks and state == QuestionState.OPEN and task.phase != Phase.WAITING_FOR_INPUT:
        for row in (run.step, task):
            if row.phase == Phase.PENDING:  # resumed before it was known that the agent had asked
                move(row, Phase.RUNNING, epoch=epoch)
        move_both(run.step, task, Phase.WAITING_FOR_INPUT, reason="the agent asked", epoch=epoch)


def _store_question(task: Task, run: Run, ask: Ask, *, deferred: str, state: QuestionState) -> Question:
    items = storable(items_json(ask))
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
        items=items,
        evidence=storable([asdict(piece) for piece in (*ask.evidence, *folder_of_shell(run, ask))]),
        asked_at=timezone.now(),
        **(columns_of_question(task, run.step, ask, items) if ask.kind == "clarification" else {}),
    )


def folder_of_shell(run: Run, ask: Ask) -> Iterator[Evidence]:
    """Yield the folder in which a command that waits would run, if it is known and not the workspace."""
    if ask.kind != "approval" or "command" not in ask.tool_input:
        return
    entries = SessionEntry.objects.filter(session_id=str(run.session_id), subpath="", entry__has_key="cwd")
    folder = entries.order_by("-pk").values_list("entry__cwd", flat=True).first()
    workspace = paths.placement().inside(paths.workspace(run.step.task).path)
    if folder and PurePath(folder) != workspace:
        yield Evidence("text", SHELL_FOLDER, visible(folder.removeprefix(f"{workspace}/")))


def items_json(ask: Ask) -> list[dict[str, Any]]:
    """Return an ask's items as a question's row stores them."""
    return [
        {
            "question": item.question,
            "header": item.header,
            "options": [asdict(option) for option in item.options],
            "multiSelect": item.multi_select,
        }
        for item in ask.items
    ]


def fail(lease: Lease, step: Step, reason: str) -> None:
    """Fail the step and its task, for a reason that people can read."""
    with lease.fenced() as task:
        fail_both(step, task, reason, epoch=lease.epoch)


def fail_both(step: Step, task: Task, reason: str, *, epoch: int) -> None:
    """Fail the step and its task. Must be called while the lease is locked."""
    line = reason.partition("\n")[0][:300]
    move_both(step, task, Phase.FAILED, reason=line, epoch=epoch, failure=reason)


def pause(lease: Lease, step: Step, target: Phase, reason: str, **fields: Any) -> None:
    """Move step and task to a phase from which they go on later. `fields` are stored with the task."""
    with lease.fenced() as task:
        move_both(step, task, target, reason=reason, epoch=lease.epoch, **fields)


def postpone(lease: Lease, fault: str, *, faults: int | None = None) -> None:
    """Have the task retried later, because of a fault that passes.

    The more `faults` there were in a row, the longer is the pause. Without a number they are counted in the
    task's row.
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


def note_progress(task: Task, lease: Lease) -> None:
    """Forget the task's temporary faults: a run ended by itself, so they are over."""
    if task.faults:  # only the holder of the lease counts them
        rows = Task.objects.held(task.pk, epoch=lease.epoch)
        rows.update(faults=0, fault="", fault_at=None, retry_at=None)


def may_try_again(step: Step, lease: Lease, failure: str) -> bool:
    """Count a failed attempt and return whether another one is left. If none is, fail the step (P6)."""
    with lease.locked():
        counted = Step.objects.filter(pk=step.pk, phase=Phase.RUNNING).update(failures=F("failures") + 1)
        if not counted:  # cancelled meanwhile, and perhaps resumed with fresh attempts
            raise IllegalMove(f"Step “{step}”", "no longer running", Phase.FAILED)
        step.refresh_from_db(fields=["failures"])
    if step.failures <= step_from_json(step.config).retry:
        return True
    fail(lease, step, failure or "The agent ended with an error and gave no reason.")
    return False
