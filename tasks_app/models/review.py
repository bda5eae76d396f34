"""Reviews of a task's result, and the threads that reviewers open on its lines."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Exists, OuterRef, Q, Subquery

from tasks_app.models.channel import Channel
from tasks_app.models.run import Outcome, Run
from tasks_app.models.step import Step
from tasks_app.models.task import Task
from tasks_app.models.user import User


class ReviewVerdict(models.TextChoices):
    """What a reviewer concludes; labels are read as “NAME …”."""

    COMMENT = "comment", "commented"
    REQUEST_CHANGES = "request_changes", "requested changes"
    APPROVE = "approve", "approved"


class Side(models.TextChoices):
    """The side of a diff on which a line stands."""

    NEW = "new", "after the change"
    OLD = "old", "before the change"


class ThreadState(models.TextChoices):
    OPEN = "open", "open"
    ANSWERED = "answered", "answered by the agent"
    RESOLVED = "resolved", "resolved"


class ReviewQuerySet(models.QuerySet["Review"]):
    def sent(self) -> Self:
        return self.exclude(sent_at=None)

    def drafts(self) -> Self:
        return self.filter(sent_at=None)

    def deciding(self) -> Self:
        """Return each person's newest review of each task, without comments: it replaces earlier ones."""
        verdicts = [ReviewVerdict.APPROVE, ReviewVerdict.REQUEST_CHANGES]
        own = Review.objects.sent().filter(task=OuterRef("task"), author=OuterRef("author"))
        later = own.filter(verdict__in=verdicts, number__gt=OuterRef("number"))
        return self.sent().filter(~Exists(later), verdict__in=verdicts)

    def with_answers(self) -> Self:
        """Add `answered_in`: the number of the run that ended the work on a request, else None."""
        since = Run.objects.filter(
            step=OuterRef("handed_in__step"), number__gte=OuterRef("handed_in__number")
        )
        finished = since.filter(outcome=Outcome.FINISHED)
        return self.annotate(answered_in=Subquery(finished.order_by("number").values("number")[:1]))

    def undelivered(self) -> Self:
        """Return the requests for changes that no agent has received, in order."""
        return self.sent().filter(verdict=ReviewVerdict.REQUEST_CHANGES, delivered_at=None).order_by("number")


class Review(models.Model):
    """One person's review of a task's result, at the commit that they looked at.

    A draft (`sent_at` is empty) is seen by its author only. A review that requests changes is handed to the
    session of `step`: `handed_in` is the run that was last given it, `delivered_at` when the agent was seen
    to have it.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="reviews")
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="reviews")
    number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Counts the task's reviews from 1; a draft has none."
    )
    verdict = models.CharField(max_length=20, choices=ReviewVerdict, blank=True)
    body = models.TextField(blank=True)
    commit = models.CharField(max_length=64, blank=True, help_text="The result that was looked at.")
    form_key = models.CharField(
        max_length=40,
        blank=True,
        editable=False,
        help_text="Of the form that sent it: sent twice, made once.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    via = models.CharField(max_length=20, choices=Channel, blank=True)
    step = models.ForeignKey(
        Step, null=True, blank=True, on_delete=models.SET_NULL, related_name="reviews",
        help_text="The step whose agent is asked for the changes.",
    )  # fmt: skip
    handed_in = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="reviews_handed_in",
        help_text="The run that was last given the review.",
    )  # fmt: skip
    delivered_at = models.DateTimeField(
        null=True, blank=True, help_text="When the agent was seen to have the review."
    )
    announced_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When it was told to those who want to know."
    )

    objects = ReviewQuerySet.as_manager()

    #: Only on rows of `with_answers()`.
    answered_in: int | None

    class Meta:
        ordering = ["task_id", "number", "pk"]
        indexes = [
            models.Index(fields=["sent_at"], condition=Q(announced_at=None), name="review_unannounced"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="one_review_per_number"),
            models.UniqueConstraint(
                fields=["task", "author"], condition=Q(sent_at=None), name="one_draft_per_reviewer"
            ),
            models.UniqueConstraint(
                fields=["author", "form_key"], condition=~Q(form_key=""), name="one_review_per_form"
            ),
            models.CheckConstraint(
                condition=Q(sent_at=None, number=None, verdict="")
                | (Q(sent_at__isnull=False, number__isnull=False) & ~Q(verdict="")),
                name="a_sent_review_has_number_and_verdict",
            ),
        ]

    def __str__(self) -> str:
        return f"review {self.number}" if self.number else "draft of a review"

    @property
    def approves(self) -> bool:
        """Whether it approves the newest result. An approval ends when the code changes."""
        return self.verdict == ReviewVerdict.APPROVE and self.commit == self.task.head_commit


class ReviewThreadQuerySet(models.QuerySet["ReviewThread"]):
    def sent(self) -> Self:
        return self.exclude(number=None)

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the sent threads, in order."""
        found = self.sent().order_by("number").values_list("number", flat=True)
        return tuple(number for number in found if number is not None)

    def open(self) -> Self:
        """Return the sent threads that neither the agent has answered nor a human resolved, in order."""
        return self.sent().filter(state=ThreadState.OPEN).order_by("number")

    def with_comments(self) -> Self:
        """Load the comments with what says who wrote each."""
        return self.prefetch_related(
            "comments__author", "comments__run__step", "comments__thread__pull_request"
        )


