"""Pull requests at a forge that were opened for results of tasks."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Self

from django.db import models
from django.db.models.functions import Now

from tasks_app.forges.port import CheckState, ForgeKind, PullRequestState
from tasks_app.models.project import Project
from tasks_app.models.task import Task

#: Seconds between two looks at an open pull request: the shorter for one where something happens.
SHORTEST_PAUSE = 60.0
LONGEST_PAUSE = 900.0
#: Seconds between the starts of two looks, however often webhooks call.
SHORTEST_GAP = 10.0


class PullRequestQuerySet(models.QuerySet["PullRequest"]):
    def due(self) -> Self:
        """Return the open ones that are to be looked at, the longest waiting first."""
        return self.watched().filter(next_look_at__lte=Now()).order_by("next_look_at", "pk")

    def watched(self) -> Self:
        """Return the open ones: those that ended are not looked at any more."""
        return self.filter(state=PullRequestState.OPEN)

    def newest_of(self, tasks: Collection[Task]) -> dict[int, PullRequest]:
        """Return the newest pull request of each task that has one, by the task's id."""
        return {row.task_id: row for row in self.filter(task__in=tasks).order_by("pk")}

    def claim(self, pull_request_id: int) -> PullRequest | None:
        """Begin a look: `looked_at` is its start. Return None if the pull request is not due any more.

        Nobody else looks at it for LONGEST_PAUSE, unless it is brought forward meanwhile.
        """
        claimed = self.due().filter(pk=pull_request_id).order_by()
        if not claimed.update(looked_at=Now(), next_look_at=Now() + timedelta(seconds=LONGEST_PAUSE)):
            return None
        # A clock that was set back must not make this look an old one.
        self.filter(pk=pull_request_id, state_as_of__gt=Now()).update(state_as_of=None)
        return self.select_related("project", "task__project").get(pk=pull_request_id)


class PullRequest(models.Model):
    """A pull request for a task's branch. In a sequence, `task` is the last one that was published.

    `checks` are the results of CI for `head_commit`: objects with `name`, `state` and `url`. `fault` says why
    the last look at the forge failed.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="pull_requests")
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="pull_requests")
    kind = models.CharField(max_length=10, choices=[(kind.value, kind.label) for kind in ForgeKind])
    url = models.CharField(max_length=500, help_text="The repository that it is in.")
    number = models.PositiveIntegerField()
    web_url = models.CharField(max_length=500, blank=True)
    title = models.CharField(max_length=500)
    base = models.CharField(max_length=200, help_text="The branch that it is to be merged into.")
    draft = models.BooleanField(default=False)
    state = models.CharField(
        max_length=10,
        choices=[(state.value, state.value) for state in PullRequestState],
        default=PullRequestState.OPEN.value,
    )
    ended_by = models.CharField(max_length=200, blank=True, help_text="Who merged or closed it there.")
    head_commit = models.CharField(max_length=64, blank=True)
    checks = models.JSONField(default=list, blank=True)
    opened_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now_add=True, help_text="When something last happened there.")
    looked_at = models.DateTimeField(null=True, blank=True, help_text="When the newest look began.")
    state_as_of = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the look began whose answer is stored."
    )
    next_look_at = models.DateTimeField(db_index=True, editable=False)
    fault = models.TextField(blank=True)

    objects = PullRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["project", "url", "number"], name="one_row_per_pull_request")
        ]

    def __str__(self) -> str:
        return f"{self.forge_label} #{self.number}"

    @property
    def forge_label(self) -> str:
        return ForgeKind(self.kind).label

    @property
    def is_open(self) -> bool:
        return self.state == PullRequestState.OPEN

    @property
    def is_looked_at_now(self) -> bool:
        """Return whether a look began and ended neither with an answer nor with a fault."""
        if self.looked_at is None or self.fault:
            return False
        return self.state_as_of is None or self.state_as_of < self.looked_at

    def is_outdated_by(self, moment: datetime) -> bool:
        """Return whether its stored state is replaced by that of a look which began at this moment."""
        return self.state_as_of is None or self.state_as_of <= moment

    @property
    def end_in_words(self) -> str:
        """Return how it ended, such as “Merged by ann on GitHub”; "" while it is open."""
        if self.is_open:
            return ""
        by = f" by {self.ended_by}" if self.ended_by else ""
        return f"{self.state.capitalize()}{by} on {self.forge_label}"

    @property
    def reason_to_cancel(self) -> str:
        """Return why a task is cancelled with it, as the task's transition has it."""
        return f"{self.ended_by or 'somebody'} {self.state} {self} ({self.web_url})"[:300]

    @property
    def checks_in_words(self) -> str:
        """Return how CI stands, such as “2 passed, 1 failed”; "" without results."""
        states = [check["state"] for check in self.checks]
        counted = [(states.count(state), state) for state in _ORDER]
        return ", ".join(f"{number} {state}" for number, state in counted if number)

    @property
    def checks_state(self) -> str:
        """Return the state of all checks together; "" without results."""
        states = {check["state"] for check in self.checks}
        return next((str(state) for state in _ORDER if state in states), "")


_ORDER = (CheckState.FAILED, CheckState.PENDING, CheckState.PASSED, CheckState.SKIPPED)
