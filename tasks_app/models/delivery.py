"""Deliveries: each is one notification on its way to one mailbox, target or browser."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.models.asked import Asked
from tasks_app.models.notification import EventType, Medium, Notice, PushSubscription, Target
from tasks_app.models.publication import Publication
from tasks_app.models.question import Question
from tasks_app.models.review import Review, ReviewThread, ThreadComment
from tasks_app.models.rung import Rung
from tasks_app.models.transition import Transition
from tasks_app.models.user import User


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "waiting"
    SENT = "sent", "sent"
    FAILED = "failed", "failed"
    DROPPED = "dropped", "not sent"


#: The relations to what a delivery tells; only one of them is set.
_EVENTS = (
    "transition",
    "review",
    "publication",
    "reply__thread",
    "rung__question",
    "asked__question",
    "notice",
)


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
                "rung__question__step",
                "asked__by",
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


#: What is sent once: about what, to whom, and the constraint that forbids a second one.
_ONCE = (
    ("transition", "user", "one_mail_per_occasion"),
    ("transition", "target", "one_delivery_per_target"),
    ("transition", "browser", "one_delivery_per_browser"),
    ("review", "user", "one_mail_per_review"),
    ("review", "target", "one_delivery_of_a_review_per_target"),
    ("publication", "user", "one_mail_per_publication"),
    ("publication", "target", "one_delivery_of_a_publication_per_target"),
    ("reply", "user", "one_mail_per_reply"),
    ("reply", "target", "one_delivery_of_a_reply_per_target"),
    ("rung", "user", "one_message_of_a_rung_per_user"),
    ("rung", "target", "one_message_of_a_rung_per_target"),
    ("rung", "browser", "one_message_of_a_rung_per_browser"),
)


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
    rung = models.ForeignKey(Rung, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    notice = models.ForeignKey(
        Notice, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries",
        help_text="What it tells if that is nothing else: that a token was revoked.",
    )  # fmt: skip
    asked = models.ForeignKey(
        Asked, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
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
            *(
                models.UniqueConstraint(
                    fields=[occasion, to],
                    condition=Q(**{f"{occasion}__isnull": False, f"{to}__isnull": False}),
                    name=name,
                )
                for occasion, to, name in _ONCE
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
    def event(self) -> Transition | Review | Publication | ReviewThread | Question | Notice | None:
        """What it tells: for a reply the thread, for a rung or a person the question, for a test None."""
        thread = self.reply.thread if self.reply else None
        by = self.rung or self.asked
        question = by.question if by else None
        return self.transition or self.review or self.publication or thread or question or self.notice

    @property
    def recipient(self) -> User | None:
        """The user to whom it goes; None for a target of a project."""
        if self.browser:
            return self.browser.user
        return self.user or (self.target.user if self.target else None)
