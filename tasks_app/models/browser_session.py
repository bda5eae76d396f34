"""Login sessions of browsers."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from tasks_app.models.user import User


def hash_session_key(key: str) -> str:
    """Return the hash that is stored instead of the key, so that the table or a backup grants no access."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:40]


class BrowserSession(AbstractBaseSession):
    """A session; `session_key` is the hash of the browser's key. `user` is None before the login."""

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
    def is_valid(self) -> bool:
        """Whether the browser is still logged in: a new password ends a session before its row is deleted."""
        if self.user is None or not self.user.is_active:
            return False
        stored = self.get_decoded().get(HASH_SESSION_KEY, "")
        hashes = (self.user.get_session_auth_hash(), *self.user.get_session_auth_fallback_hash())
        return any(constant_time_compare(stored, one) for one in hashes)


def lasting_sessions() -> models.QuerySet[BrowserSession]:
    """Return the sessions that have neither expired nor been unused for too long."""
    now, idle_hours = timezone.now(), settings.ENVIRONMENT.session_idle_hours
    found = BrowserSession._default_manager.filter(expire_date__gt=now)
    return found.filter(seen_at__gt=now - timedelta(hours=idle_hours)) if idle_hours else found
