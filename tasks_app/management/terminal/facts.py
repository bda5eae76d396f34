"""A task as facts, for `--json` and for the tables."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from django.db.models import Sum
from django.utils import timezone

from tasks_app import places
from tasks_app.actions.pauses import pause_seconds
from tasks_app.management.terminal.card import command_for, web_address
from tasks_app.models import Question, Run, Step, Task
from tasks_app.types import JsonObject, Usage

_SUMMED = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")


def task_facts(task: Task) -> JsonObject:
    """What a script wants to know of a task; `questions` are the open ones, times are ISO 8601."""
    usage = usage_of(task)
    questions: list[JsonObject] = [question_facts(one) for one in open_questions(task)]
    return {
        "task": task.pk,
        "project": task.project.name,
        "name": f"{task.project.name}/{task.slug}",
        "title": task.title,
        "phase": task.phase,
        "failure": task.failure,
        "pipeline": task.pipeline,
        "threshold": task.threshold,
        "question": questions[0] if questions else None,
        "questions": questions,
        "tokens": {
            name.removesuffix("_tokens"): count
            for name, count in asdict(usage).items()
            if name.endswith("_tokens")
        },
        "cost_usd": round(usage.cost_usd, 6),
        "seconds": duration(task),
        "paused_seconds": round(paused(task), 3),
        "branch": task.branch,
        "commit": task.head_commit,
        "fetch": how_to_fetch(task),
    }


def question_facts(question: Question) -> JsonObject:
    return {
        "id": question.pk,
        "number": question.number,
        "step": question.step.name,
        "asked_at": question.asked_at.isoformat(),
        "items": question.items,
        "answer_with": command_for(question),
        "url": web_address(question),
    }


def step_facts(step: Step) -> JsonObject:
    return {
        "position": step.position,
        "name": step.name,
        "phase": step.phase,
        "failure": step.failure,
        "runs": [run_facts(run) for run in step.runs.all()],
    }


def run_facts(run: Run) -> JsonObject:
    return {
        "number": run.number,
        "reason": run.reason,
        "outcome": run.outcome,
        "error": run.error,
        "model": run.model,
        "started_at": run.started_at.isoformat(),
        "ended_at": _iso(run.ended_at),
        "exit_code": run.exit_code,
        **asdict(run.usage),
    }


def open_questions(task: Task) -> list[Question]:
    return list(task.questions.open().select_related("task__project", "step", "run"))


def usage_of(task: Task) -> Usage:
    """What all runs of the task together used."""
    sums = Run.objects.filter(step__task=task).aggregate(**{name: Sum(name) for name in _SUMMED})
    return Usage(**{name: value or 0 for name, value in sums.items()})


def duration(thing: Task | Step | Run) -> float | None:
    """Seconds from start to end, or until now; None if it was not started."""
    if thing.started_at is None:
        return None
    return round(((thing.ended_at or timezone.now()) - thing.started_at).total_seconds(), 3)


def paused(task: Task) -> float:
    """Seconds of that during which the task waited for humans and limits (H11)."""
    return task.paused_seconds + pause_seconds(task)


def how_to_fetch(task: Task) -> str | None:
    """The git command that brings the task's branch into a person's clone; None if it has no work yet."""
    if not task.head_commit:
        return None
    return f"git fetch {places.repository(task.project).path} {task.branch}"


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
