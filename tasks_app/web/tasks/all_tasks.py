"""All tasks and questions, with search, filters, pages and exports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models.functions import Substr
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from tasks_app.core.phases import PHASE_DISPLAYS, Phase
from tasks_app.history.audit import record, truncated_query
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import Action, Channel, Question, Task
from tasks_app.permissions import Principal, sequences_visible_to
from tasks_app.services import exports
from tasks_app.services.exports import QUESTION_COLUMNS, TASK_COLUMNS, question_rows, task_rows
from tasks_app.services.list_filters import ANY, NONE, ListFilters
from tasks_app.services.search import (
    PageCursor,
    PageOfIds,
    Query,
    TextPart,
    lines_around_hit,
    mark_hits,
    page_of_ids,
    questions_with,
    rows_in_order,
    snippet,
)
from tasks_app.web.access import is_htmx, principal_of, visible_projects
from tasks_app.web.rendering.markdown import plain_text
from tasks_app.web.rendering.words import STATE_LABELS
from tasks_app.web.task_rows import of_rows, rows_of_tasks
from tasks_app.web.tasks.lists import summary_of

PER_PAGE = 40
#: Characters of a task's text in which the words that were found are looked for, to show them.
_SHOWN = 20_000
#: Of an answer without them.
_ANSWER = 300
#: The newest rows, whose pipelines, people and models are offered to choose from.
_RECENT = 300

TASKS, QUESTIONS = "tasks", "questions"


@dataclass(frozen=True)
class TaskResult:
    """A task in the results, with matching texts. `asked` is its first matching question."""

    task: Task
    title: list[TextPart]
    words: list[TextPart]
    asked: Question | None
    asked_words: list[TextPart]


@dataclass(frozen=True)
class QuestionResult:
    """A question in the results, with matching texts."""

    question: Question
    headline: list[TextPart]
    answer: list[TextPart]


def all_tasks(request: HttpRequest) -> HttpResponse:
    """List tasks, or with `?kind=questions` questions. HTMX gets only the list."""
    principal, filters = principal_of(request), ListFilters.from_query(request.GET)
    kind, place = _kind_of(request), PageCursor.from_query(request.GET)
    find = _questions if kind == QUESTIONS else _found_tasks
    context = find(request, filters, place)
    urls = _urls(filters, kind, place)
    context |= {"filters": filters, "kind": kind, "place": place, **urls}
    context["in_use"] = _filters_in_use(filters, kind, principal)
    if is_htmx(request):
        return render(request, "tasks/list/_results.html", {**context, "alone": True})
    context |= {
        "projects": visible_projects(request),
        **_filter_values(principal, filters, kind),
        **summary_of(request),
    }
    return render(request, "tasks/list/all.html", context)


def tasks_export(request: HttpRequest, form: str) -> StreamingHttpResponse:
    """Export all filtered rows as `csv` or `json`, and record the export."""
    if form not in exports.FORMATS:
        raise Http404(f"There is no export as “{form}”.")
    principal, filters = principal_of(request), ListFilters.from_query(request.GET)
    kind = _kind_of(request)
    record(Action.EXPORTED, by=principal.user, subject=kind, form=form, filters=truncated_query(request.GET))
    if kind == QUESTIONS:
        rows, columns = question_rows(filters.matching_questions(principal)), QUESTION_COLUMNS
    else:
        rows, columns = task_rows(filters.matching_tasks(principal)), TASK_COLUMNS
    return exports.export_rows(columns, rows, name=kind, file_format=form)


def _kind_of(request: HttpRequest) -> str:
    return QUESTIONS if request.GET.get("kind") == QUESTIONS else TASKS


def _found_tasks(request: HttpRequest, filters: ListFilters, place: PageCursor) -> dict[str, Any]:
    part = page_of_ids(filters.matching_tasks(principal_of(request)), place, PER_PAGE)
    more = {"shown_body": Substr("body", 1, _SHOWN)} if filters.words else {}
    tasks = rows_of_tasks(part.ids, **more)
    asked = _matching_question_of(filters, part) if filters.words else {}
    rows = [_task_result(filters, task, asked.get(task.pk)) for task in tasks]
    return {"rows": rows, "slice": part, **of_rows(request, tasks)}


def _matching_question_of(filters: ListFilters, part: PageOfIds) -> dict[int, Question]:
    """Return the first matching question of each task, by task id."""
    found: dict[int, Question] = {}
    questions = Question.objects.filter(task__in=part.ids).order_by("pk")
    for question in questions_with(questions, filters.words):
        found.setdefault(question.task_id, question)
    return found


def _task_result(filters: ListFilters, task: Task, asked: Question | None) -> TaskResult:
    query = filters.words
    if not query:
        return TaskResult(task, [TextPart(task.title)], [], asked, [])
    title = mark_hits(_without_code(task.title), query)
    words = snippet(_without_code(task.failure), query) or _snippet(getattr(task, "shown_body", ""), query)
    return TaskResult(task, title, words, asked, _question_snippet(filters, asked))


def _without_code(text: str) -> str:
    """Remove the backticks of code: marking a word within it would split the markup."""
    return text.replace("`", "")


def _snippet(markdown: str, query: Query) -> list[TextPart]:
    """Return a snippet of the rendered text, or of the source if only that matches, as in a link's URL."""
    return snippet(plain_text(lines_around_hit(markdown, query)), query) or snippet(markdown, query)


