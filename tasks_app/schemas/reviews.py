"""JSON models of reviews and their threads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field

from tasks_app.models import Review, ReviewThread, ReviewVerdict, Side, Task, ThreadComment, ThreadState
from tasks_app.schemas.base import DateTime, Out, UserOut
from tasks_app.services.review_threads import Place, places_now
from tasks_app.services.reviews import approvals_of


class CommentOut(Out):
    """One comment of a thread."""

    author: str = Field(
        validation_alias="by",
        description="Who wrote it: a user, the agent of a step, or a user of the forge.",
    )
    by: UserOut | None = Field(
        validation_alias="author", description="The user who wrote it; null for the agent and the forge."
    )
    step: str = Field(description="The step whose agent wrote it; empty for humans.")
    at: DateTime = Field(description="When it was written.")
    text: str = Field(description="The text.")

    @staticmethod
    def resolve_step(comment: ThreadComment) -> str:
        return comment.run.step.name if comment.run else ""


class ThreadOut(Out):
    """A conversation about lines of the result, a file, or all of it."""

    number: int = Field(description="Counts the task's threads from 1; the agent replies to this number.")
    review: int | None = Field(
        validation_alias="review.number", description="The number of the review that opened it; else null."
    )
    pull_request: int | None = Field(
        validation_alias="pull_request.number",
        description="The number of the pull request in which it was opened; else null.",
    )
    state: ThreadState = Field(description="`open` until the agent answers or a human resolves it.")
    path: str = Field(description="The file; empty for the whole result.")
    side: Side = Field(description="`new`: the line after the change; `old`: before it.")
    first_line: int | None = Field(description="Where a range begins; null for one line.")
    line: int | None = Field(description="The line, from 1; null for a whole file or result.")
    line_text: str = Field(description="The text of that line when the thread was opened.")
    commit: str = Field(description="The commit in which the line stands.")
    outdated: bool = Field(description="Whether the line was changed since.")
    path_now: str = Field(description="The file in the newest result; empty if it is outdated.")
    line_now: int | None = Field(description="The line in the newest result; null if it is outdated.")
    comments: list[CommentOut] = Field(description="The comments, the oldest first.")

    @staticmethod
    def resolve_comments(thread: ReviewThread) -> Iterable[ThreadComment]:
        return thread.comments.all()


def threads_out(task: Task) -> list[ThreadOut]:
    """Return all sent threads of a task, in order."""
    rows = task.threads.sent().select_related("review", "pull_request").with_comments()
    threads = list(rows.order_by("number"))
    places = places_now(task, threads)
    return [_thread_out(thread, places[thread.pk]) for thread in threads]


def _thread_out(thread: ReviewThread, place: Place | None) -> ThreadOut:
    if place is None:
        return ThreadOut.from_row(thread, outdated=True, path_now="", line_now=None)
    return ThreadOut.from_row(thread, outdated=False, path_now=place.path, line_now=place.line)


class ReviewOut(Out):
    """One person's review of a task's result."""

    number: int = Field(description="Counts the task's reviews from 1.")
    author: UserOut = Field(description="Who wrote it.")
    verdict: ReviewVerdict = Field(description="What the reviewer concluded.")
    body: str = Field(description="What the reviewer wrote about the whole.")
    commit: str = Field(description="The result that was looked at.")
    sent_at: DateTime = Field(description="When it was sent.")
    holds: bool = Field(
        description="Whether it is an approval that counts: its author’s last one, of the newest result."
    )
    agent: Literal["", "waiting", "handed_over", "received", "answered"] = Field(
        description="For a request for changes: whether the agent has it, and has ended its work on it; else "
        "empty."
    )
    answered_in: int | None = Field(description="The number of the run in which the agent answered it.")
    threads: list[ThreadOut] = Field(description="The threads that it opened.")

    @staticmethod
    def resolve_agent(review: Review) -> Literal["", "waiting", "handed_over", "received", "answered"]:
        if review.verdict != ReviewVerdict.REQUEST_CHANGES:
            return ""
        if review.delivered_at and review.answered_in:
            return "answered"
        if review.delivered_at:
            return "received"
        if review.handed_in_id:
            return "handed_over"
        return "waiting"

    @staticmethod
    def resolve_answered_in(review: Review) -> int | None:
        if ReviewOut.resolve_agent(review) != "answered":
            return None
        return review.answered_in


class ReviewsOut(Out):
    """Output of `cat-herder review TASK --json`."""

    task: int = Field(validation_alias="pk", description="The task's id.")
    commit: str = Field(validation_alias="head_commit", description="The newest commit of its result.")
    reviews: list[ReviewOut] = Field(description="Its reviews, the oldest first.")
    threads: list[ThreadOut] = Field(description="The threads that were opened in its pull request.")

    @classmethod
    def from_row(cls, task: Task, /, **more: Any) -> Self:
        threads, approvals = threads_out(task), approvals_of(task)
        rows = task.reviews.sent().with_answers().select_related("author", "task").order_by("number")
        return super().from_row(
            task,
            reviews=[
                ReviewOut.from_row(
                    review,
                    holds=review in approvals,
                    threads=[thread for thread in threads if thread.review == review.number],
                )
                for review in rows
            ],
            threads=[thread for thread in threads if thread.review is None],
            **more,
        )


def review_out(review: Review) -> ReviewOut:
    """Return a sent review as it stands in the list of its task's reviews."""
    return next(one for one in ReviewsOut.from_row(review.task).reviews if one.number == review.number)
