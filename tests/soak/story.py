"""What the rows say of a task that is not as it should be, for whoever looks for the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks_app.models import Question, Run, SessionEntry, Task

_WIDTH = 300


def story(task: Task) -> str:
    """The task's runs, its questions and its sessions, in the order in which they were stored."""
    runs = list(Run.objects.filter(step__task=task).order_by("pk"))
    sessions = SessionEntry.objects.filter(session_id__in={str(run.session_id) for run in runs})
    return "\n".join([
        f"task {task.pk}",
        *(_run(run) for run in runs),
        *(_question(question) for question in task.questions.all()),
        *_entries(sessions),
    ])  # fmt: skip


def _run(run: Run) -> str:
    begun = f"  {run.started_at:%H:%M:%S} run {run.number} ({run.pk}), session {_short(run.session_id)}"
    return f"{begun}: {run.reason} → {run.outcome} {run.error!r}, prompt {run.prompt[:80]!r}"


def _question(question: Question) -> str:
    state = f"{question.state} {question.answered_at}, call {question.tool_use_id} by {question.way}"
    return (
        f"  question {question.number} of run {question.run_id}: {state}, deferred {question.deferred}, "
        f"handed in by {question.handed_in_id}, delivered {question.delivered_at}"
    )


def _entries(sessions: Any) -> Iterator[str]:
    for row in sessions.order_by("pk"):
        entry = row.entry
        said = (entry.get("message") or {}).get("content") or entry.get("attachment") or ""
        yield f"    {row.at:%H:%M:%S.%f} {_short(row.session_id)} {entry.get('type')} {str(said)[:_WIDTH]}"


def _short(session_id: object) -> str:
    return str(session_id)[:8]
