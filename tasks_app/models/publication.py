"""Publishing the result of a task: the credential of a project, and each publication."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Self

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from tasks_app.forges.port import CheckState, ForgeKind, PullRequestState
from tasks_app.models.project import Project
from tasks_app.models.task import Task
from tasks_app.models.user import User

#: Seconds for which a worker claims a publication. It renews the claim while it pushes.
CLAIM_SECONDS = 20.0
#: A claim that ends more than this factor times its length from now was made before the clock was set back.
_MAX_CLAIM_FACTOR = 2


class CredentialKind(models.TextChoices):
    TOKEN = "token", "user name and token"
    SSH_KEY = "ssh_key", "SSH key"
    GITHUB_APP = "github_app", "GitHub app"


class PublishCredential(models.Model):
    """With what the portal pushes to the repository at `url`. No agent and no page ever gets the secret.

    `encrypted_secret` is a token or a private key, encrypted with the installation's key; `shown` describes
    it. `encrypted_api_token` is for the forge's API, where the secret is an SSH key.
    """

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="publish_credential")
    kind = models.CharField(max_length=10, choices=CredentialKind)
    url = models.CharField(max_length=500, help_text="The only repository that it is used for.")
    username = models.CharField(max_length=200, blank=True)
    encrypted_secret = models.TextField(editable=False)
    encrypted_api_token = models.TextField(blank=True, editable=False)
    known_hosts = models.TextField(blank=True, help_text="The host keys that the server may have.")
    shown = models.CharField(max_length=200, help_text="The user name, or the fingerprint of the key.")
    stored_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    stored_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"credential of {self.project}"


class PublicationState(models.TextChoices):
    #: Waiting for a worker, or a worker is pushing.
    PENDING = "pending", "publishing"
    #: The branch of the remote was at the published commit.
    PUSHED = "pushed", "published"
    #: Nothing was changed at the remote; `answer` says why.
    REFUSED = "refused", "not published"


class PublicationQuerySet(models.QuerySet["Publication"]):
    def due(self) -> Self:
        """Return publications that no worker is carrying out. A claim in the far future is not valid."""
        too_far = Now() + timedelta(seconds=_MAX_CLAIM_FACTOR * CLAIM_SECONDS)
        free = Q(claimed_until=None) | Q(claimed_until__lt=Now()) | Q(claimed_until__gt=too_far)
        return self.filter(free, state=PublicationState.PENDING)

    def failed(self) -> Self:
        """Return those after which the branch or the pull request is not where it was to be."""
        return self.filter(Q(state=PublicationState.REFUSED) | ~Q(fault=""))

    def claim(self, publication_id: int) -> Publication | None:
        """Claim this publication for CLAIM_SECONDS if it is due, and return it; otherwise None."""
        token = uuid.uuid4()
        until = Now() + timedelta(seconds=CLAIM_SECONDS)
        claimed = self.due().filter(pk=publication_id)
        if not claimed.update(claim=token, claimed_until=until, attempts=F("attempts") + 1):
            return None
        return self.filter(claim=token).select_related("task__project", "task__sequence", "by").first()

    def uncount(self, publication: Publication) -> None:
        """Do not count the attempt of this claim. Doing so twice is harmless."""
        self.held(publication).update(attempts=publication.attempts - 1)

    def held(self, publication: Publication) -> Self:
        """Return the row of the publication if its claim is still the newest and it has not ended."""
        return self.filter(pk=publication.pk, claim=publication.claim, state=PublicationState.PENDING)

    def renew(self, publication: Publication) -> bool:
        """Extend the claim to CLAIM_SECONDS from now; return whether it is still held."""
        until = Now() + timedelta(seconds=CLAIM_SECONDS)
        return bool(self.held(publication).update(claimed_until=until))


class Publication(models.Model):
    """One publication of a task's result, as a user or the task's pipeline asked for it.

    `commit` is the result and `published_commit` what the remote gets: another one if the checkpoints are
    squashed, or if the newest commit of the project's branch (`merged_commit`) is merged. `claim`
    identifies the worker that carries it out, until `claimed_until`.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="publications")
    commit = models.CharField(max_length=64)
    squash = models.BooleanField(default=False, help_text="Publish one commit without the checkpoints.")
    message = models.TextField(
        default="", db_default="", blank=True, help_text="Of the one commit; empty: what the task changed."
    )
    update = models.BooleanField(default=False, help_text="Merge the newest commit of the project's branch.")
    merged_commit = models.CharField(
        max_length=64, blank=True, help_text="That commit, as of the first attempt."
    )
    url = models.CharField(max_length=500, help_text="The repository that it is published to.")
    branch = models.CharField(max_length=200, help_text="The branch there.")
    pull_request = models.BooleanField(default=False, help_text="Open or update a pull request.")
    draft = models.BooleanField(default=False, help_text="Open it as a draft.")
    reviewers = models.JSONField(default=list, blank=True, help_text="Whom to ask for reviews of it.")
    opened = models.ForeignKey(
        "PullRequest", null=True, blank=True, on_delete=models.SET_NULL, related_name="publications"
    )
    conflicts: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, help_text="Files in conflict, for which it could not be updated."
    )
    fault = models.TextField(
        blank=True, help_text="Why there is no pull request, although the branch was published."
    )
    published_commit = models.CharField(max_length=64, blank=True)
    state = models.CharField(
        max_length=10, choices=PublicationState, default=PublicationState.PENDING, db_index=True
    )
    answer = models.TextField(blank=True, help_text="What the remote answered, or why it was not published.")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="publications")
    by_pipeline = models.BooleanField(
        default=False, help_text="The pipeline asked for it, on behalf of who created the task."
    )
    requested_at = models.DateTimeField(auto_now_add=True)
    announced_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When a failure was told to those who want to know."
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    #: Those whose worker died or failed, and the present one. Temporary faults are not counted.
    attempts = models.PositiveIntegerField(default=0, editable=False)
    claim = models.UUIDField(null=True, editable=False, db_index=True)
    claimed_until = models.DateTimeField(null=True, editable=False)

    objects = PublicationQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(
                fields=["ended_at"], condition=Q(announced_at=None), name="publication_not_announced"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["task"], condition=Q(state="pending"), name="one_pending_publication_per_task"
            )
        ]

    def __str__(self) -> str:
        return f"{self.commit[:10]} of {self.task}"

    @property
    def asked_by(self) -> str:
        """Return who asked for it, in words; "" if nobody is known."""
        names = []
        if self.by_pipeline:
            names.append(f"the pipeline {self.task.publishing_pipeline}")
        if self.by:
            names.append(self.by.shown_name)
        return " on behalf of ".join(names)

    @property
    def actor(self) -> User | None:
        """Return the user who asked for it; None for a pipeline, which acts on behalf of one."""
        if self.by_pipeline:
            return None
        return self.by

    @property
    def is_pending(self) -> bool:
        return self.state == PublicationState.PENDING


# Pull requests at a forge that were opened for results of tasks.


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
        """Return the open pull requests, which are looked at."""
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
        """Return whether a look that began at this moment is newer than the stored state."""
        return self.state_as_of is None or self.state_as_of <= moment

    @property
    def end_in_words(self) -> str:
        """Return how it ended, such as “Merged by ann on GitHub”; "" while it is open."""
        if self.is_open:
            return ""
        ended = self.state.capitalize()
        if self.ended_by:
            ended += f" by {self.ended_by}"
        return f"{ended} on {self.forge_label}"

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
