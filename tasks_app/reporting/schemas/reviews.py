"""JSON models of reviews and their threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, Self

from pydantic import Field

from tasks_app.models import Review, ReviewThread, ReviewVerdict, Side, Task, ThreadComment, ThreadState
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none
from tasks_app.services.reviews.reviews import approvals_of
from tasks_app.services.reviews.threads import Place, places_now


class CommentOut(Out):
    """One comment of a thread."""

    author: str = Field(description="Who wrote it: a user, the agent of a step, or a user of the forge.")
    by: UserOut | None = Field(description="The user who wrote it; null for the agent and the forge.")
    step: str = Field(description="The step whose agent wrote it; empty for humans.")
    at: DateTime = Field(description="When it was written.")
    text: str = Field(description="The text.")

    @classmethod
    def of(cls, comment: ThreadComment) -> Self:
        step = comment.run.step.name if comment.run else ""
        return cls(
            author=comment.by, by=user_or_none(comment.author), step=step, at=comment.at, text=comment.text
        )


class ThreadOut(Out):
    """A conversation about lines of the result, a file, or all of it."""

    number: int = Field(description="Counts the task's threads from 1; the agent replies to this number.")
    review: int | None = Field(description="The number of the review that opened it; else null.")
    pull_request: int | None = Field(
        description="The number of the pull request in which it was opened; else null."
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

    @classmethod
    def of(cls, thread: ReviewThread, place: Place | None) -> Self:
        return cls(
            number=thread.number or 0,
            review=thread.review.number if thread.review else None,
            pull_request=thread.pull_request.number if thread.pull_request else None,
            state=ThreadState(thread.state),
            path=thread.path,
            side=Side(thread.side),
            first_line=thread.first_line,
            line=thread.line,
            line_text=thread.line_text,
            commit=thread.commit,
            outdated=place is None,
            path_now=place.path if place else "",
            line_now=place.line if place else None,
            comments=[CommentOut.of(comment) for comment in thread.comments.all()],
        )


def threads_out(task: Task) -> list[ThreadOut]:
    """Return all sent threads of a task, in order."""
    rows = task.threads.sent().select_related("review", "pull_request").with_comments()
    threads = list(rows.order_by("number"))
    places = places_now(task, threads)
    return [ThreadOut.of(thread, places[thread.pk]) for thread in threads]


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
    agent: Literal["", "waiting", "handed_over", "received"] = Field(
        description="For a request for changes: whether the agent has it; else empty."
    )
    threads: list[ThreadOut] = Field(description="The threads that it opened.")

    @classmethod
    def of(cls, review: Review, threads: Iterable[ThreadOut], approvals: Collection[Review]) -> Self:
        return cls(
            number=review.number or 0,
            author=UserOut.of(review.author),
            verdict=ReviewVerdict(review.verdict),
            body=review.body,
            commit=review.commit,
            sent_at=review.sent_at or review.created_at,
            holds=review in approvals,
            agent=_delivery(review),
            threads=[thread for thread in threads if thread.review == review.number],
        )


def _delivery(review: Review) -> Literal["", "waiting", "handed_over", "received"]:
    if review.verdict != ReviewVerdict.REQUEST_CHANGES:
        return ""
    if review.delivered_at:
        return "received"
    return "handed_over" if review.handed_in_id else "waiting"


class ReviewsOut(Out):
    """Output of `manage.py review TASK --json`."""

    task: int = Field(description="The task's id.")
    commit: str = Field(description="The newest commit of its result.")
    reviews: list[ReviewOut] = Field(description="Its reviews, the oldest first.")
    threads: list[ThreadOut] = Field(description="The threads that were opened in its pull request.")

    @classmethod
    def of(cls, task: Task) -> Self:
        threads, approvals = threads_out(task), approvals_of(task)
        rows = task.reviews.sent().select_related("author", "task").order_by("number")
        return cls(
            task=task.pk,
            commit=task.head_commit,
            reviews=[ReviewOut.of(review, threads, approvals) for review in rows],
            threads=[thread for thread in threads if thread.review is None],
        )


def review_out(review: Review) -> ReviewOut:
    """Return a sent review as it stands in the list of its task's reviews."""
    return next(one for one in ReviewsOut.of(review.task).reviews if one.number == review.number)
