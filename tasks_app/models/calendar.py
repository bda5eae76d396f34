"""Calendars that the worker reads: who is on call in a project, and when a user is away."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.db import models
from django.db.models import Q

from tasks_app.core.types import JsonObject
from tasks_app.models.project import Project
from tasks_app.models.user import User

#: How long a copy is used before the calendar is read again.
INTERVAL = timedelta(minutes=15)


class CalendarQuerySet(models.QuerySet["Calendar"]):
    def due(self, now: datetime) -> Self:
        """Return those to read: also if a clock was set back. An uploaded file is never read again."""
        in_time = Q(checked_at__gt=now - INTERVAL, checked_at__lte=now + INTERVAL)
        uploaded = Q(project=None, encrypted_url="")
        return self.exclude(in_time, checked_at__isnull=False).exclude(uploaded | Q(user__is_active=False))

    def claim(self, calendar: Calendar, now: datetime) -> bool:
        """Let one worker read the calendar that was due; return False if another one does."""
        unchanged = self.filter(pk=calendar.pk, checked_at=calendar.checked_at)
        return bool(unchanged.update(checked_at=now))


class Calendar(models.Model):
    """The on-call calendar of a project, or that of a user's absences, as it was last read.

    `source` is what people see: the URL or path of a project's; of a user's only the host or the name of the
    file, because its URL is a secret. Of the calendar only `events` are kept: shifts of the next weeks, or
    the times of absences (`core/calendar_program.py`). If it cannot be read, those of the last reading hold.
    """

    project = models.OneToOneField(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="on_call_calendar"
    )
    user = models.OneToOneField(
        User, null=True, blank=True, on_delete=models.CASCADE, related_name="absence_calendar"
    )
    source = models.CharField(max_length=1000, blank=True, help_text="Empty if the project names none.")
    encrypted_url = models.TextField(blank=True, editable=False)
    events: models.JSONField[list[JsonObject], list[JsonObject]] = models.JSONField(
        default=list, blank=True, editable=False
    )
    zone = models.CharField(max_length=64, default="UTC", help_text="The time zone that it names.")
    notes: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, help_text="What was passed over."
    )
    read_at = models.DateTimeField(null=True, blank=True, help_text="When it was last read.")
    fault = models.TextField(blank=True, help_text="Why it cannot be read since then.")
    fault_since = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(
        null=True, blank=True, help_text="When a worker last began to read it; empty: it is due."
    )

    objects = CalendarQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) ^ Q(user=None), name="calendar_of_a_project_or_a_user"
            )
        ]

    def __str__(self) -> str:
        return f"calendar of {self.project or self.user}"
