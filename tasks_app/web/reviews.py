"""Reviews of results: threads of comments at lines of a diff, and the verdict."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial, wraps

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app import permissions
from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove, NotAllowed, ResultChanged
from tasks_app.core.text import in_one_line, visible
from tasks_app.models import Channel, Review, ReviewThread, ReviewVerdict, Side, Task
from tasks_app.services.review_threads import Place, places_now, reply_to, resolve
from tasks_app.services.reviews import (
    NewThread,
    add_to_draft,
    approvals_of,
    change_draft,
    remove_from_draft,
    send_review,
)
from tasks_app.web.access import (
    current_user,
    is_htmx,
    may_act,
    number_from,
    principal_of,
    refusal,
    run_action,
    task_or_404,
)
from tasks_app.web.publishing import publish_and_say_so, usual_options
from tasks_app.web.rendering.diff import DiffLine, FileDiff

#: A line of a file on one side of a diff.
LineKey = tuple[str, Side, int]


@dataclass(frozen=True)
class ShownThread:
    """A thread with its place in the newest result (None: the code was changed since)."""

    thread: ReviewThread
    place: Place | None
    may_act: bool

    @property
    def is_draft(self) -> bool:
        return self.thread.number is None

    @property
    def is_outdated(self) -> bool:
        return self.place is None

    @property
    def path(self) -> str:
        """Its file in the newest result; if that was changed since, the file about which it was opened."""
        return self.place.path if self.place else self.thread.path

    @property
    def place_name(self) -> str:
        """File and line in one line, with invisible characters made visible."""
        return in_one_line(self.thread.place)

    @property
    def line_text(self) -> str:
        return visible(self.thread.line_text)

    @property
    def key(self) -> LineKey | None:
        """The line beside which it stands; None if it stands at none."""
        if self.place is None or self.place.line is None:
            return None
        return (self.place.path, Side(self.thread.side), self.place.line)


@dataclass(frozen=True)
class ShownLine:
    """A line of a diff with its threads. `number` on its `side` is where a new one stands, if it may."""

    line: DiffLine
    threads: list[ShownThread]
    number: int | None

    @property
    def side(self) -> str:
        return Side.OLD if self.line.kind == "del" else Side.NEW


@dataclass
class ThreadsBeside:
    """The threads of a task by their file, for one comparison.

    `by_path` has for each path the threads about it, `whole` those about the whole result. A comparison with
    other old lines than those where the task began has no place for threads on old lines (`old_side`).
    """

    by_path: dict[str, list[ShownThread]] = field(default_factory=dict)
    whole: list[ShownThread] = field(default_factory=list)
    old_side: bool = True
    new_side: bool = True

    def of_file(self, *paths: str) -> list[ShownThread]:
        """Return the threads about a file, given by its path and its former one."""
        found = {shown.thread.pk: shown for path in paths for shown in self.by_path.get(path, [])}
        return sorted(found.values(), key=_sorting_key)

    def lines_of(self, file: FileDiff) -> list[ShownLine]:
        """Return the file's lines with their threads."""
        beside: dict[LineKey, list[ShownThread]] = defaultdict(list)
        for shown in self.of_file(file.path, file.old_path):
            if shown.key and (self.old_side or shown.key[1] == Side.NEW):
                beside[shown.key].append(shown)
        return [self._shown(file, line, beside) for line in file.lines]

    def _shown(self, file: FileDiff, line: DiffLine, beside: dict[LineKey, list[ShownThread]]) -> ShownLine:
        found: list[ShownThread] = []
        if line.new is not None:
            found += beside.get((file.path, Side.NEW, line.new), [])
        if line.old is not None:
            found += beside.get((file.old_path or file.path, Side.OLD, line.old), [])
        number, takes_threads = line.new, self.new_side
        if line.kind == "del":
            number, takes_threads = line.old, self.old_side
        return ShownLine(line, found, number if takes_threads else None)

    def elsewhere(self, paths: Collection[str]) -> list[ShownThread]:
        """Return the threads about the whole result, and those about other files than these."""
        others = [shown for path, group in self.by_path.items() if path not in paths for shown in group]
        known = {shown.thread.pk for path in paths for shown in self.by_path.get(path, [])}
        left = {shown.thread.pk: shown for shown in [*self.whole, *others] if shown.thread.pk not in known}
        return sorted(left.values(), key=_sorting_key)