class ReviewThread(models.Model):
    """A conversation about lines of the result, a file (`line` is empty), or all of it (`path` is empty).

    It is anchored by path, side, line and the text of the line in `commit`. A range goes from `first_line` to
    `line`. The agent answers by the number.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="threads")
    review = models.ForeignKey(
        Review, null=True, blank=True, on_delete=models.CASCADE, related_name="threads",
        help_text="The review that opened it; empty: it comes from a pull request.",
    )  # fmt: skip
    pull_request = models.ForeignKey(
        "PullRequest", null=True, blank=True, on_delete=models.CASCADE, related_name="threads"
    )
    discussion = models.CharField(max_length=200, blank=True, help_text="Its id at the forge.")
    number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Counts the task's threads from 1; that of a draft has none."
    )
    state = models.CharField(max_length=20, choices=ThreadState, default=ThreadState.OPEN)
    path = models.CharField(max_length=4096, blank=True)
    side = models.CharField(max_length=3, choices=Side, default=Side.NEW)
    first_line = models.PositiveIntegerField(null=True, blank=True)
    line = models.PositiveIntegerField(null=True, blank=True)
    line_text = models.TextField(blank=True, help_text="The text of the line, up to 2,000 characters.")
    commit = models.CharField(max_length=64, help_text="The commit in which the line stands.")
    created_at = models.DateTimeField(auto_now_add=True)
    resolved_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    resolved_at = models.DateTimeField(null=True, blank=True)

    objects = ReviewThreadQuerySet.as_manager()

    class Meta:
        ordering = ["task_id", "number", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="one_thread_per_number"),
            models.CheckConstraint(
                condition=Q(state="resolved") ^ Q(resolved_at=None), name="a_resolved_thread_has_a_time"
            ),
            models.CheckConstraint(
                condition=Q(review=None) ^ Q(pull_request=None),
                name="a_thread_is_of_a_review_or_a_pull_request",
            ),
            models.UniqueConstraint(
                fields=["pull_request", "discussion"],
                condition=Q(pull_request__isnull=False),
                name="one_thread_per_discussion",
            ),
        ]

    def __str__(self) -> str:
        return f"thread {self.number}" if self.number else "draft of a thread"

    @property
    def place(self) -> str:
        """Where it was opened, such as `app/billing.py:12` or `app/billing.py:8-12`; empty for the whole."""
        if not self.line:
            return self.path
        if not self.first_line:
            return f"{self.path}:{self.line}"
        return f"{self.path}:{self.first_line}-{self.line}"

    @property
    def is_resolved(self) -> bool:
        return self.state == ThreadState.RESOLVED


class ThreadComment(models.Model):
    """One comment of a thread, by a human (`author`) or by the agent of a `run`. Never changed.

    A comment from a pull request has neither, but the name of who wrote it there (`forge_author`).
    """

    thread = models.ForeignKey(ReviewThread, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="thread_comments"
    )
    run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.CASCADE, related_name="thread_comments"
    )
    forge_author = models.CharField(max_length=200, blank=True, help_text="Who wrote it, at a forge.")
    forge_id = models.CharField(
        max_length=64, blank=True, editable=False, help_text="Its id in the pull request, if it is there."
    )
    text = models.TextField()
    at = models.DateTimeField(auto_now_add=True)
    key = models.CharField(
        max_length=64,
        blank=True,
        editable=False,
        help_text="Of the agent's reply, which is read more than once.",
    )
    announce_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When others are told of this reply; empty afterwards.",
    )

    class Meta:
        ordering = ["at", "pk"]
        indexes = [
            models.Index(
                fields=["announce_at"], condition=Q(announce_at__isnull=False), name="reply_unannounced"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["thread", "key"], condition=~Q(key=""), name="one_comment_per_reply"
            ),
            models.CheckConstraint(
                condition=Q(author__isnull=False, run=None, forge_author="")
                | Q(author=None, run__isnull=False, forge_author="")
                | (Q(author=None, run=None) & ~Q(forge_author="")),
                name="a_comment_is_of_a_human_or_an_agent",
            ),
            models.UniqueConstraint(
                fields=["thread", "forge_id"], condition=~Q(forge_id=""), name="one_comment_per_forge_id"
            ),
        ]

    def __str__(self) -> str:
        return self.text[:80]

    @property
    def by(self) -> str:
        """The author's name. For comments at a forge it cannot be confused with a user's."""
        if self.forge_author:
            kind = self.thread.pull_request.forge_label if self.thread.pull_request else "the forge"
            return f"{self.forge_author} on {kind}"
        if self.author:
            return self.author.shown_name
        return f"agent of {self.run.step.name}" if self.run else "agent"


class ViewedFile(models.Model):
    """A file of a task's result that a user has marked as viewed, in one content.

    A mark holds for its content only, so it ends by itself when the file is changed. `key` is made of path
    and blob, because a path is too long for an index.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="viewed_files")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="viewed_files")
    path = models.CharField(max_length=4096)
    blob = models.CharField(max_length=64, blank=True, help_text="Of the content; empty for a deleted file.")
    key = models.CharField(max_length=64, editable=False)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["task_id", "user_id", "path"]
        constraints = [
            models.UniqueConstraint(fields=["task", "user", "key"], name="one_mark_per_viewed_content"),
        ]

    def __str__(self) -> str:
        return self.path
