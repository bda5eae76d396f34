"""Exports: rows as CSV or lines of JSON, streamed, so that none is held in memory as a whole."""

from __future__ import annotations

import csv
import json
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from tasks_app.core.errors import WorkspaceError
from tasks_app.history.audit import record_once_an_hour
from tasks_app.models import Action, Question, Sequence, Step, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.difference import Difference, difference_of
from tasks_app.services.search import iterate_ids, rows_in_order
from tasks_app.services.usage import statistics

#: Formats of exported rows.
FORMATS = ("csv", "json")
#: The media type of a patch.
PATCH_TYPE = "text/x-diff"
#: Patches that one user can download at once. Each needs a git process, which may hold a large file in
#: memory, until its last piece is read.
MAX_PATCHES = 4
#: By the key of the user.
downloads_under_way: Counter[int] = Counter()
_lock = threading.Lock()


def record_download(name: str, *, by: Principal, of: Task | Step | Sequence) -> None:
    """Record that somebody took a log, a plan or a patch away, once an hour for each file."""
    task: Task | None = None
    if isinstance(of, Step):
        of = of.task
    if isinstance(of, Task):
        task = of
    record_once_an_hour(Action.DOWNLOADED, by=by.user, subject=name, task=task, project=of.project)


def download(pieces: Iterator[str], *, name: str, kind: str) -> StreamingHttpResponse:
    """Return a file with this name; `kind` is its media type."""
    return _attachment(stream_text(pieces), name=name, content_type=f"{kind}; charset=utf-8")


def download_patch(what: Task | Step | Sequence, *, by: Principal) -> StreamingHttpResponse:
    """Return its changes for `git apply`. Raises as download_difference does."""
    response = download_difference(difference_of(what), name=_file_stem(what), by=by)
    try:
        record_download(f"{_file_stem(what)}.patch", by=by, of=what)
    except BaseException:
        response.close()  # it would keep the user's place
        raise
    return response


def download_difference(difference: Difference | None, *, name: str, by: Principal) -> StreamingHttpResponse:
    """Return a difference for `git apply`, without a charset, because files can have different ones.

    Raises WorkspaceError if there is nothing to compare yet, if a commit is gone, or if the user already
    downloads `MAX_PATCHES`.
    """
    if difference is None:
        raise WorkspaceError("There is nothing to compare yet.")
    with _lock:
        if downloads_under_way[by.user.pk] >= MAX_PATCHES:
            raise WorkspaceError(
                f"You are already downloading {MAX_PATCHES} patches. Wait for one of them to end."
            )
        downloads_under_way[by.user.pk] += 1
    pieces = _uncount_at_end(by.user, difference.patch)
    next(pieces)
    return _attachment(stream_bytes(pieces), name=f"{name}.patch", content_type=PATCH_TYPE)


def _uncount_at_end(user: User, patch: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield an empty piece first: only a started generator runs `finally` if nobody reads on."""
    try:
        pieces = patch()
        yield b""
        yield from pieces
    finally:
        with _lock:
            downloads_under_way[user.pk] -= 1


def _file_stem(what: Task | Step | Sequence) -> str:
    if isinstance(what, Step):
        return f"task-{what.task_id}-step-{what.position}"
    return f"{what._meta.model_name}-{what.pk}"


def _attachment(pieces: AsyncIterator[Any], *, name: str, content_type: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(pieces, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def export_rows(
    columns: list[str], rows: Iterable[dict[str, Any]], *, name: str, file_format: str
) -> StreamingHttpResponse:
    """Return rows as a file: `csv` with a header, or `json` as one array."""
    if file_format == "csv":
        lines = csv_lines(columns, ([row[column] for column in columns] for row in rows))
        return download(lines, name=f"{name}.csv", kind="text/csv")
    return download(_json_lines(rows), name=f"{name}.json", kind="application/json")


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "["
    separator = "\n"
    for row in rows:
        yield separator + json.dumps(row, default=datetime.isoformat, ensure_ascii=False)
        separator = ",\n"
    yield "\n]\n"


#: Characters (also full-width ones) at which spreadsheets begin a formula, which could send data out. An
#: apostrophe before them prevents it.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Echo:
    """A file whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: list[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield the header and a line for each row. Times are ISO 8601, objects JSON, None is empty."""
    yield csv.writer(_Echo()).writerow(columns)
    # Quote all texts: where spreadsheets separate cells with semicolons, a text may contain one.
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    if value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


#: Pieces of a log, about a line each, that are sent together.
PIECES = 200


async def stream_text(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Yield texts, some pieces at a time."""
    while part := await sync_to_async(lambda: "".join(islice(pieces, PIECES)))():
        yield part


async def stream_bytes(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield bytes, one piece at a time."""
    while part := await sync_to_async(lambda: next(pieces, b""))():
        yield part


# Flat rows of tasks and questions for exports, read in batches to bound memory.


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
    *("notes", "asked_at", "answered_at", "seconds", "answered_by", "answered_via"),
    *("applied", "ended_by_rule", "taken_back_at", "about_goal", "late"),
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
    """Return the number of questions and the usernames of who answered, by task id."""
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
        "finished_early": task.ended_early,
    }


def _question_row(question: Question) -> Row:
    waited = None
    if question.answered_at:
        waited = (question.answered_at - question.asked_at).total_seconds()
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
        "ended_by_rule": question.ended_by_rule,
        "taken_back_at": question.taken_back_at,
        "about_goal": question.about_goal,
        "late": question.is_late,
    }


def _rounded_seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
