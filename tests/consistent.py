"""What must hold of a task's rows at any moment, whatever happened before and whoever was first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.db.models import QuerySet

from tasks_app.core.phases import Phase, allowed
from tasks_app.models import Action, AuditEntry, Event, Question, Run, SessionEntry, Task, Transition
from tasks_app.models.question_kinds import SETTLED


def assert_consistent(task: Task) -> None:
    """Check that the history follows the table, and that each question was settled and told at most once."""
    task.refresh_from_db()
    _assert_history(task.transitions.filter(step=None), task.phase)
    for step in task.steps.all():
        _assert_history(step.transitions.all(), step.phase)
    _assert_steps_fit(task)
    for question in task.questions.all():
        _assert_settled_once(question)
        _assert_told_at_most_once(question)
    at_work = list(task.steps.values_list("runs__pk", flat=True).filter(runs__outcome=""))
    assert len(at_work) <= 1, "at most one run is without an end"


def assert_at_rest(task: Task) -> None:
    """Nobody works on it: no lease is held, and every run has an end."""
    assert_consistent(task)
    assert (task.lease_owner, task.lease_expires) == ("", None)
    assert task.phase != Phase.RUNNING
    assert not task.steps.filter(runs__outcome="").exists()
    assert not task.steps.filter(runs__isnull=False, runs__ended_at=None).exists()


def _assert_history(transitions: QuerySet[Transition], phase: str) -> None:
    moves = [(Phase(m.source), Phase(m.target)) for m in transitions.order_by("pk")]
    assert all(allowed(*move) for move in moves), moves
    whole = [(None, Phase.PENDING), *moves]
    assert all(before[1] == after[0] for before, after in pairwise(whole)), moves
    assert whole[-1][1] == phase, (moves, phase)


def _assert_steps_fit(task: Task) -> None:
    phases = list(task.steps.order_by("position").values_list("phase", flat=True))
    begun = [phase for phase in phases if phase != Phase.DONE]
    assert phases == [Phase.DONE] * (len(phases) - len(begun)) + begun, "in order"
    assert set(begun[1:]) <= {Phase.PENDING}, "one step after the other"
    assert task.phase != Phase.DONE or not begun
    if begun:
        assert begun[0] in {Phase.PENDING, task.phase}, (task.phase, phases)
    assert (task.phase == Phase.WAITING_FOR_INPUT) == task.questions.open().exists()


def _assert_settled_once(question: Question) -> None:
    answers = Event.objects.filter(run=question.run, kind="answer", payload__number=question.number)
    entries = AuditEntry.objects.filter(
        task_id=question.task_id,
        action__in=[Action.ANSWERED, Action.DISMISSED],
        detail__question=question.pk,
    )
    taken_back = Event.objects.filter(run=question.run, payload__taken_back=question.number).count()
    settled = int(question.state in SETTLED) + taken_back
    assert (answers.count(), entries.count()) == (settled, settled), question


def _assert_told_at_most_once(question: Question) -> None:
    """Count results of the call that asked; a new session reads the answer as history."""
    results = [
        block
        for entry in _said_to_the_agent(question.run)
        if isinstance(entry["message"]["content"], list)
        for block in entry["message"]["content"]
        if block["tool_use_id"] == question.tool_use_id
    ]
    assert len(results) <= 1, question
    if results:
        assert question.state in SETTLED


def _said_to_the_agent(run: Run) -> QuerySet[SessionEntry, dict[str, Any]]:
    entries = SessionEntry.objects.filter(session_id=str(run.session_id), entry__type="user")
    return entries.values_list("entry", flat=True)
