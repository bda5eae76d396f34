"""Transcripts of the agent's sessions, stored so that any worker can resume a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from django.db import models

from tasks_app.core.storable import storable


class SessionEntryQuerySet(models.QuerySet["SessionEntry"]):
    """Keys are mappings with project_key and session_id, and subpath for the transcript of a sub-agent."""

    def of(self, key: Mapping[str, str]) -> Self:
        return self.filter(
            project_key=key["project_key"], session_id=key["session_id"], subpath=key.get("subpath", "")
        )

    def append(self, key: Mapping[str, str], entries: Iterable[Mapping[str, Any]]) -> None:
        columns = {name: key.get(name, "") for name in ("project_key", "session_id", "subpath")}
        self.bulk_create(SessionEntry(**columns, entry=storable(entry)) for entry in entries)

    def ends_with(self, key: Mapping[str, str], entries: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether these entries are the last ones."""
        last = self.of(key).order_by("-pk").values_list("entry", flat=True)[: len(entries)]
        return list(last)[::-1] == [storable(entry) for entry in entries]

    def entries(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """Return the entries in order, or None for an unknown key."""
        return list(self.of(key).order_by("pk").values_list("entry", flat=True)) or None

    def subpaths(self, key: Mapping[str, str]) -> list[str]:
        rows = self.filter(project_key=key["project_key"], session_id=key["session_id"]).exclude(subpath="")
        return list(rows.order_by("subpath").values_list("subpath", flat=True).distinct())


class SessionEntry(models.Model):
    """One line of a session's transcript, as the agent wrote it. `subpath` names sub-agent transcripts."""

    project_key = models.CharField(max_length=300)
    session_id = models.CharField(max_length=100)
    subpath = models.CharField(max_length=300, blank=True)
    entry = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)

    objects = SessionEntryQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["session_id", "project_key", "subpath"])]
        verbose_name_plural = "session entries"

    def __str__(self) -> str:
        return f"{self.session_id} {self.pk}"
