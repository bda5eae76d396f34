"""The inbox: what people are needed for. Questions by state, results to review, and failed tasks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.core.text import storable_text
from tasks_app.models import (
    Decision,
    Question,
    QuestionKind,
    QuestionState,
    User,
    asked_of,
    asked_of_groups_of,
    by_urgency,
)
from tasks_app.models.question import QuestionQuerySet
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import (
    Principal,
    projects_actable_by,
    projects_visible_to,
    questions_visible_to,
    tasks_visible_to,
)
from tasks_app.services.questions.approvals import together
from tasks_app.services.task_groups import FAILED, REVIEW, ids_in_order, tasks_in_group
from tasks_app.web.access import is_htmx, number_from, principal_of
from tasks_app.web.counting import CappedPaginator, Tab, count_words, numbers_of_each
from tasks_app.web.questions.cards import card_of
from tasks_app.web.rendering.activity import last_lines
from tasks_app.web.rendering.words import STATE_LABELS
from tasks_app.web.task_rows import of_rows, rows_of_tasks

PER_PAGE = 50
#: More names than fit into a list help nobody.
_MOST_NAMES = 200
#: Projects whose decisions are to be reviewed.
_MOST_REVIEWED = 10
#: The newest questions, whose steps are offered to choose from.
_NEWEST = 500
#: What the agent did last, below the card.
_LINES = 8

AGES = {
    "1h": ("an hour", timedelta(hours=1)),
    "1d": ("a day", timedelta(days=1)),
    "1w": ("a week", timedelta(weeks=1)),
    "30d": ("30 days", timedelta(days=30)),
}
#: Of whom open questions are asked: the segments of their tab.
ASKED_ME, ASKED_GROUPS, ASKED_ALL = "me", "groups", "all"
_ASKED = {ASKED_ME: "Asked of me", ASKED_GROUPS: "My groups", ASKED_ALL: "All"}
#: The value of `person` for tasks that the person who looks created; any other is who answered.
MINE = "mine"


@dataclass(frozen=True)
class InboxFilters:
    """The filters in the URL; unset and invalid ones are empty."""

    project: str = ""
    step: str = ""
    kind: str = ""
    age: str = ""
    person: str = ""
    asked: str = ""

    @classmethod
    def from_request(cls, request: HttpRequest) -> InboxFilters:
        given = {one.name: storable_text(request.GET.get(one.name, ""))[:200] for one in fields(cls)}
        if given["kind"] not in QuestionKind.values:
            given["kind"] = ""
        if given["age"] not in AGES:
            given["age"] = ""
        if given["asked"] not in (ASKED_GROUPS, ASKED_ALL):  # of oneself without saying so
            given["asked"] = ""
        return cls(**given)

    def __bool__(self) -> bool:
        return any(self.query().values())

    def query(self) -> dict[str, str]:
        """Return the filters that narrow each tab; `asked` is of the tab of open questions alone."""
        names = (one.name for one in fields(self) if one.name != "asked")
        return {name: value for name in names if (value := getattr(self, name))}

    def of_questions(self, user: User) -> Q:
        """Return the condition of all filters except the state and `asked`."""
        wanted = Q()
        if self.project:
            wanted &= Q(task__project__name=self.project)
        if self.step:
            wanted &= Q(step__name=self.step)
        if self.kind:
            wanted &= Q(kind=self.kind)
        if self.age:
            wanted &= Q(asked_at__lt=timezone.now() - AGES[self.age][1])
        if self.person == MINE:
            wanted &= Q(task__created_by=user)
        elif self.person:
            wanted &= Q(answered_by__username=self.person)
        return wanted


#: Tabs of tasks, beside those of questions; and how long ago a listed task failed at most.
_TASK_TABS = {REVIEW.key: REVIEW, FAILED.key: FAILED}
FAILED_WITHIN = timedelta(days=7)
#: The tabs in their order: what is to be done, then what was done.
_LABELS = {
    QuestionState.OPEN: STATE_LABELS[QuestionState.OPEN],
    **{key: group.counted for key, group in _TASK_TABS.items()},
    **STATE_LABELS,
}


def inbox(request: HttpRequest) -> HttpResponse:
    """Show the list of questions beside the selected one, by default the first; or a tab of tasks.

    `?part=` is what HTMX fetches alone: `tabs` with their counts, the `list`, or the selected `question`.
    With `&first` the list brings the card of the first question along, for a window that shows none.
    """
    principal, filters = principal_of(request), InboxFilters.from_request(request)
    state = request.GET.get("state", "")
    if state not in _LABELS:
        state = QuestionState.OPEN
    part = request.GET.get("part") if is_htmx(request) else None
    seen = questions_visible_to(principal)
    matching = seen.filter(filters.of_questions(principal.user))
    if part == "tabs":
        return render(request, "inbox/_tabs.html", _tabs(principal, matching, filters, state))
    if state in _TASK_TABS:
        return _tasks_tab(request, principal, filters, state, matching)
    in_state = _in_state(matching, state, filters.asked, principal.user)
    page = CappedPaginator(_in_order(in_state, state), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "calls": together(page),
        "page": page,
        "state": state,
        "label": _LABELS[state],
        "filters": filters,
        "query": _query(filters, state, asked=filters.asked),
    }
    if part == "list" and "first" not in request.GET:
        return render(request, "inbox/_list.html", context)
    context |= _selected(request, seen, list(page))
    if part == "list":
        return render(request, "inbox/_list_with_card.html", context)
    if part == "question":
        return render(request, "inbox/_question.html", context)
    # The projects with decisions at which the user should look: id, name and how many.
    due = Decision.objects.to_review().filter(project__in=projects_actable_by(principal))
    rows = due.order_by("project__name").values_list("project_id", "project__name").annotate(Count("pk"))
    context |= {
        **_tabs(principal, matching, filters, state),
        "to_review": list(rows[:_MOST_REVIEWED]),
        **_filter_values(principal, seen, filters),
    }
    return render(request, "inbox/page.html", context)


def _selected(request: HttpRequest, seen: QuestionQuerySet, listed: list[Question]) -> dict[str, object]:
    """Return the card of the selected question, which need not be in the list any more, or of the first."""
    explicit = None
    if wanted := number_from(request.GET.get("question", "")):
        explicit = seen.filter(pk=wanted).shown().first()
    question = explicit or next(iter(listed), None)
    if question is None:
        return {}
    return {
        "card": card_of(request, question),
        "selected": question.pk,
        "explicit": explicit is not None,
        "lines": last_lines(question.run, before_call=question.tool_use_id)[-_LINES:],
    }


def _in_state(questions: QuestionQuerySet, state: str, asked: str, user: User) -> QuestionQuerySet:
    """Return the questions of a tab; of open ones, those that are asked of the user, their groups or all."""
    found = questions.filter(state=state)
    if state != QuestionState.OPEN or asked == ASKED_ALL:
        return found
    if asked == ASKED_GROUPS:
        return found.filter(asked_of_groups_of(user))
    return found.filter(asked_of(user))


def _in_order(questions: QuestionQuerySet, state: str) -> QuestionQuerySet:
    """Order open questions by what they block; others by their last change."""
    related = questions.shown()
    if state == QuestionState.OPEN:
        return by_urgency(related)
    if state == QuestionState.ANSWERED:
        return related.order_by("-answered_at", "-pk")
    return related.order_by("-asked_at", "-pk")


def _tasks_tab(
    request: HttpRequest,
    principal: Principal,
    filters: InboxFilters,
    state: str,
    matching: QuestionQuerySet,
) -> HttpResponse:
    """Render a tab of tasks. HTMX gets only the list."""
    found = ids_in_order(_tasks_in_tab(principal, filters, state), _TASK_TABS[state])
    page: Page[int] = CappedPaginator(found, PER_PAGE).get_page(request.GET.get("page"))
    tasks = rows_of_tasks(list(page.object_list))
    context = {
        **of_rows(request, tasks),
        "tasks": tasks,
        "page": page,
        "state": state,
        "filters": filters,
        "query": urlencode({"state": state, **filters.query()}),
    }
    if is_htmx(request):
        return render(request, "inbox/_tasks.html", context)
    context |= _tabs(principal, matching, filters, state)
    if dismissed := number_from(request.GET.get("dismissed", "")):
        seen = tasks_visible_to(principal)
        context["dismissed"] = seen.filter(pk=dismissed, failure_dismissed=True).first()
    return render(request, "inbox/tasks.html", context)


def _tasks_in_tab(principal: Principal, filters: InboxFilters, state: str) -> TaskQuerySet:
    """Return the tasks of a tab, of projects in which the user may act."""
    tasks = tasks_visible_to(principal).filter(project__in=projects_actable_by(principal).order_by())
    if filters.project:
        tasks = tasks.filter(project__name=filters.project)
    if filters.person == MINE:
        tasks = tasks.filter(created_by=principal.user)
    found = tasks_in_group(tasks, _TASK_TABS[state], principal)
    if state == FAILED.key:
        recent = timezone.now() - FAILED_WITHIN
        found = found.exclude(ended_at__lt=recent)
    return found


def _tabs(
    principal: Principal, matching: QuestionQuerySet, filters: InboxFilters, state: str
) -> dict[str, Any]:
    """Return the tabs with their numbers, and the segments of open questions if they differ; one query.

    The tab of open questions counts those that are asked of the user.
    """
    user = principal.user
    rows: dict[str, QuerySet[Any]] = {one: matching.filter(state=one) for one in STATE_LABELS}
    rows |= {one: _tasks_in_tab(principal, filters, one) for one in _TASK_TABS}
    rows |= {one: _in_state(matching, QuestionState.OPEN, one, user) for one in _ASKED}
    rows[QuestionState.OPEN] = rows[ASKED_ME]
    numbers = numbers_of_each(user, rows)
    chosen = filters.asked or ASKED_ME
    segments = [
        Tab(one, label, count_words(numbers[one]), _query(filters, QuestionState.OPEN, asked=one))
        for one, label in _ASKED.items()
        if one != ASKED_GROUPS or numbers[one] or chosen == one
    ]
    if numbers[ASKED_ME] == numbers[ASKED_ALL] and chosen == ASKED_ME:  # nobody routes questions
        segments = []
    tabs = [
        Tab(one, label, count_words(numbers[one]), _query(filters, one)) for one, label in _LABELS.items()
    ]
    return {"tabs": tabs, "segments": segments, "asked": chosen, "state": state}


def _query(filters: InboxFilters, state: str, *, asked: str = "") -> str:
    """Return the part of a URL that leads to a tab with the same filters."""
    given = {"state": state, **filters.query()}
    if asked and asked != ASKED_ME:
        given["asked"] = asked
    return urlencode(given)


def _filter_values(principal: Principal, seen: QuestionQuerySet, filters: InboxFilters) -> dict[str, object]:
    """Return the existing values of the filters."""
    answerers = User.objects.filter(Exists(seen.filter(answered_by=OuterRef("pk"))))
    newest = seen.order_by("-asked_at", "-pk").values_list("step__name", flat=True)[:_NEWEST]
    return {
        "projects": projects_visible_to(principal).order_by("name")[:_MOST_NAMES],
        "steps": sorted({*newest, filters.step} - {""})[:_MOST_NAMES],
        "kinds": QuestionKind.choices,
        "ages": [(key, words) for key, (words, _) in AGES.items()],
        "answerers": answerers.order_by("username")[:_MOST_NAMES],
    }