def _question_snippet(filters: ListFilters, question: Question | None) -> list[TextPart]:
    """Return the question's first line, or the answer if only that matches."""
    if question is None:
        return []
    texts = (question.headline, question.answer_text, _all_text(question))
    found = (_snippet(text, filters.words) for text in texts)
    return next(filter(None, found), [TextPart(plain_text(str(question.title)))])


def _all_text(question: Question) -> str:
    # The options of approvals and plans are words of the portal, which search does not find.
    items = question.items if question.takes_answer else []
    options = (option for item in items for option in item.get("options", ()))
    shown = [f"{option.get('label', '')}: {option.get('description', '')}" for option in options]
    return " · ".join([*shown, *(str(piece.get("text", "")) for piece in question.evidence)])[:_SHOWN]


def _questions(request: HttpRequest, filters: ListFilters, place: PageCursor) -> dict[str, Any]:
    part = page_of_ids(filters.matching_questions(principal_of(request)), place, PER_PAGE)
    related = Question.objects.select_related("task__project", "step", "answered_by", "applied").defer(
        "task__text", "task__body", "tool_input"
    )
    questions = rows_in_order(related, part.ids)
    rows = [_question_result(filters, question) for question in questions]
    return {"rows": rows, "slice": part, "failed_approvals": failed_approvals(questions)}


def _question_result(filters: ListFilters, question: Question) -> QuestionResult:
    """Return a result with the answer, or with the context if only that matches."""
    line, answer = plain_text(question.title.sentence), question.answer_text[:_SHOWN]
    words = _snippet(answer, filters.words)
    if not words and not snippet(line, filters.words):
        words = _snippet(question.headline[:_SHOWN], filters.words)
    if answer and not words:
        words = [TextPart(plain_text(answer[:_ANSWER]))]
    return QuestionResult(question, mark_hits(line, filters.words), words)


def _urls(filters: ListFilters, kind: str, place: PageCursor) -> dict[str, str]:
    """Return the URLs of exports and of the other order with the same filters."""
    same: dict[str, Any] = filters.url_parameters()
    if kind == QUESTIONS:
        same["kind"] = kind
    order = {"sort": "oldest"} if place.oldest_first else {}
    return {"filtered": urlencode(same, doseq=True), "ordered": urlencode({**same, **order}, doseq=True)}


def _filters_in_use(filters: ListFilters, kind: str, principal: Principal) -> list[tuple[str, str]]:
    """Return what each filter lets through, in words, with the URL parameters of all others."""
    found, same = [], filters.url_parameters()
    if kind == QUESTIONS:
        same["kind"] = kind
    for name in filters.url_parameters().keys() - {"q"}:
        others = {key: value for key, value in same.items() if key != name}
        found.append((_in_words(name, same[name], principal), urlencode(others, doseq=True)))
    return sorted(found)


def _in_words(name: str, value: Any, principal: Principal) -> str:
    if name == "phase":
        return ", ".join(PHASE_DISPLAYS[Phase(one)].label for one in value)
    if name == "questions":
        return {ANY: "with questions", NONE: "without questions"}[value]
    if name == "sequence":
        folders = sequences_visible_to(principal).filter(pk=value).values_list("folder", flat=True)
        value = folders.first() or value
    return f"{name}: {value}"


def _filter_values(principal: Principal, filters: ListFilters, kind: str) -> dict[str, Any]:
    """Return the values of the filters; of free names, only recent ones."""
    context: dict[str, Any] = {"channels": Channel.choices}
    context |= {
        "states": STATE_LABELS.items(),
        "phases": [(one.value, display) for one, display in PHASE_DISPLAYS.items()],
    }
    if kind == TASKS:
        context |= _recent(principal)
        context["sequences"] = sequences_visible_to(principal).order_by("-pk")[:50]
    else:
        ids = page_of_ids(ListFilters().matching_questions(principal), PageCursor(), _RECENT).ids
        questions = Question.objects.filter(pk__in=ids).order_by()
        context["people"] = _sorted_names(
            questions.values_list("answered_by__username", flat=True).distinct()
        )
    return context


def _recent(principal: Principal) -> dict[str, list[str]]:
    """Return values of the newest rows; ids first, because an index has them."""
    ids = page_of_ids(ListFilters().matching_tasks(principal), PageCursor(), _RECENT).ids
    tasks = Task.objects.filter(pk__in=ids).order_by()
    rows = list(tasks.values_list("pipeline", "created_by__username", "steps__runs__model").distinct())
    return {
        "pipelines": _sorted_names(pipeline for pipeline, _, _ in rows),
        "people": _sorted_names(username for _, username, _ in rows),
        "models": _sorted_names(model for _, _, model in rows),
    }


def _sorted_names(found: Iterable[str | None]) -> list[str]:
    return sorted({name for name in found if name})
