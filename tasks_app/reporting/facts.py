"""Tasks, sequences and questions as facts: the words that `--json` and the API have in common (W5)."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime

from django.conf import settings
from django.urls import reverse

from tasks_app.core.types import JsonObject, Usage
from tasks_app.history import statistics
from tasks_app.history.statistics import Figures
from tasks_app.models import (
    Project,
    Question,
    QuestionKind,
    Run,
    Sequence,
    Step,
    Task,
    User,
    WorkerBeat,
    paths,
)


def task_facts(
    task: Task, figures: Figures | None = None, asked: Collection[Question] | None = None
) -> JsonObject:
    """What a script wants to know of a task; `questions` are the open ones, times are ISO 8601.

    `figures` and `asked`: those of the task, for callers who have those of many.
    """
    if asked is None:
        asked = open_questions(task)
    questions: list[JsonObject] = [question_facts(one) for one in asked]
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
        "created_by": person_facts(task.created_by),
        "created_at": task.created_at.isoformat(),
        "started_at": _iso(task.started_at),
        "ended_at": _iso(task.ended_at),
        "resets_at": _iso(task.resets_at),
        "fault": task.fault if task.waits_for_retry else "",
        "retry_at": _iso(task.retry_at) if task.waits_for_retry else None,
        **figures_facts(figures or statistics.of_task(task)),
        "branch": task.branch,
        "commit": task.head_commit,
        "fetch": how_to_fetch(task),
        "left_out": task.left_out,
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
        "created_by": person_facts(sequence.created_by),
        "created_at": sequence.created_at.isoformat(),
        "started_at": _iso(sequence.started_at),
        "ended_at": _iso(sequence.ended_at),
        **figures_facts(figures or statistics.of_sequence(sequence)),
        "branch": sequence.branch,
        "commit": sequence.head_commit,
    }


def worker_facts(worker: WorkerBeat) -> JsonObject:
    """A worker that lives."""
    return {
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "slots": worker.slots,
        "busy": worker.busy,
        "started": worker.started_at.isoformat(),
        "seen": worker.seen_at.isoformat(),
    }


def facts_of(thing: Task | Sequence) -> JsonObject:
    """The facts of a task; of a sequence with those of its tasks in the order in which they ran."""
    if isinstance(thing, Task):
        return task_facts(thing)
    facts = facts_of_tasks(list(thing.tasks.select_related("project", "created_by").order_by("pk")))
    return {**sequence_facts(thing), "fetch": facts[-1]["fetch"] if facts else None, "tasks": facts}


def facts_of_tasks(tasks: Collection[Task]) -> list[JsonObject]:
    """Those of many tasks, in as many looks at the database as for one."""
    figures, asked = statistics.of_tasks(tasks), open_questions_of(tasks)
    return [task_facts(task, figures[task.pk], asked.get(task.pk, ())) for task in tasks]


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
    """What was asked and, once it is answered, what was answered, by whom, when and through what."""
    return {
        "id": question.pk,
        "task": question.task_id,
        "project": question.task.project.name,
        "number": question.number,
        "step": question.step.name,
        "kind": question.kind,
        "evidence": question.evidence,
        "state": question.state,
        "asked_at": question.asked_at.isoformat(),
        "items": question.items,
        "answered_at": _iso(question.answered_at),
        "answered_by": person_facts(question.answered_by),
        "answered_via": question.answered_via,
        "verdict": question.verdict,
        "answers": question.answers_in_order,
        "notes": question.notes,
        "answer_with": command_for(question),
        "url": web_address(question),
    }


def person_facts(user: User | None) -> JsonObject | None:
    return None if user is None else {"username": user.get_username(), "name": user.shown_name}


def step_facts(step: Step) -> JsonObject:
    return {
        "position": step.position,
        "name": step.name,
        "phase": step.phase,
        "failure": step.failure,
        "plan": step.plan or "",
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
        "network": run.network,
        "metered": run.metered,
        "reported_cost_usd": run.reported_cost_usd,
        **asdict(run.usage),
    }


def command_for(question: Question) -> str:
    """The command that answers it later, with the places to fill in."""
    if other := {QuestionKind.APPROVAL: "--deny", QuestionKind.PLAN: "--send-back"}.get(
        QuestionKind(question.kind)
    ):
        return f'manage.py answer {question.pk} --approve    (or {other} "…")'
    if len(question.items) == 1:
        return f'manage.py answer {question.pk} "…"'
    items = " ".join(f'--item {number}="…"' for number in range(1, len(question.items) + 1))
    return f"manage.py answer {question.pk} {items}"


def web_address(question: Question) -> str:
    """Where the question can be answered in a browser, if a portal is running."""
    return f"{settings.ENVIRONMENT.address}{reverse('question', args=[question.pk])}"


def open_questions(task: Task) -> list[Question]:
    return list(task.questions.open().select_related("task__project", "step", "run"))


def open_questions_of(tasks: Collection[Task]) -> dict[int, list[Question]]:
    """The open questions by the task's id, with one look at the database."""
    found: dict[int, list[Question]] = defaultdict(list)
    questions = Question.objects.open().filter(task__in=[task.pk for task in tasks])
    for question in questions.select_related("task__project", "step", "answered_by"):
        found[question.task_id].append(question)
    return found


def how_to_fetch(task: Task) -> str | None:
    """The git command that brings the task's branch into a person's clone; None if it has no work yet."""
    if not task.head_commit:
        return None
    return fetch_command(task.project, task.branch)


def fetch_command(project: Project, branch: str) -> str:
    """Makes the branch in a person's clone, too: with its name alone there would only be a FETCH_HEAD."""
    return shlex.join(["git", "fetch", str(paths.repository(project).path), f"{branch}:{branch}"])


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
