"""The rows of a person's account: API tokens, invitations, login sessions of browsers."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, Literal, Self

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from tasks_app.models.project import Project
from tasks_app.models.user import Role, User


class Scope(models.TextChoices):
    """A permission of a token, within the permissions of its owner."""

    READ = "read", "look at tasks, questions, projects and usage"
    ANSWER = "answer", "answer questions"
    WRITE = "write", "create, start, cancel and retry tasks and sequences"
    MANAGE = "manage", "add projects, change settings and members, read the audit"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> Self:
        """Return tokens that work: not revoked, not expired, of an active user."""
        now = timezone.now()
        alive = Q(expires_at=None) | Q(expires_at__gt=now)
        return self.filter(alive, revoked_at=None, user__is_active=True)


class ApiToken(models.Model):
    """An API token, of which only a digest is stored.

    `restricted`: it only gives access to `projects`, which may be none if they were removed.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    restricted = models.BooleanField(default=False)
    projects = models.ManyToManyField(Project, blank=True, related_name="+")
    made_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(
        null=True, blank=True, help_text="To the minute: not every use is written down."
    )
    last_used_ip_address = models.CharField(max_length=60, blank=True)
    use_audited_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the audit was last told of its use."
    )

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-made_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(revoked_at=None), name="one_token_per_name"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


# Invitations to a project, by e-mail address.


#: How long the link of an invitation works.
LINK_LIFETIME = timedelta(days=7)
InvitationState = Literal["open", "accepted", "withdrawn", "expired"]


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _expiry() -> object:
    return timezone.now() + LINK_LIFETIME


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def pending(self) -> Self:
        """Return invitations that are neither accepted nor withdrawn; they may be expired."""
        return self.filter(accepted_at=None, withdrawn_at=None)

    def open(self) -> Self:
        """Return invitations whose link works."""
        return self.pending().filter(expires_at__gt=timezone.now())


class Invitation(models.Model):
    """An invitation to a project. `mailed`: the link was only sent to `email`; only its hash is stored."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=20, choices=Role, default=Role.MEMBER)
    token_hash = models.CharField(max_length=64, unique=True)
    mailed = models.BooleanField(default=False)
    invited_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="invitations")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(default=_expiry)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "email"],
                condition=models.Q(accepted_at=None, withdrawn_at=None),
                name="one_pending_invitation_per_address",
            )
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.project} as {self.role}"

    @property
    def state(self) -> InvitationState:
        if self.accepted_at:
            return "accepted"
        if self.withdrawn_at:
            return "withdrawn"
        if self.expires_at <= timezone.now():
            return "expired"
        return "open"


# Login sessions of browsers.


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
