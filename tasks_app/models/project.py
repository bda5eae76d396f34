"""A project: a git repository plus its members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from tasks_app.forges.port import ForgeKind
from tasks_app.models.installation import new_folder_key

NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z",
    "Use lower-case letters, digits, dots, dashes and underscores; start with a letter or digit.",
)

#: The path of a repository at a forge; at GitLab it may have several groups.
REPOSITORY = RegexValidator(
    r"\A[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+\Z", "Write it as OWNER/NAME."
)

AUTHOR = RegexValidator(
    r"\A[^<>\n\0]*[^<>\s\0] <[^<>\s\0]+@[^<>\s\0]+>\Z", "Write it as Name <address@example.org>."
)
#: Branches that nothing is published to by default, besides the default branch.
PROTECTED_BRANCHES = "main\nmaster\ndevelop\nrelease/*"


#: A fetch that began longer ago died with its process.
MAX_FETCH_TIME = timedelta(minutes=20)


class Project(models.Model):
    """A git repository with settings and members.

    `source` is an absolute path or an https/ssh URL; the portal works on its own copy.
    """

    name = models.CharField(max_length=60, unique=True, validators=[NAME])
    source = models.CharField(max_length=500)
    branch = models.CharField(max_length=200, help_text="The branch of the source that tasks start from.")
    overrides: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField()), blank=True, editable=False,
        help_text="What people set instead of cat-herder.yaml, by the names of `project_settings.SETTINGS`.",
    )  # fmt: skip
    # Where results go. Not in cat-herder.yaml: a change of a repository must not redirect the credential.
    publish_url = models.CharField(
        max_length=500, blank=True, help_text="Where results are published; empty: to the source."
    )
    protected_branches = models.TextField(
        blank=True, max_length=2000, default=PROTECTED_BRANCHES,
        help_text="Branches that are never published to, one pattern per line.",
    )  # fmt: skip
    publish_author = models.CharField(
        max_length=200, blank=True, validators=[AUTHOR],
        help_text="Author of squashed commits, as “Name <address>”; empty: Cat Herder.",
    )  # fmt: skip
    required_approvals = models.PositiveSmallIntegerField(
        default=0, validators=[MaxValueValidator(20)],
        help_text="Approvals that a result needs before it is published, not by who created the task.",
    )  # fmt: skip
    forge = models.CharField(
        max_length=10, blank=True, choices=[(kind.value, kind.label) for kind in ForgeKind],
        help_text="What the repository that results are published to is at; empty: as its host says.",
    )  # fmt: skip
    forge_api_url = models.CharField(
        max_length=500, blank=True, help_text="The forge's API; empty: as its host says."
    )
    pull_request_repository = models.CharField(
        max_length=200, blank=True,
        validators=[REPOSITORY],
        help_text="Where pull requests go at the forge, as OWNER/NAME; empty: to the repository itself.",
    )  # fmt: skip
    encrypted_webhook_secret = models.TextField(blank=True, editable=False)
    webhook_called_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the forge last made a signed call."
    )
    # State of the portal's copy of the source.
    fetched_at = models.DateTimeField(null=True, blank=True)
    fetching_since = models.DateTimeField(null=True, blank=True, editable=False)
    fetch_fault = models.TextField(blank=True, help_text="Why the last fetch failed.")
    is_sample = models.BooleanField(default=False)
    folder_key = models.CharField(
        max_length=16,
        blank=True,
        editable=False,
        default=new_folder_key,
        help_text="Random part of the name of its folder; empty in rows from before there was one.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def monthly_budget_usd(self) -> float | None:
        """Return what the project may cost in a month, as `User` has it; None if there is no limit."""
        return self.overrides.get("monthly_budget_usd")

    @property
    def is_fetching(self) -> bool:
        return self.fetching_since is not None and self.fetching_since > timezone.now() - MAX_FETCH_TIME
