"""Notifications: preferences, notices in the portal, and targets outside of it."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, Self

from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now

from tasks_app.core.phases import Phase
from tasks_app.models.asked import Asked
from tasks_app.models.project import Project
from tasks_app.models.publication import Publication
from tasks_app.models.question_kinds import KIND_NAMES, QuestionKind
from tasks_app.models.review import Review, ThreadComment
from tasks_app.models.rung import Rung
from tasks_app.models.task import Task
from tasks_app.models.transition import Transition
from tasks_app.models.user import User


class EventType(models.TextChoices):
    """An event type that users can be notified of; the label completes “when …”."""

    QUESTION = "question", "an agent asks"
    FAILED = "failed", "a task fails"
    DONE = "done", "a task is done"
    CANCELLED = "cancelled", "a task is cancelled"
    UNANSWERED = "unanswered", "a rule ends a question that nobody has answered"
    REVIEWED = "reviewed", "a result is reviewed or discussed"
    NOT_PUBLISHED = "not_published", "a result cannot be published"
    TOKEN_SEEN = "token_seen", "an agent saw one of your API tokens"
    TEST = "test", "a test is sent"


#: The event_type of each phase that a task can enter.
EVENT_TYPE_OF: dict[str, EventType] = {
    Phase.WAITING_FOR_INPUT: EventType.QUESTION,
    Phase.FAILED: EventType.FAILED,
    Phase.DONE: EventType.DONE,
    Phase.CANCELLED: EventType.CANCELLED,
}
#: EventTypes that users can choose.
TASK_EVENT_TYPES = (
    EventType.QUESTION,
    EventType.FAILED,
    EventType.DONE,
    EventType.CANCELLED,
    EventType.UNANSWERED,
    EventType.REVIEWED,
    EventType.NOT_PUBLISHED,
)


class Medium(models.TextChoices):
    PAGE = "page", "in the page"
    EMAIL = "email", "e-mail"
    CHAT = "chat", "chat"
    WEBHOOK = "webhook", "webhook"
    PUSH = "push", "browser"


class TaskSelection(models.TextChoices):
    """The tasks of which a user is notified."""

    OFF = "off", "off"
    MINE = "mine", "my tasks"
    ALL = "all", "all tasks"


class ProjectSelection(models.TextChoices):
    """The projects of which a user is notified."""

    MINE = "mine", "projects in which I have a role, and tasks that I created"
    ALL = "all", "all projects that I can see"
    CHOSEN = "chosen", "selected projects:"


class Digest(models.TextChoices):
    AT_ONCE = "at_once", "immediately"
    HOURLY = "hourly", "hourly digest"
    DAILY = "daily", "daily digest at"


def default_subscriptions() -> dict[str, dict[str, str]]:
    """Return the default choices of a user, by event type and medium."""
    everywhere: dict[str, str] = dict.fromkeys((Medium.PAGE, Medium.EMAIL, Medium.CHAT), TaskSelection.MINE)
    in_page = {**everywhere, Medium.EMAIL: TaskSelection.OFF, Medium.CHAT: TaskSelection.OFF}
    return {
        EventType.QUESTION: everywhere.copy(),
        EventType.FAILED: everywhere.copy(),
        EventType.DONE: in_page.copy(),
        EventType.CANCELLED: in_page.copy(),
        EventType.UNANSWERED: everywhere.copy(),
        EventType.REVIEWED: everywhere.copy(),
        EventType.NOT_PUBLISHED: everywhere.copy(),
    }


class Preferences(models.Model):
    """A user's notification settings. Without a row, the defaults apply."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="preferences")
    subscriptions: models.JSONField[dict[str, dict[str, str]], dict[str, dict[str, str]]] = models.JSONField(
        default=default_subscriptions, help_text="By event type and medium: off, mine or all."
    )
    project_selection = models.CharField(
        max_length=10, choices=ProjectSelection, default=ProjectSelection.MINE
    )
    projects: models.ManyToManyField[Project, Any] = models.ManyToManyField(Project, blank=True)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    digest = models.CharField(max_length=10, choices=Digest, default=Digest.AT_ONCE)
    digest_at = models.TimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "preferences"

    def __str__(self) -> str:
        return f"preferences of {self.user}"

    @property
    def time_zone(self) -> str:
        """The zone of the user's profile, in which quiet hours and digests are meant."""
        return self.user.time_zone or "UTC"

    def selected_tasks(self, event_type: str, medium: str) -> str:
        known = default_subscriptions() | self.subscriptions  # saved before there was such an event type
        return str(known.get(event_type, {}).get(medium, TaskSelection.OFF))


class Target(models.Model):
    """A webhook or chat of a project, or the personal chat of a user.

    `encrypted_url` (the URL) and `encrypted_secret` are encrypted with the installation's key; `shown` is the
    part of the URL that people see.
    """

    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="targets"
    )
    user = models.OneToOneField(
        User, null=True, blank=True, on_delete=models.CASCADE, related_name="chat_target"
    )
    medium = models.CharField(max_length=10, choices=Medium)
    name = models.CharField(max_length=60)
    encrypted_url = models.TextField(editable=False)
    encrypted_secret = models.TextField(blank=True, editable=False)
    shown = models.CharField(max_length=200)
    event_types: models.JSONField[list[str], list[str]] = models.JSONField(default=list, blank=True)
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) ^ Q(user=None), name="target_of_a_project_or_a_person"
            ),
            models.CheckConstraint(condition=Q(medium__in=["chat", "webhook"]), name="target_is_outside"),
        ]

    def __str__(self) -> str:
        return self.name