def _sorting_key(shown: ShownThread) -> tuple[bool, int, int]:
    return (shown.thread.number is None, shown.thread.number or 0, shown.thread.pk)


def no_threads() -> ThreadsBeside:
    """Return what a comparison has that is not about the newest result."""
    return ThreadsBeside(old_side=False, new_side=False)


def threads_beside(request: HttpRequest, task: Task, *, old_side: bool = True) -> ThreadsBeside:
    """Return all threads that the user may see: the sent ones, and their own draft."""
    beside = ThreadsBeside(old_side=old_side)
    sent_or_own = Q(number__isnull=False) | Q(review__author=current_user(request))
    rows = task.threads.filter(sent_or_own).select_related("review__author", "resolved_by")
    for shown in shown_threads(request, task, list(rows.with_comments().order_by("number", "pk"))):
        if path := shown.path:
            beside.by_path.setdefault(path, []).append(shown)
        else:
            beside.whole.append(shown)
    return beside


def shown_threads(request: HttpRequest, task: Task, threads: Iterable[ReviewThread]) -> list[ShownThread]:
    rows = list(threads)
    places, acting = places_now(task, rows), may_act(request, task.project)
    return [ShownThread(row, places[row.pk], acting) for row in rows]


@dataclass(frozen=True)
class ReviewState:
    """The state before sending a review: the draft, and the reviews so far."""

    drafted: int
    open_threads: int
    reviews: list[Review]
    approvals: list[Review]
    requested: bool

    @property
    def has_content(self) -> bool:
        """Return whether somebody has reviewed the task, or the reader is about to."""
        return bool(self.reviews or self.drafted or self.open_threads)


def review_state(request: HttpRequest, task: Task) -> ReviewState:
    reviews = list(task.reviews.sent().with_answers().select_related("author", "task").order_by("number"))
    drafts = task.threads.filter(number=None, review__author=current_user(request))
    waiting = any(
        review.verdict == ReviewVerdict.REQUEST_CHANGES and review.delivered_at is None for review in reviews
    )
    return ReviewState(drafts.count(), task.threads.open().count(), reviews, approvals_of(task), waiting)


def own_last_review(request: HttpRequest, task: Task) -> Review | None:
    """Return the user's last review of the task if the code has changed since."""
    last = task.reviews.sent().filter(author=current_user(request)).order_by("-number").first()
    return last if last and last.commit != task.head_commit else None


#: Told to the page when the draft, or a thread, changed.
_CHANGED = "catherder:review"


def review_part(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render the reviews of the task so far; `?part=drafted`: how much the user has not sent."""
    task = task_or_404(request, task_id)
    template = "reviews/_state.html"
    if request.GET.get("part") == "drafted":
        template = "reviews/_drafted.html"
    return render(request, template, {"task": task, "review": review_state(request, task)})


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
    """Send the user's draft with a verdict, and publish with `approve_and_publish`.

    If it is refused, the draft is kept; an approval counts also if publishing is refused.
    """
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
    if request.POST.get("verdict") == _APPROVE_AND_PUBLISH:
        run_action(request, task, partial(publish_and_say_so, request, **usual_options(task)))
    target = reverse("task", args=[task.pk])
    if is_htmx(request):
        return HttpResponse(headers={"HX-Redirect": target})
    return redirect(target)


#: The button that publishes with the usual options what it approves.
_APPROVE_AND_PUBLISH = "approve_and_publish"
_SENT = {
    ReviewVerdict.COMMENT: "Your review was sent.",
    ReviewVerdict.REQUEST_CHANGES: "Your review was sent. The agent gets it in its own session.",
    ReviewVerdict.APPROVE: "You approved this result. The approval ends when the code changes.",
}
_STATUS: dict[type[CatHerderError], int] = {NotAllowed: 403, IllegalMove: 409, ResultChanged: 409}


def _verdict(request: HttpRequest) -> ReviewVerdict:
    given = request.POST.get("verdict", "")
    if given == _APPROVE_AND_PUBLISH:
        return ReviewVerdict.APPROVE
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
    number = number_from(given, digits=9)
    if number is None:
        raise BadInput(f"{given[:20]!r} is not the number of a line", where=name)
    return number


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
        status = _STATUS.get(type(error), 400)
        return refusal(request, str(error), status=status, target="find .thread-refusal")
    if isinstance(error, NotAllowed):
        raise error
    messages.error(request, str(error))
    return redirect("task_diff", task.pk)
