"""Flat rows of tasks and questions for exports, read in batches to bound memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import QuerySet

from tasks_app.history import statistics
from tasks_app.models import Question, Task
from tasks_app.services.search.finding import iterate_ids, rows_in_order

BATCH_SIZE = 500

Row = dict[str, Any]

TASK_COLUMNS = [
    *("id", "title", "project", "sequence", "pipeline", "phase", "created_by"),
    *("created_at", "started_at", "ended_at", "seconds", "seconds_without_waiting", "seconds_waiting"),
    *("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd", "models"),
    *("questions", "answered_by", "failure", "finished_early"),
]
QUESTION_COLUMNS = [
    *("id", "project", "task", "title", "step", "number", "kind", "state", "question", "verdict", "answer"),
    *(
        "notes",
        "asked_at",
        "answered_at",
        "seconds",
        "answered_by",
        "answered_via",
        "applied",
        "about_goal",
        "late",
    ),
]


def task_rows(tasks: QuerySet[Task]) -> Iterator[Row]:
    """Yield tasks, newest first. Durations are seconds; waiting is for people and for limits."""
    related = Task.objects.select_related("project", "sequence", "created_by").defer("text", "body")
    for ids in iterate_ids(tasks, BATCH_SIZE):
        part = rows_in_order(related, ids)
        metrics, asked = statistics.of_tasks(part), _question_counts(ids)
        for task in part:
            yield _task_row(task, metrics[task.pk], asked.get(task.pk, (0, [])))


def question_rows(questions: QuerySet[Question]) -> Iterator[Row]:
    """Yield questions, newest first. `seconds` is the time to the answer."""
    related = Question.objects.select_related("task__project", "step", "answered_by", "applied")
    for ids in iterate_ids(questions, BATCH_SIZE):
        for question in rows_in_order(related, ids):
            yield _question_row(question)


def _question_counts(ids: list[int]) -> Mapping[int, tuple[int, list[str]]]:
    """Return the number of questions and the usernames of those who answered, by task id."""
    counts: dict[int, int] = defaultdict(int)
    answered_by: dict[int, list[str]] = defaultdict(list)
    rows = Question.objects.filter(task__in=ids).order_by("pk").values_list("task", "answered_by__username")
    for task, username in rows:
        counts[task] += 1
        if username and username not in answered_by[task]:
            answered_by[task].append(username)
    return {task: (count, answered_by[task]) for task, count in counts.items()}


def _task_row(task: Task, metrics: statistics.Metrics, asked: tuple[int, list[str]]) -> Row:
    usage, duration = metrics.usage, metrics.duration
    return {
        "id": task.pk,
        "title": task.title,
        "project": task.project.name,
        "sequence": task.sequence.folder if task.sequence else "",
        "pipeline": task.pipeline,
        "phase": task.shown_phase,
        "created_by": task.created_by.username if task.created_by else "",
        "created_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "seconds": _rounded_seconds(duration.total),
        "seconds_without_waiting": _rounded_seconds(duration.working),
        "seconds_waiting": _rounded_seconds(duration.paused),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cost_usd": round(usage.cost_usd, 6),
        "models": ", ".join(sorted(filter(None, metrics.by_model))),
        "questions": asked[0],
        "answered_by": ", ".join(asked[1]),
        "failure": task.failure,
        "finished_early": task.finished_early,
    }


def _question_row(question: Question) -> Row:
    waited = (question.answered_at - question.asked_at).total_seconds() if question.answered_at else None
    return {
        "id": question.pk,
        "project": question.task.project.name,
        "task": question.task_id,
        "title": question.task.title,
        "step": question.step.name,
        "number": question.number,
        "kind": question.kind,
        "state": question.state,
        "question": "\n".join(str(item["question"]) for item in question.items),
        "verdict": question.verdict,
        "answer": "\n".join(question.answers_in_order.values()),
        "notes": question.notes,
        "asked_at": question.asked_at,
        "answered_at": question.answered_at,
        "seconds": _rounded_seconds(waited),
        "answered_by": question.answered_by.username if question.answered_by else "",
        "answered_via": question.answered_via,
        "applied": question.applied.label if question.applied else "",
        "about_goal": question.about_goal,
        "late": question.is_late,
    }


def _rounded_seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