#: What `is_unread` says of a row.
_UNREAD = Q(read_at=None) & (~Q(event_type=EventType.QUESTION) | Q(task__phase=Phase.WAITING_FOR_INPUT))


#: Events that the inbox shows as long as somebody is needed.
IN_INBOX = (EventType.QUESTION, EventType.FAILED, EventType.DONE)


#: What a notice may be about.
_ORIGINS = ("transition", "review", "publication", "reply", "rung", "asked")


def _only(origin: str) -> Q:
    return Q(**{f"{one}__isnull": one != origin for one in _ORIGINS})


_ONE_EVENT = reduce(or_, map(_only, _ORIGINS)) | (_only("") & Q(event_type=EventType.TOKEN_SEEN))


class NoticeQuerySet(models.QuerySet["Notice"]):
    def beyond_inbox(self) -> Self:
        """Return unread notices of what the inbox does not show: the bell counts these."""
        return self.unread().exclude(event_type__in=IN_INBOX)

    def unread(self) -> Self:
        """Return unread notices, without notices of questions that were answered."""
        return self.filter(_UNREAD)

    def counted_first(self) -> Self:
        """Order them by age, with those first that the bell counts (`is_counted`)."""
        counted = _UNREAD & ~Q(event_type__in=IN_INBOX)
        return self.order_by(Case(When(counted, then=Value(0)), default=Value(1)), "-pk")

    def urgent(self) -> Self:
        """Return unread notices of questions and failures that nobody has settled yet."""
        asks = Q(event_type=EventType.QUESTION, task__phase=Phase.WAITING_FOR_INPUT)
        failed = Q(event_type=EventType.FAILED, task__phase=Phase.FAILED, task__failure_dismissed=False)
        return self.filter(asks | failed, read_at=None)

    def prune(self, older_than: timedelta) -> int:
        return self.filter(at__lt=Now() - older_than).delete()[0]


class Notice(models.Model):
    """One notification of one user, shown in the portal."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices")
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="notices")
    transition = models.ForeignKey(
        Transition, null=True, blank=True, on_delete=models.CASCADE, related_name="notices"
    )
    review = models.ForeignKey(
        Review, null=True, blank=True, on_delete=models.CASCADE, related_name="notices"
    )
    publication = models.ForeignKey(
        Publication, null=True, blank=True, on_delete=models.CASCADE, related_name="notices"
    )
    reply = models.ForeignKey(
        ThreadComment, null=True, blank=True, on_delete=models.CASCADE, related_name="notices"
    )
    rung = models.ForeignKey(Rung, null=True, blank=True, on_delete=models.CASCADE, related_name="notices")
    asked = models.ForeignKey(Asked, null=True, blank=True, on_delete=models.CASCADE, related_name="notices")
    event_type = models.CharField(max_length=20, choices=EventType)
    step = models.CharField(max_length=100, blank=True)
    question_kind = models.CharField(
        max_length=20, choices=QuestionKind, blank=True, default="", db_default="", editable=False
    )
    headline = models.CharField(max_length=300, blank=True, help_text="The question, or why it failed.")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    read_at = models.DateTimeField(null=True, blank=True)

    objects = NoticeQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["user", "transition"], name="one_notice_per_occasion"),
            models.UniqueConstraint(fields=["user", "review"], name="one_notice_per_review"),
            models.UniqueConstraint(fields=["user", "publication"], name="one_notice_per_publication"),
            models.UniqueConstraint(fields=["user", "reply"], name="one_notice_per_reply"),
            models.UniqueConstraint(fields=["user", "rung"], name="one_notice_per_rung"),
            models.CheckConstraint(condition=_ONE_EVENT, name="notice_of_one_event"),
        ]
        indexes = [
            models.Index(fields=["user", "-id"], name="notice_of_a_user"),
            models.Index(fields=["user"], condition=Q(read_at=None), name="notice_unread"),
        ]

    def __str__(self) -> str:
        return self.headline or f"{self.task}: {self.get_event_type_display()}"

    @property
    def question_name(self) -> str:
        """What the agent asked for: “Question”, “Approval” or “Plan”."""
        return KIND_NAMES[self.question_kind or QuestionKind.CLARIFICATION]

    @property
    def headline_after_name(self) -> str:
        """The headline behind the question's name, which is not said twice."""
        return self.headline.removeprefix(f"{self.question_name}: ")

    @property
    def is_unread(self) -> bool:
        """The same rule as `unread()`, for a row that was fetched with its task."""
        over = self.event_type == EventType.QUESTION and self.task.phase != Phase.WAITING_FOR_INPUT
        return self.read_at is None and not over

    @property
    def is_counted(self) -> bool:
        """Whether the bell counts it, as in `beyond_inbox()`."""
        return self.is_unread and self.event_type not in IN_INBOX


class PushSubscription(models.Model):
    """One browser of one user. `encrypted`: its push service's URL and its keys as JSON.

    The digest of the URL identifies the browser, whoever is logged in.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="push_subscriptions")
    endpoint_digest = models.CharField(max_length=64, unique=True, editable=False)
    encrypted = models.TextField(editable=False)
    browser = models.CharField(max_length=60, blank=True)
    host = models.CharField(max_length=255, help_text="The host of its push service.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.browser or 'a browser'} of {self.user}"
