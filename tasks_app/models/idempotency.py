"""Stored responses to requests with an idempotency key, so that these can safely be repeated."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models.functions import Now

from tasks_app.models.task import Task
from tasks_app.models.user import User


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    def prune(self, older_than: timedelta) -> int:
        deleted, _ = self.filter(at__lt=Now() - older_than).delete()
        return deleted


class IdempotencyKey(models.Model):
    """A key of one user with the response. `status` is 0 until the response is stored.

    Each request that works under the key raises `attempt`. `carried_out` is set in the transaction of the
    action, and only by the newest attempt, so a request that was held up cannot act a second time.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64, help_text="Of method, address and body.")
    status = models.PositiveSmallIntegerField(default=0)
    body = models.TextField(blank=True)
    attempt = models.PositiveIntegerField(default=1, db_default=1)
    carried_out = models.BooleanField(default=False, db_default=False)
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        help_text="The task that the request concerned, for a response that was lost.",
    )  # fmt: skip
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = IdempotencyKeyQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_request_per_key")]

    def __str__(self) -> str:
        return self.key
