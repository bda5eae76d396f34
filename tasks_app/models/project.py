"""A project: a git repository plus its members."""

from __future__ import annotations

from datetime import timedelta

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from tasks_app.models.installation import new_folder_key

NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z",
    "Use lower-case letters, digits, dots, dashes and underscores; start with a letter or digit.",
)


#: A fetch that began longer ago died with its process.
LONGEST_FETCH = timedelta(minutes=20)


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
    publish_plan = models.BooleanField(null=True, blank=True)
    manage_git_branch = models.BooleanField(null=True, blank=True)
    max_turns = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    max_cost_usd = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.01)])
    step_timeout = models.PositiveIntegerField(null=True, blank=True, help_text="In seconds.")
    check_timeout = models.PositiveIntegerField(null=True, blank=True, help_text="In seconds.")
    ask_before = models.TextField(
        blank=True,
        max_length=10_000,
        help_text="Patterns of tool calls that a human must approve, one in a line.",
    )
    network = models.CharField(
        max_length=10,
        blank=True,
        choices=[("full", "full"), ("model", "model"), ("none", "none")],
        help_text="The most that a step's agent and checks may reach.",
    )
    # How the portal's copy of the source stands.
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
    def is_fetching(self) -> bool:
        return self.fetching_since is not None and self.fetching_since > timezone.now() - LONGEST_FETCH
