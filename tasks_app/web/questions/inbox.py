"""The inbox: questions by state, filtered by project, step, age and user."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from urllib.parse import urlencode

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.core.text import storable_text
from tasks_app.models import SHOWN_WITH, Decision, Question, QuestionKind, QuestionState, User
from tasks_app.models.question import QuestionQuerySet
from tasks_app.permissions import (
    Principal,
    projects_actable_by,
    projects_visible_to,
    questions_visible_to,
)
from tasks_app.web.access import is_htmx, number_from, principal_of
from tasks_app.web.counting import CappedPaginator, Tab, tabs_of
from tasks_app.web.questions.cards import card_of
from tasks_app.web.rendering.activity import last_lines
from tasks_app.web.rendering.words import STATE_LABELS

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

    @classmethod
    def from_request(cls, request: HttpRequest) -> InboxFilters:
        given = {one.name: storable_text(request.GET.get(one.name, ""))[:200] for one in fields(cls)}
        if given["kind"] not in QuestionKind.values:
            given["kind"] = ""
        if given["age"] not in AGES:
            given["age"] = ""
        return cls(**given)

    def __bool__(self) -> bool:
        return any(self.query().values())

    def query(self) -> dict[str, str]:
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name))}

    def of_questions(self, user: User) -> Q:
        """Return the condition of all filters except the state."""
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


def inbox(request: HttpRequest) -> HttpResponse:
    """Show the list of questions beside the selected one, by default the first.

    `?part=` is what HTMX fetches alone: `tabs` with their counts, the `list`, or the selected `question`.
    With `&first` the list brings the card of the first question along, for a window that shows none.
    """
    principal, filters = principal_of(request), InboxFilters.from_request(request)
    state = request.GET.get("state", "")
    if state not in QuestionState.values:
        state = QuestionState.OPEN
    part = request.GET.get("part") if is_htmx(request) else None
    seen = questions_visible_to(principal)
    matching = seen.filter(filters.of_questions(principal.user))
    if part == "tabs":
        tabs = {"tabs": _tabs(principal, matching, filters), "state": state}
        return render(request, "questions/inbox/_tabs.html", tabs)
    page = CappedPaginator(_in_order(matching, state), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "rows": list(page),
        "page": page,
        "state": state,
        "label": STATE_LABELS[state],
        "filters": filters,
        "query": urlencode({"state": state, **filters.query()}),
    }
    if part == "list" and "first" not in request.GET:
        return render(request, "questions/inbox/_list.html", context)
    context |= _selected(request, seen, list(page))
    if part == "list":
        return render(request, "questions/inbox/_list_with_card.html", context)
    if part == "question":
        return render(request, "questions/inbox/_question.html", context)
    context |= {
        "tabs": _tabs(principal, matching, filters),
        "to_review": _decisions_to_review(principal),
        **_filter_values(principal, seen, filters),
    }
    return render(request, "questions/inbox/page.html", context)


def _decisions_to_review(principal: Principal) -> list[tuple[int, str, int]]:
    """Return the projects with decisions at which the user should look: id, name and how many."""
    due = Decision.objects.to_review().filter(project__in=projects_actable_by(principal))
    rows = due.order_by("project__name").values_list("project_id", "project__name").annotate(Count("pk"))
    return list(rows[:_MOST_REVIEWED])


def _selected(request: HttpRequest, seen: QuestionQuerySet, listed: list[Question]) -> dict[str, object]:
    """Return the card of the selected question, which need not be in the list any more, or of the first."""
    explicit = None
    if wanted := number_from(request.GET.get("question", "")):
        explicit = seen.filter(pk=wanted).select_related(*SHOWN_WITH).first()
    question = explicit or next(iter(listed), None)
    if question is None:
        return {}
    return {
        "card": card_of(request, question),
        "selected": question.pk,
        "explicit": explicit is not None,
        "lines": last_lines(question.run)[-_LINES:],
    }


def _in_order(questions: QuerySet[Question], state: str) -> QuerySet[Question]:
    """Order open questions by age, others by their last change."""
    related = questions.filter(state=state).select_related(*SHOWN_WITH)
    if state == QuestionState.OPEN:
        return related.order_by("asked_at", "pk")
    if state == QuestionState.ANSWERED:
        return related.order_by("-answered_at", "-pk")
    return related.order_by("-asked_at", "-pk")


def _tabs(principal: Principal, matching: QuerySet[Question], filters: InboxFilters) -> list[Tab]:
    rows = {state: matching.filter(state=state) for state in STATE_LABELS}
    return tabs_of(
        principal.user, STATE_LABELS, rows, lambda state: urlencode({"state": state, **filters.query()})
    )


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
