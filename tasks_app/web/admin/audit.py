"""The audit log: who did what, when and from where. Its page in the portal exports it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.utils.safestring import mark_safe

from tasks_app.models import AuditEntry
from tasks_app.models.audit import SEARCH_FIELDS
from tasks_app.web.admin.base import ReadOnly


class TimeFilter(admin.DateFieldListFilter):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "time"


class UserFilter(admin.RelatedOnlyFieldListFilter):
    """Users who did something; agents, strangers and the portal itself count as none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "user"
        self.empty_value_display = mark_safe("none")


class ProjectFilter(admin.AllValuesFieldListFilter):
    """Label the choice for entries without a project, which could otherwise not be seen or clicked."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": choice["display"] or "none"}


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    list_display = ["at", "actor_name", "action", "subject", "project_name", "via", "ip_address"]
    list_filter = [
        ("at", TimeFilter),
        ("actor", UserFilter),
        ("project_name", ProjectFilter),
        "via",
        "action",
    ]
    search_fields = SEARCH_FIELDS
    date_hierarchy = "at"
