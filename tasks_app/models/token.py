"""Personal API tokens."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tasks_app.models.project import Project
from tasks_app.models.user import User


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
