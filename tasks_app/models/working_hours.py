"""When a person works, as they said it."""

from __future__ import annotations

from django.db import models

from tasks_app.core.types import JsonObject
from tasks_app.models.user import User


class WorkingHours(models.Model):
    """A person's working hours and absences, in the time zone of their profile.

    Without a row they work from Monday to Friday, 9:00 to 18:00. `week` has seven entries from Monday
    on, each {begin, end} or null; `absences` has {first, last, word}. See `core/working_hours.py`.
    """

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="working_hours")
    week: models.JSONField[list[JsonObject | None], list[JsonObject | None]] = models.JSONField()
    absences: models.JSONField[list[JsonObject], list[JsonObject]] = models.JSONField(
        default=list, blank=True
    )

    class Meta:
        verbose_name_plural = "working hours"

    def __str__(self) -> str:
        return f"working hours of {self.user}"
