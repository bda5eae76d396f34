"""A project: a git repository plus its members."""

from __future__ import annotations

from typing import Self

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models

from tasks_app.models.people import ACTING_ROLES, Role, User

NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z",
    "Use lower-case letters, digits, dots, dashes and underscores; start with a letter or digit.",
)


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: User) -> Self:
        """Projects that the person may see; for everything else the answer is 404."""
        return self if user.is_superuser else self.filter(memberships__user=user)

    def maintained_by(self, user: User) -> Self:
        """Projects whose settings the person may change."""
        if user.is_superuser:
            return self
        return self.filter(memberships__user=user, memberships__role=Role.MAINTAINER)

    def actable_by(self, user: User) -> Self:
        """Projects in which the person may create tasks, answer and cancel."""
        if user.is_superuser:
            return self
        return self.filter(memberships__user=user, memberships__role__in=ACTING_ROLES)


class Project(models.Model):
    """`source` is an absolute path or an https/ssh address; the portal works on a copy of its own."""

    name = models.CharField(max_length=60, unique=True, validators=[NAME])
    source = models.CharField(max_length=500)
    branch = models.CharField(max_length=200, help_text="The branch of the source that tasks start from.")
    # What is set here overrides the repository's cat-herder.yaml; None and "" leave it to the file.
    threshold = models.PositiveSmallIntegerField(null=True, blank=True, validators=[MaxValueValidator(5)])
    default_pipeline = models.CharField(max_length=100, blank=True)
    model = models.CharField(max_length=100, blank=True)
    wait_for_reset = models.BooleanField(null=True, blank=True)
    auto_commit = models.BooleanField(null=True, blank=True)
    is_sample = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
