"""Tasks and sequences as facts, for `--json` and for the tables."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from tasks_app import places, stats
from tasks_app.management.terminal.card import command_for, web_address
from tasks_app.models import Question, Run, Sequence, Step, Task
from tasks_app.stats import Figures
from tasks_app.types import JsonObject, Usage


def task_facts(task: Task, figures: Figures | None = None) -> JsonObject:
    """What a script wants to know of a task; `questions` are the open ones, times are ISO 8601.

    `figures`: those of the task, for callers who have those of many.
    """
    questions: list[JsonObject] = [question_facts(one) for one in open_questions(task)]
    return {
        "task": task.pk,
        "project": task.project.name,
        "name": f"{task.project.name}/{task.slug}",
        "title": task.title,
        "sequence": task.sequence_id,
        "phase": task.phase,
        "failure": task.failure,
        "pipeline": task.pipeline,
        "threshold": task.threshold,
        "question": questions[0] if questions else None,
        "questions": questions,
        **figures_facts(figures or stats.of_task(task)),
        "branch": task.branch,
        "commit": task.head_commit,
        "fetch": how_to_fetch(task),
    }


def sequence_facts(sequence: Sequence, figures: Figures | None = None) -> JsonObject:
    """The same of a sequence, all its tasks rolled up."""
    return {
        "sequence": sequence.pk,
        "project": sequence.project.name,
        "name": f"{sequence.project.name}/{sequence.slug}",
        "folder": sequence.folder,
        "phase": sequence.phase,
        "failure": sequence.failure,
        **figures_facts(figures or stats.of_sequence(sequence)),
        "branch": sequence.branch,
        "commit": sequence.head_commit,
    }


def facts_of(thing: Task | Sequence) -> JsonObject:
    """The facts of a task; of a sequence with those of its tasks in the order in which they ran."""
    if isinstance(thing, Task):
        return task_facts(thing)
    tasks = list(thing.tasks.select_related("project").order_by("pk"))
    figures = stats.of_tasks(tasks)
    facts = [task_facts(task, figures[task.pk]) for task in tasks]
    return {**sequence_facts(thing), "fetch": facts[-1]["fetch"] if facts else None, "tasks": facts}


def figures_facts(figures: Figures) -> JsonObject:
    """Tokens in all and by model, dollars, and seconds with, without and of pauses."""
    duration = figures.duration
    return {
        **usage_facts(figures.usage),
        "models": {model: usage_facts(usage) for model, usage in figures.by_model.items()},
        "seconds": _rounded(duration.total),
        "working_seconds": _rounded(duration.working),
        "paused_seconds": _rounded(duration.paused),
    }


def usage_facts(usage: Usage) -> JsonObject:
    """Tokens and dollars."""
    return {"tokens": _tokens(usage), "cost_usd": round(usage.cost_usd, 6)}


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


def how_to_fetch(task: Task) -> str | None:
    """The git command that brings the task's branch into a person's clone; None if it has no work yet."""
    if not task.head_commit:
        return None
    return f"git fetch {places.repository(task.project).path} {task.branch}"


def _tokens(usage: Usage) -> dict[str, int]:
    """`input` is what was neither written to the cache nor read from it, as the model charges it."""
    return {
        name.removesuffix("_tokens"): count
        for name, count in asdict(usage).items()
        if name.endswith("_tokens")
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
