"""Spans that were sent to the endpoint for traces."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import timedelta

from django.db import models
from django.db.models.functions import Now


class SentSpanQuerySet(models.QuerySet["SentSpan"]):
    def take(self, span_ids: Collection[str]) -> set[str]:
        """Claim spans for sending, and return the ids of the spans that nobody else has claimed."""
        fresh = set(span_ids) - set(self.filter(pk__in=span_ids).values_list("pk", flat=True))
        if not fresh:
            return fresh
        taker = secrets.token_hex(8)
        self.bulk_create([SentSpan(span_id=one, taker=taker) for one in fresh], ignore_conflicts=True)
        return set(self.filter(pk__in=fresh, taker=taker).values_list("pk", flat=True))

    def prune(self, older_than: timedelta) -> None:
        self.filter(taken_at__lt=Now() - older_than).delete()


class SentSpan(models.Model):
    """A span that a process has sent to the endpoint for traces (O3), or is sending, so that no other does.

    `taker` differs for each request.
    """

    span_id = models.CharField(max_length=16, primary_key=True)
    taker = models.CharField(max_length=16)
    taken_at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = SentSpanQuerySet.as_manager()

    def __str__(self) -> str:
        return self.span_id
