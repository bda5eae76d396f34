"""Invitations to a project, by e-mail address."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Literal, Self

from django.db import models
from django.utils import timezone

from tasks_app.models.project import Project
from tasks_app.models.user import Role, User

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
        return "expired" if self.expires_at <= timezone.now() else "open"
