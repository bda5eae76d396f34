"""Who is logged in where: the sessions of browsers."""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

from tasks_app.models.user import User


def session_id(key: str) -> str:
    """What is stored of a session's key: whoever reads the table, or a backup, cannot act as anybody."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:40]


class BrowserSession(AbstractBaseSession):
    """A session; `session_key` is the hash of what the browser holds. A stranger has one while logging in."""

    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="sessions")
    address = models.CharField(max_length=60, blank=True)
    browser = models.CharField(max_length=60, blank=True)
    begun_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-seen_at"]

    def __str__(self) -> str:
        return f"{self.browser or 'a browser'} of {self.user or 'a stranger'}"

    @classmethod
    def get_session_store_class(cls) -> Any:
        from importlib import import_module

        from django.conf import settings

        return import_module(settings.SESSION_ENGINE).SessionStore

    @property
    def counts(self) -> bool:
        """Whether its browser is still logged in: a new password ends a session before its row is gone."""
        told = self.get_decoded().get("_auth_user_hash")
        return self.user is not None and told == self.user.get_session_auth_hash()
