"""Operations on reviews of a task's result, and on their threads."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.schemas.base import TaskId
from tasks_app.api.schemas.reviews import ReplyIn, Resolution, ReviewIn, Reviews, ThreadNumber, Threads
from tasks_app.models import Channel, Scope
from tasks_app.reporting.schemas.reviews import ReviewOut, ReviewsOut, ThreadOut, review_out, threads_out
from tasks_app.services.publishing import merging
from tasks_app.services.reviews import threads as threads_service
from tasks_app.services.reviews.reviews import send_review

router = Router(tags=["Reviews"])


@router.get("/tasks/{task_id}/reviews", response=responses(Reviews, 404), auth=authenticators(Scope.READ))
def list_reviews(request: HttpRequest, task_id: TaskId) -> Reviews:
    """List the reviews of a task's result, the oldest first, with their threads.

    Threads that were opened in the pull request follow in `threads`.
    """
    found = ReviewsOut.of(permissions.task_or_404(principal_of(request), task_id))
    return Reviews(items=found.reviews, threads=found.threads)


@router.post(
    "/tasks/{task_id}/merge",
    response=responses(ReviewOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once
def let_agent_merge(request: HttpRequest, task_id: TaskId) -> Status[ReviewOut]:
    """Let the agent merge the project's branch, with which the result of a done task conflicts.

    The session that last wrote the code is resumed with a request for changes, which names the files.
    """
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    return Status(201, review_out(merging.let_agent_merge(task, by=principal, via=Channel.API)))


@router.post(
    "/tasks/{task_id}/reviews",
    response=responses(ReviewOut, 404, 409, 413, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once
def create_review(request: HttpRequest, task_id: TaskId, body: ReviewIn) -> Status[ReviewOut]:
    """Review a task's result: comment, request changes, or approve it.

    Requested changes resume the session that last wrote the code; while the task works they wait until its
    steps are done. An approval ends when the code changes.
    """
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    review = send_review(
        task,
        body.verdict,
        by=principal,
        via=Channel.API,
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
    threads_service.reply_to(thread, body.text, by=principal_of(request))
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
    threads_service.resolve(thread, by=principal_of(request), reopen=body.reopen)
    return _thread_out(request, task_id, number)


def _thread_out(request: HttpRequest, task_id: int, number: int) -> ThreadOut:
    task = permissions.task_or_404(principal_of(request), task_id)
    return next(thread for thread in threads_out(task) if thread.number == number)
