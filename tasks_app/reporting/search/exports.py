"""Tasks and questions as flat rows to take away, read in parts: many need no more memory than few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import QuerySet

from tasks_app.history import statistics
from tasks_app.models import Question, Task
from tasks_app.reporting.search.paging import all_ids, in_order

PART = 500

Row = dict[str, Any]

TASK_COLUMNS = [
    *("id", "title", "project", "sequence", "pipeline", "phase", "created_by"),
    *("created_at", "started_at", "ended_at", "seconds", "seconds_without_waiting", "seconds_waiting"),
    *("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd", "models"),
    *("questions", "answered_by", "failure"),
]
QUESTION_COLUMNS = [
    *("id", "project", "task", "title", "step", "number", "kind", "state", "question", "verdict", "answer"),
    *("notes", "asked_at", "answered_at", "seconds", "answered_by", "answered_via"),
]


def task_rows(tasks: QuerySet[Task]) -> Iterator[Row]:
    """Newest first. Durations are seconds, empty before the start; waiting is for people and for limits."""
    related = Task.objects.select_related("project", "sequence", "created_by").defer("text", "body")
    for ids in all_ids(tasks, PART):
        part = in_order(related, ids)
        metrics, asked = statistics.of_tasks(part), _asked(ids)
        for task in part:
            yield _task_row(task, metrics[task.pk], asked.get(task.pk, (0, [])))


def question_rows(questions: QuerySet[Question]) -> Iterator[Row]:
    """Newest first. `seconds` is the time to the answer."""
    related = Question.objects.select_related("task__project", "step", "answered_by")
    for ids in all_ids(questions, PART):
        for question in in_order(related, ids):
            yield _question_row(question)


def _asked(ids: list[int]) -> Mapping[int, tuple[int, list[str]]]:
    """By the task: how many questions it has, and who answered."""
    counts: dict[int, int] = defaultdict(int)
    people: dict[int, list[str]] = defaultdict(list)
    rows = Question.objects.filter(task__in=ids).order_by("pk").values_list("task", "answered_by__username")
    for task, person in rows:
        counts[task] += 1
        if person and person not in people[task]:
            people[task].append(person)
    return {task: (count, people[task]) for task, count in counts.items()}


def _task_row(task: Task, metrics: statistics.Metrics, asked: tuple[int, list[str]]) -> Row:
    usage, duration = metrics.usage, metrics.duration
    return {
        "id": task.pk,
        "title": task.title,
        "project": task.project.name,
        "sequence": task.sequence.folder if task.sequence else "",
        "pipeline": task.pipeline,
        "phase": task.phase,
        "created_by": task.created_by.username if task.created_by else "",
        "created_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "seconds": _seconds(duration.total),
        "seconds_without_waiting": _seconds(duration.working),
        "seconds_waiting": _seconds(duration.paused),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cost_usd": round(usage.cost_usd, 6),
        "models": ", ".join(sorted(filter(None, metrics.by_model))),
        "questions": asked[0],
        "answered_by": ", ".join(asked[1]),
        "failure": task.failure,
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
        "seconds": _seconds(waited),
        "answered_by": question.answered_by.username if question.answered_by else "",
        "answered_via": question.answered_via,
    }


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
