"""The agent's own session transcripts, so that any worker can take a session up again."""

from __future__ import annotations

from django.db import models


class SessionEntry(models.Model):
    """One line of a session's transcript, as the agent wrote it. `subpath` names sub-agent transcripts."""

    project_key = models.CharField(max_length=300)
    session_id = models.CharField(max_length=100)
    subpath = models.CharField(max_length=300, blank=True)
    entry = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["session_id", "project_key", "subpath"])]
        verbose_name_plural = "session entries"

    def __str__(self) -> str:
        return f"{self.session_id} {self.pk}"
