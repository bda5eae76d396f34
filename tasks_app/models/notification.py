"""Notifications: preferences, notices in the portal, targets outside of it, and deliveries."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Self

from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models.project import Project
from tasks_app.models.publication import Publication
from tasks_app.models.question import KIND_NAMES, QuestionKind
from tasks_app.models.review import Review, ReviewThread, ThreadComment
from tasks_app.models.task import Task
from tasks_app.models.transition import Transition
from tasks_app.models.user import User


class EventType(models.TextChoices):
    """An event type that users can be notified of; the label completes “when …”."""

    QUESTION = "question", "an agent asks"
    FAILED = "failed", "a task fails"
    DONE = "done", "a task is done"
    CANCELLED = "cancelled", "a task is cancelled"
    REVIEWED = "reviewed", "a result is reviewed or discussed"
    NOT_PUBLISHED = "not_published", "a result cannot be published"
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
    return {
        EventType.QUESTION: {
            Medium.PAGE: TaskSelection.ALL,
            Medium.EMAIL: TaskSelection.MINE,
            Medium.CHAT: TaskSelection.ALL,
        },
        EventType.FAILED: {
            Medium.PAGE: TaskSelection.MINE,
            Medium.EMAIL: TaskSelection.MINE,
            Medium.CHAT: TaskSelection.MINE,
        },
        EventType.DONE: {
            Medium.PAGE: TaskSelection.MINE,
            Medium.EMAIL: TaskSelection.OFF,
            Medium.CHAT: TaskSelection.OFF,
        },
        EventType.CANCELLED: {
            Medium.PAGE: TaskSelection.MINE,
            Medium.EMAIL: TaskSelection.OFF,
            Medium.CHAT: TaskSelection.OFF,
        },
        EventType.REVIEWED: {
            Medium.PAGE: TaskSelection.MINE,
            Medium.EMAIL: TaskSelection.MINE,
            Medium.CHAT: TaskSelection.MINE,
        },
        EventType.NOT_PUBLISHED: {
            Medium.PAGE: TaskSelection.MINE,
            Medium.EMAIL: TaskSelection.MINE,
            Medium.CHAT: TaskSelection.MINE,
        },
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


class NoticeQuerySet(models.QuerySet["Notice"]):
    def unread(self) -> Self:
        """Return unread notices, without notices of questions that were answered."""
        return self.filter(_UNREAD)

    def unread_first(self) -> Self:
        unread = Case(When(_UNREAD, then=Value(0)), default=Value(1))
        return self.order_by(unread, "-pk")

    def urgent(self) -> Self:
        """Return unread notices of questions and failures that nobody has settled yet."""
        asks = Q(event_type=EventType.QUESTION, task__phase=Phase.WAITING_FOR_INPUT)
        failed = Q(event_type=EventType.FAILED, task__phase=Phase.FAILED)
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
            models.CheckConstraint(
                condition=Q(transition__isnull=False, review=None, publication=None, reply=None)
                | Q(transition=None, review__isnull=False, publication=None, reply=None)
                | Q(transition=None, review=None, publication__isnull=False, reply=None)
                | Q(transition=None, review=None, publication=None, reply__isnull=False),
                name="notice_of_one_event",
            ),
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
    def is_unread(self) -> bool:
        """The same rule as `unread()`, for a row that was fetched with its task."""
        over = self.event_type == EventType.QUESTION and self.task.phase != Phase.WAITING_FOR_INPUT
        return self.read_at is None and not over


# Browsers to which notifications are pushed.


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


# Deliveries: each is one notification on its way to one mailbox, target or browser.


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "waiting"
    SENT = "sent", "sent"
    FAILED = "failed", "failed"
    DROPPED = "dropped", "not sent"


#: The relations to what a delivery tells; only one of them is set.
_EVENTS = ("transition", "review", "publication", "reply__thread")


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def with_events(self, *relations: str) -> Self:
        """Fetch what each tells in the same query, or what the relations of that lead to."""
        paths = [f"{event}__{relation}" for event in _EVENTS for relation in relations]
        return self.select_related(*(paths or _EVENTS))

    def due(self) -> Self:
        """Return deliveries that should be sent now and that nobody is sending."""
        free = Q(taken_until=None) | Q(taken_until__lt=Now())
        return self.filter(free, state=DeliveryState.WAITING, due_at__lte=timezone.now())

    def take(self, ids: list[int], *, seconds: float) -> list[Delivery]:
        """Claim the deliveries with these ids that are still due for `seconds`, and return them."""
        token = uuid.uuid4()
        until = Now() + timedelta(seconds=seconds)
        self.due().filter(pk__in=ids).update(token=token, taken_until=until, attempts=F("attempts") + 1)
        return list(
            self.filter(token=token)
            .with_events("task__project", "task__created_by", "task__sequence")
            .select_related(
                "review__author",
                "publication__by",
                "reply__author",
                "user__preferences",
                "target__user__preferences",
                "target__project",
                "browser__user__preferences",
            )
            .order_by("pk")
        )

    def prune(self, older_than: timedelta) -> int:
        over = self.exclude(state=DeliveryState.WAITING)
        return over.filter(created_at__lt=Now() - older_than).delete()[0]


class Delivery(models.Model):
    """One notification to one mailbox, target or browser; its rows are the delivery log.

    Delivered at least once: if a worker dies between sending and saving, it is sent again with the same
    `key`, by which receivers recognise it. `token` identifies the current sender, until `taken_until`.
    """

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    transition = models.ForeignKey(
        Transition, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    review = models.ForeignKey(
        Review, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    publication = models.ForeignKey(
        Publication, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    reply = models.ForeignKey(
        ThreadComment, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    event_type = models.CharField(max_length=20, choices=EventType)
    medium = models.CharField(max_length=10, choices=Medium)
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    target = models.ForeignKey(
        Target, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    browser = models.ForeignKey(
        PushSubscription, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.WAITING)
    created_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0)
    token = models.UUIDField(null=True, blank=True, editable=False, db_index=True)
    taken_until = models.DateTimeField(null=True, blank=True, editable=False)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="What the receiver answered.")
    error = models.CharField(max_length=500, blank=True, help_text="Why it was not sent.")
    milliseconds = models.PositiveIntegerField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(
                fields=["transition", "user"],
                condition=Q(transition__isnull=False, user__isnull=False),
                name="one_mail_per_occasion",
            ),
            models.UniqueConstraint(
                fields=["transition", "target"],
                condition=Q(transition__isnull=False, target__isnull=False),
                name="one_delivery_per_target",
            ),
            models.UniqueConstraint(
                fields=["review", "user"],
                condition=Q(review__isnull=False, user__isnull=False),
                name="one_mail_per_review",
            ),
            models.UniqueConstraint(
                fields=["review", "target"],
                condition=Q(review__isnull=False, target__isnull=False),
                name="one_delivery_of_a_review_per_target",
            ),
            models.UniqueConstraint(
                fields=["publication", "user"],
                condition=Q(publication__isnull=False, user__isnull=False),
                name="one_mail_per_publication",
            ),
            models.UniqueConstraint(
                fields=["publication", "target"],
                condition=Q(publication__isnull=False, target__isnull=False),
                name="one_delivery_of_a_publication_per_target",
            ),
            models.UniqueConstraint(
                fields=["reply", "user"],
                condition=Q(reply__isnull=False, user__isnull=False),
                name="one_mail_per_reply",
            ),
            models.UniqueConstraint(
                fields=["reply", "target"],
                condition=Q(reply__isnull=False, target__isnull=False),
                name="one_delivery_of_a_reply_per_target",
            ),
            models.UniqueConstraint(
                fields=["transition", "browser"],
                condition=Q(transition__isnull=False, browser__isnull=False),
                name="one_delivery_per_browser",
            ),
            models.CheckConstraint(
                condition=Q(user=None, target=None, browser__isnull=False)
                | Q(user=None, target__isnull=False, browser=None)
                | Q(user__isnull=False, target=None, browser=None),
                name="delivery_to_one_place",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(state="waiting"), name="delivery_waiting"),
            models.Index(fields=["created_at"], name="delivery_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} by {self.medium}"

    @property
    def event(self) -> Transition | Review | Publication | ReviewThread | None:
        """What it tells: for a reply the thread, for a test None."""
        thread = self.reply.thread if self.reply else None
        return self.transition or self.review or self.publication or thread

    @property
    def recipient(self) -> User | None:
        """The user to whom it goes; None for a target of a project."""
        if self.browser:
            return self.browser.user
        return self.user or (self.target.user if self.target else None)
