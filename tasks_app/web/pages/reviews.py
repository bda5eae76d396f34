"""Reviewing on a page: comments on lines, the draft, sending it, replies."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app import permissions
from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove, NotAllowed, ResultChanged
from tasks_app.models import Channel, ReviewThread, ReviewVerdict, Side, Task
from tasks_app.services.reviews.reviews import (
    NewThread,
    add_to_draft,
    change_draft,
    remove_from_draft,
    send_review,
)
from tasks_app.services.reviews.threads import reply_to, resolve
from tasks_app.web.pages.access import is_htmx, may_act, principal_of, task_or_404
from tasks_app.web.pages.review_threads import review_state, shown_threads

#: Told to the page when the draft, or a thread, changed.
_CHANGED = "catherder:review"


def review_part(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render the reviews of the task so far and what the draft holds."""
    task = task_or_404(request, task_id)
    context = {"task": task, "review": review_state(request, task), "may_act": may_act(request, task.project)}
    return render(request, "reviews/_state.html", context)


def _thread_action(act: Callable[..., ReviewThread | None]) -> Callable[..., HttpResponse]:
    """Make a page of a function that acts on a thread and returns it, or None if it is gone.

    The response is the thread as it is then, or the reason of a refusal.
    """

    @require_POST
    @wraps(act)
    def page(request: HttpRequest, task_id: int, **place: int) -> HttpResponse:
        task = task_or_404(request, task_id)
        try:
            thread = act(request, task, **place)
        except CatHerderError as error:
            return _refused(request, task, error)
        return _thread_response(request, task, thread)

    return page


@_thread_action
def thread_add(request: HttpRequest, task: Task) -> ReviewThread:
    """Add a comment to the user's draft; the form says on which line of which result."""
    commit = request.POST.get("commit", "")
    return add_to_draft(task, _new_thread(request), by=principal_of(request), commit=commit)


@_thread_action
def thread_change(request: HttpRequest, task: Task, thread_id: int) -> ReviewThread:
    by = principal_of(request)
    thread = permissions.draft_thread_or_404(by, task.pk, thread_id)
    change_draft(thread, request.POST.get("text", ""), by=by)
    return thread


@_thread_action
def thread_remove(request: HttpRequest, task: Task, thread_id: int) -> None:
    by = principal_of(request)
    remove_from_draft(permissions.draft_thread_or_404(by, task.pk, thread_id), by=by)


@_thread_action
def thread_reply(request: HttpRequest, task: Task, number: int) -> ReviewThread:
    by = principal_of(request)
    thread = permissions.thread_or_404(by, task.pk, number)
    reply_to(thread, request.POST.get("text", ""), by=by)
    return thread


@_thread_action
def thread_resolve(request: HttpRequest, task: Task, number: int) -> ReviewThread:
    """Resolve the thread; `reopen=yes` opens it again."""
    by = principal_of(request)
    thread = permissions.thread_or_404(by, task.pk, number)
    resolve(thread, by=by, reopen=request.POST.get("reopen") == "yes")
    return thread


@require_POST
def review_send(request: HttpRequest, task_id: int) -> HttpResponse:
    """Send the user's draft with a verdict. If it is refused, the draft is kept."""
    task = task_or_404(request, task_id)
    try:
        permissions.require_actor(principal_of(request), task.project)
        review = send_review(
            task,
            _verdict(request),
            by=principal_of(request),
            via=Channel.WEB,
            body=request.POST.get("body", ""),
            commit=request.POST.get("commit", ""),
            with_draft=True,
            form_key=_form_key(request),
        )
    except CatHerderError as error:
        return _refused(request, task, error)
    messages.success(request, _SENT[ReviewVerdict(review.verdict)])
    target = reverse("task", args=[task.pk])
    return HttpResponse(headers={"HX-Redirect": target}) if is_htmx(request) else redirect(target)


_SENT = {
    ReviewVerdict.COMMENT: "Your review was sent.",
    ReviewVerdict.REQUEST_CHANGES: "Your review was sent. The agent gets it in its own session.",
    ReviewVerdict.APPROVE: "You approved this result. The approval ends when the code changes.",
}
_STATUS: dict[type[CatHerderError], int] = {NotAllowed: 403, IllegalMove: 409, ResultChanged: 409}


def _verdict(request: HttpRequest) -> ReviewVerdict:
    given = request.POST.get("verdict", "")
    if given not in ReviewVerdict.values:
        raise BadInput("choose what you conclude", where="verdict")
    return ReviewVerdict(given)


def _form_key(request: HttpRequest) -> str:
    try:
        return str(uuid.UUID(request.POST.get("form_key", "")))
    except ValueError:
        return ""


def _new_thread(request: HttpRequest) -> NewThread:
    side = Side.OLD if request.POST.get("side") == Side.OLD else Side.NEW
    return NewThread(
        request.POST.get("text", ""),
        request.POST.get("path", ""),
        side,
        _line_number(request, "line"),
        _line_number(request, "first_line"),
    )


def _line_number(request: HttpRequest, name: str) -> int | None:
    given = request.POST.get(name, "")
    if not given:
        return None
    if not given.isdecimal() or len(given) > 9:
        raise BadInput(f"{given[:20]!r} is not the number of a line", where=name)
    return int(given)


def _thread_response(request: HttpRequest, task: Task, thread: ReviewThread | None) -> HttpResponse:
    if not is_htmx(request):
        return redirect("task_diff", task.pk)
    if thread is None:
        response = HttpResponse()
    else:
        shown = shown_threads(request, task, [thread])[0]
        response = render(request, "reviews/_thread.html", {"shown": shown, "task": task})
    response["HX-Trigger"] = _CHANGED
    return response


def _refused(request: HttpRequest, task: Task, error: CatHerderError) -> HttpResponse:
    if is_htmx(request):
        return _refusal(request, "find .thread-refusal", error)
    if isinstance(error, NotAllowed):
        raise PermissionDenied(str(error)) from error
    messages.error(request, str(error))
    return redirect("task_diff", task.pk)


def _refusal(request: HttpRequest, place: str, error: CatHerderError) -> HttpResponse:
    """Return the reason. HTMX puts it at the form and leaves everything that was entered."""
    status = _STATUS.get(type(error), 400)
    response = render(request, "questions/_refusal.html", {"message": str(error)}, status=status)
    response["HX-Retarget"] = place
    response["HX-Reswap"] = "innerHTML"
    return response
