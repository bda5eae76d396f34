"""The head of a task's pages: its state, the one primary action, the tabs, and the line for what arrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import Question, Review, Task
from tasks_app.services.reviews import approvals_of
from tasks_app.web.access import may_act, number_from, principal_of
from tasks_app.web.publishing import PublishingDetails, publishing_details
from tasks_app.web.rendering.activity import activities
from tasks_app.web.tasks.details import TaskDetails

#: Characters of a question in the line for what arrives.
_MOST_ASKED = 300


class Tab(StrEnum):
    """A page of a task."""

    OVERVIEW = "overview"
    LOG = "log"
    CHANGES = "changes"
    QUESTIONS = "questions"
    DETAILS = "details"

    @property
    def label(self) -> str:
        return self.value.capitalize()

    def url(self, task: Task) -> str:
        names = {Tab.OVERVIEW: "task", Tab.CHANGES: "task_diff"}
        return reverse(names.get(self, f"task_{self}"), args=[task.pk])


class Mode(StrEnum):
    """What the overview shows first. An open page keeps its mode; the head offers the other one."""

    #: Not started: the text of the task.
    NEW = "new"
    #: Its log.
    WORKING = "working"
    #: The open questions, with the end of the log beside them.
    WAITING = "waiting"
    #: What came of it.
    ENDED = "ended"


def mode_of(task: Task, questions: list[Question]) -> Mode:
    """Return the mode for a task with these open questions."""
    if questions:
        return Mode.WAITING
    if task.is_ended:
        return Mode.ENDED
    if task.not_started:
        return Mode.NEW
    return Mode.WORKING


@dataclass(frozen=True)
class Arrival:
    """What has happened since the page was loaded, and the link that shows it."""

    text: str
    label: str
    url: str


@dataclass(frozen=True)
class Head:
    """The head of a page. `shown` is the mode of an open overview, `known` the questions that it has."""

    task: Task
    details: TaskDetails
    questions: list[Question]
    may_act: bool
    tab: Tab
    shown: Mode | None = None
    known: frozenset[int] = field(default=frozenset())

    @property
    def mode(self) -> Mode:
        return mode_of(self.task, self.questions)

    @property
    def tabs(self) -> list[tuple[Tab, str]]:
        return [(tab, tab.url(self.task)) for tab in Tab]

    @property
    def query(self) -> str:
        """The parameters with which the page fetches its head again."""
        known = "".join(f"&known={number}" for number in sorted(self.known))
        return f"?tab={self.tab}&shown={self.shown or ''}{known}"

    @property
    def new_questions(self) -> list[Question]:
        return [one for one in self.questions if one.pk not in self.known]

    @cached_property
    def arrival(self) -> Arrival | None:
        """What the page does not show yet; None if it shows what is true."""
        # Another address than that of the page, as the browser would only scroll.
        url = f"{Tab.OVERVIEW.url(self.task)}?now"
        # The tab of the questions lists them itself.
        if self.new_questions and self.tab is not Tab.QUESTIONS:
            asked = self.new_questions[0]
            label = "Show"
            if self.may_act:
                label = "Answer"
            return Arrival(f"The agent asks: {asked.title.asked[:_MOST_ASKED]}", label, self.answer_url)
        if self.shown in (None, self.mode) or self.mode is Mode.NEW:
            return None
        if self.mode is Mode.ENDED and self.task.phase == Phase.DONE:
            return Arrival(self.details.sentence, "Show result", url)
        if self.mode is Mode.ENDED:
            return Arrival("", "Show", url)
        return Arrival("", "Show log", url)

    @property
    def answer_url(self) -> str:
        """The first open question that the page does not show, on the overview."""
        return f"{Tab.OVERVIEW.url(self.task)}?now#question-{self.new_questions[0].pk}"

    @cached_property
    def publishing(self) -> PublishingDetails | None:
        return publishing_details(self.task, self.details.viewer)

    @property
    def offers_publishing(self) -> bool:
        """Return whether the result has its form for publishing in sight."""
        publishing = self.publishing
        if publishing is None or not self.may_act or publishing.is_published:
            return False
        return publishing.can_publish or publishing.can_approve

    @cached_property
    def approvals(self) -> list[Review]:
        """The approvals of the result."""
        if self.task.phase != Phase.DONE or not self.task.head_commit:
            return []
        return approvals_of(self.task)

    @property
    def has_changes(self) -> bool:
        if self.task.only_rehearsed:
            return False
        return bool(self.task.head_commit) and self.task.head_commit != self.task.base_commit

    @property
    def primary(self) -> str:
        """What is best done next: start, answer, resume, review, publish, pull_request, or "" for nothing."""
        if self.questions:
            # The overview has the card's own buttons.
            if self.may_act and (self.tab is not Tab.OVERVIEW or self.new_questions):
                return "answer"
            return ""
        if self.may_act and self.task.not_started:
            return "start"
        if self.may_act and self.details.can_resume:
            return "resume"
        if self.task.phase == Phase.DONE and self.has_changes and not self.details.is_continued:
            return self._primary_of_result
        return ""

    @property
    def _primary_of_result(self) -> str:
        publishing = self.publishing
        if publishing and publishing.pull_request:
            if publishing.pull_request.is_open and publishing.pull_request.web_url:
                return "pull_request"
            return ""
        if publishing and (publishing.is_published or (publishing.last and publishing.last.is_pending)):
            return ""
        if publishing and self.may_act and self.approvals and publishing.can_publish:
            return "publish"
        if self.tab is Tab.CHANGES:
            return ""
        return "review"


def head_context(
    request: HttpRequest, task: Task, tab: Tab, *, questions: list[Question] | None = None, **shown: Any
) -> dict[str, Any]:
    """Return what each page of a task needs. `questions`: the open ones, if the caller has them already."""
    if questions is None:
        questions = list(task.questions.open().order_by("number"))
    details, acts = TaskDetails(task, principal_of(request)), may_act(request, task.project)
    return {
        "task": task,
        "details": details,
        "may_act": acts,
        "head": Head(task, details, questions, acts, tab, **shown),
        "activities": activities([task]),
    }


def asked_head(request: HttpRequest, task: Task) -> dict[str, Any]:
    """Return the context of the head that an open page fetches again: `?tab=`, `&shown=`, `&known=`."""
    tab, shown = Tab.OVERVIEW, None
    if request.GET.get("tab") in set(Tab):
        tab = Tab(request.GET["tab"])
    if request.GET.get("shown") in set(Mode):
        shown = Mode(request.GET["shown"])
    numbers = (number_from(one) for one in request.GET.getlist("known"))
    known = frozenset(one for one in numbers if one is not None)
    return head_context(request, task, tab, shown=shown, known=known)
