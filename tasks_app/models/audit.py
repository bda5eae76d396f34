"""Entries of the audit log: who did what, when and from where."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, NoReturn, Self

from django.db import models

from tasks_app.models.audit_sentences import Sentence, sentence
from tasks_app.models.channel import Channel
from tasks_app.models.project import Project
from tasks_app.models.task import Task
from tasks_app.models.user import User


class Action(models.TextChoices):
    """What was done; labels are read as “NAME … SUBJECT”."""

    ASKED = "asked", "asked"
    ANSWERED = "answered", "answered"
    DISMISSED = "dismissed", "skipped"
    UNANSWERED = "unanswered", "ended without an answer"
    APPROVED = "approved", "approved"
    DENIED = "denied", "denied"
    PLAN_APPROVED = "plan_approved", "approved the plan of"
    PLAN_SENT_BACK = "plan_sent_back", "sent back the plan of"
    ANSWER_TAKEN_BACK = "answer_taken_back", "took back the answer to"
    HANDED_OVER = "handed_over", "handed over"
    OPINION_ASKED = "opinion_asked", "asked for a second opinion on"
    ASKING_TAKEN_BACK = "asking_taken_back", "took back who was asked about"
    DECISION_MADE = "decision_made", "made the decision"
    DECISION_PROPOSED = "decision_proposed", "proposed the decision"
    DECISION_CONFIRMED = "decision_confirmed", "confirmed the decision"
    DECISION_KEPT = "decision_kept", "kept the decision"
    DECISION_SUPERSEDED = "decision_superseded", "replaced the decision"
    DECISION_CHANGED = "decision_changed", "changed the decision"
    DECISION_RETIRED = "decision_retired", "retired the decision"
    TASK_CREATED = "task_created", "created the task"
    TASK_STARTED = "task_started", "started the task"
    TASK_CANCELLED = "task_cancelled", "cancelled the task"
    TASK_WENT_ON = "task_went_on", "resumed the task"
    TASK_RETRIED = "task_retried", "retried the task"
    TASK_CHANGED = "task_changed", "changed the task"
    TASK_WATCHED = "task_watched", "watches the task"
    TASK_UNWATCHED = "task_unwatched", "no longer watches the task"
    PUBLISH_REQUESTED = "publish_requested", "asked to publish the result of"
    PUBLISHED = "published", "published the result of"
    NOT_PUBLISHED = "not_published", "could not publish the result of"
    PULL_REQUEST_OPENED = "pull_request_opened", "opened a pull request for"
    PULL_REQUEST_ENDED = "pull_request_ended", "recorded the end of the pull request of"
    CREDENTIAL_STORED = "credential_stored", "stored the credential for publishing of"
    CREDENTIAL_REMOVED = "credential_removed", "removed the credential for publishing of"
    REVIEWED = "reviewed", "reviewed the task"
    THREAD_ANSWERED = "thread_answered", "replied in a thread of"
    THREAD_RESOLVED = "thread_resolved", "resolved a thread of"
    THREAD_REOPENED = "thread_reopened", "reopened a thread of"
    SEQUENCE_CREATED = "sequence_created", "created the sequence"
    SEQUENCE_WENT_ON = "sequence_went_on", "resumed the sequence"
    PROJECT_ADDED = "project_added", "added the project"
    PROJECT_REMOVED = "project_removed", "removed the project"
    SETTINGS_CHANGED = "settings_changed", "changed the settings of"
    ROLE_GIVEN = "role_given", "gave a role to"
    ROLE_TAKEN = "role_taken", "removed the role of"
    INVITED = "invited", "invited"
    INVITATION_ACCEPTED = "invitation_accepted", "accepted the invitation of"
    INVITATION_WITHDRAWN = "invitation_withdrawn", "withdrew the invitation of"
    LOGGED_IN = "logged_in", "logged in"
    LOGGED_OUT = "logged_out", "logged out"
    LOGIN_FAILED = "login_failed", "failed to log in as"
    ACCOUNT_MADE = "account_made", "created the account"
    ACCOUNT_CHANGED = "account_changed", "changed the account of"
    PASSWORD_CHANGED = "password_changed", "changed the password of"
    SECOND_FACTOR_ON = "second_factor_on", "switched on the second factor of"
    SECOND_FACTOR_OFF = "second_factor_off", "switched off the second factor of"
    TOKEN_MADE = "token_made", "created the token"
    TOKEN_REVOKED = "token_revoked", "revoked the token"
    TOKEN_USED = "token_used", "used the token"
    WORKER_TOKEN_MADE = "worker_token_made", "created the token of the worker host"
    WORKER_TOKEN_REVOKED = "worker_token_revoked", "revoked the token of the worker host"
    NOTIFICATIONS_CHANGED = "notifications_changed", "changed the notifications of"
    EXPORTED = "exported", "exported"
    DOWNLOADED = "downloaded", "downloaded"
    FETCHED = "fetched", "fetched the source of"
    BACKUP_MADE = "backup_made", "made the backup"
    REFUSED = "refused", "was refused"
    TOKEN_REFUSED = "token_refused", "showed an unusable token:"


#: Fields that a search looks at.
SEARCH_FIELDS = ("actor_name", "actor__username", "subject", "project_name", "token", "ip_address")


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    def search(self, words: str) -> Self:
        """Return the entries that contain all the words."""
        found = self
        for word in words.split():
            anywhere = (models.Q(**{f"{field}__icontains": word}) for field in SEARCH_FIELDS)
            found = found.filter(reduce(or_, anywhere))
        return found

    def update(self, **kwargs: Any) -> NoReturn:
        raise TypeError("Audit entries cannot be changed.")

    def delete(self) -> NoReturn:
        raise TypeError("Audit entries cannot be changed.")


class AuditEntry(models.Model):
    """One thing that somebody did. Append-only; it survives the deletion of what it is about.

    `project` and `task` have no database constraint and may refer to deleted rows, so their names are stored
    too. `actor` is None if the portal or an agent acted.
    """

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    action = models.CharField(max_length=30, choices=Action)
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="audit")
    actor_name = models.CharField(max_length=200, blank=True)
    via = models.CharField(max_length=20, choices=Channel, blank=True)
    token = models.CharField(max_length=100, blank=True, help_text="The name of the token that was used.")
    ip_address = models.CharField(max_length=60, blank=True, help_text="Where the request came from.")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    project_name = models.CharField(max_length=60, blank=True)
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    subject = models.CharField(max_length=300, blank=True, help_text="What it was done to.")
    detail = models.JSONField(default=dict, blank=True)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["project", "at"]), models.Index(fields=["actor", "at"])]

    def __str__(self) -> str:
        return f"{self.actor_name or 'the portal'} {self.said}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk:
            raise TypeError("Audit entries cannot be changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("Audit entries cannot be changed.")

    @property
    def in_words(self) -> str:
        return str(self)

    @property
    def said(self) -> Sentence:
        """What was done to what, as it follows the name."""
        label = self.get_action_display()
        return sentence(self.action, label, self.subject, project=self.project_name, detail=self.detail)
