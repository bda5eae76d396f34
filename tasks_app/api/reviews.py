"""Operations on reviews of a task's result, and on their threads."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Path, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, channel, principal_of
from tasks_app.api.base import Flag, Input, Storable, TaskId, responses
from tasks_app.api.idempotency import once
from tasks_app.models import ReviewVerdict, Scope, Side
from tasks_app.schemas.reviews import ReviewOut, ReviewsOut, ThreadOut, review_out, threads_out
from tasks_app.services.publishing import pull_requests
from tasks_app.services.review_threads import reply_to, resolve
from tasks_app.services.reviews import MOST_THREADS, NewThread, send_review

ThreadNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="The thread's number in its task.")]
_Line = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]


class ThreadIn(Input):
    """A thread to open: on a line or a range, a file (no line), or the whole result (no path)."""

    text: Annotated[Storable, Field(min_length=1)] = Field(
        description="What you want to say.", examples=["Round half up, as the invoices do."]
    )
    path: Annotated[Storable, Field(max_length=4096)] = Field("", description="The file's path.")
    side: Side = Field(Side.NEW, description="`new`: a line after the change; `old`: one before it.")
    line: _Line | None = Field(None, description="The line, from 1.")
    first_line: _Line | None = Field(None, description="Where a range begins that ends at `line`.")

    def thread(self, where: str) -> NewThread:
        return NewThread(self.text, self.path, self.side, self.line, self.first_line, where)


class ReviewIn(Input):
    """A review. `request_changes` resumes the agent's session with all open threads."""

    verdict: ReviewVerdict = Field(description="What you conclude.", examples=["comment"])
    body: Storable = Field("", description="What you say about the whole.", examples=["Nearly there."])
    threads: list[ThreadIn] = Field(
        default_factory=list, max_length=MOST_THREADS, description="Comments on lines, files or the whole."
    )
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")] = Field(
        "", description="The result that you looked at; empty: the newest. Only the newest can be approved."
    )


class ReplyIn(Input):
    text: Annotated[Storable, Field(min_length=1)] = Field(
        description="Your reply; the thread is open again for the agent.", examples=["Please do."]
    )


class Resolution(Input):
    reopen: Flag = Field(False, description="Open it again instead.")


class Reviews(Schema):
    items: list[ReviewOut] = Field(description="The reviews, the oldest first.")
    threads: list[ThreadOut] = Field(description="The threads that were opened in the pull request.")


class Threads(Schema):
    items: list[ThreadOut] = Field(description="The threads in order.")


router = Router(tags=["Reviews"])


@router.get("/tasks/{task_id}/reviews", response=responses(Reviews, 404), auth=authenticators(Scope.READ))
def list_reviews(request: HttpRequest, task_id: TaskId) -> Reviews:
    """List the reviews of a task's result, the oldest first, with their threads.

    Threads that were opened in the pull request follow in `threads`.
    """
    found = ReviewsOut.from_row(permissions.task_or_404(principal_of(request), task_id))
    return Reviews(items=found.reviews, threads=found.threads)


@router.post(
    "/tasks/{task_id}/merge",
    response=responses(ReviewOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once
def let_agent_merge(request: HttpRequest, task_id: TaskId) -> Status[ReviewOut]:
    """Let the agent merge the project's branch, with which the result of a done task conflicts.

    The last step that wrote code and may write these files goes on in its session, with a request for
    changes that names them.
    """
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    return Status(201, review_out(pull_requests.let_agent_merge(task, by=principal, via=channel())))


@router.post(
    "/tasks/{task_id}/reviews",
    response=responses(ReviewOut, 404, 409, 413, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once
def create_review(request: HttpRequest, task_id: TaskId, body: ReviewIn) -> Status[ReviewOut]:
    """Review a task's result: comment, request changes, or approve it.

    Requested changes go to the last step that wrote code and may change the files concerned, in its session;
    while the task works they wait until its steps are done. An approval ends when the code changes.
    """
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    review = send_review(
        task,
        body.verdict,
        by=principal,
        via=channel(),
        body=body.body,
        threads=[given.thread(f"body.threads.{index}") for index, given in enumerate(body.threads)],
        commit=body.commit,
    )
    return Status(201, review_out(review))


@router.get("/tasks/{task_id}/threads", response=responses(Threads, 404), auth=authenticators(Scope.READ))
def list_threads(request: HttpRequest, task_id: TaskId) -> Threads:
    """List the threads of a task, with the place of each in the newest result."""
    return Threads(items=threads_out(permissions.task_or_404(principal_of(request), task_id)))


@router.post(
    "/tasks/{task_id}/threads/{number}/reply",
    response=responses(ThreadOut, 404, 413, 422),
    auth=authenticators(Scope.WRITE),
)
@once
def reply_to_thread(
    request: HttpRequest, task_id: TaskId, number: ThreadNumber, body: ReplyIn
) -> Status[ThreadOut]:
    """Reply to a thread. It is open again, and goes to the agent with the next request for changes."""
    thread = permissions.thread_or_404(principal_of(request), task_id, number)
    reply_to(thread, body.text, by=principal_of(request))
    return Status(200, _thread_out(request, task_id, number))


@router.post(
    "/tasks/{task_id}/threads/{number}/resolve",
    response=responses(ThreadOut, 404),
    auth=authenticators(Scope.WRITE),
)
def resolve_thread(
    request: HttpRequest, task_id: TaskId, number: ThreadNumber, body: Resolution
) -> ThreadOut:
    """Resolve a thread, or open it again. Doing it twice changes nothing."""
    thread = permissions.thread_or_404(principal_of(request), task_id, number)
    resolve(thread, by=principal_of(request), reopen=body.reopen)
    return _thread_out(request, task_id, number)


def _thread_out(request: HttpRequest, task_id: int, number: int) -> ThreadOut:
    task = permissions.task_or_404(principal_of(request), task_id)
    return next(thread for thread in threads_out(task) if thread.number == number)
