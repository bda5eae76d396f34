"""Users and their roles in projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import AbstractUser
from django.core.validators import MinValueValidator
from django.db import models

if TYPE_CHECKING:
    from tasks_app.models.project import Project


class Theme(models.TextChoices):
    AUTO = "auto", "system"
    LIGHT = "light", "light"
    DARK = "dark", "dark"


class User(AbstractUser):
    """A person with an account. Superusers are site admins, who may see and do everything."""

    theme = models.CharField(max_length=10, choices=Theme, default=Theme.AUTO)
    time_zone = models.CharField(
        max_length=64,
        blank=True,
        help_text="For quiet hours and digests, and for times on pages if the browser does not say its own.",
    )
    monthly_budget_usd = models.FloatField(
        "dollars a month",
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Once the tasks that this person created have cost this in a calendar month (UTC), they "
        "wait for the next month, or until this is raised. Empty for no limit.",
    )
    first_steps_dismissed = models.BooleanField(default=False, editable=False)

    def clean(self) -> None:
        """Lowercase the e-mail address, as login and invitations look it up in lower case."""
        super().clean()
        self.email = self.email.lower()

    @property
    def shown_name(self) -> str:
        return self.get_full_name() or self.get_username()


class Role(models.TextChoices):
    VIEWER = "viewer", "viewer: sees everything in the project"
    MEMBER = "member", "member: creates tasks and answers questions"
    MAINTAINER = "maintainer", "maintainer: also settings and members"


#: Roles that may create, start, answer and cancel.
ACTING_ROLES = frozenset({Role.MEMBER, Role.MAINTAINER})


class Membership(models.Model):
    """A user's role in one project."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project: models.ForeignKey[Project, Project] = models.ForeignKey(
        "tasks_app.Project", on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=20, choices=Role, default=Role.MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="one_role_per_project")]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.project}"
