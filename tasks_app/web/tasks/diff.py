"""The page of changes, and their downloads."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.text import in_one_line
from tasks_app.git import TEXT_BYTES, blob_contents, blob_sizes
from tasks_app.history.events.logs import LogKind, render_log, render_setup_log
from tasks_app.models import Task, prefetch_answerers
from tasks_app.services.difference import has_separate_runs
from tasks_app.services.exports import download, download_difference, download_patch, record_download
from tasks_app.services.results import checks_of
from tasks_app.services.reviews import mark_viewed, viewed_key, viewed_keys, why_not_change
from tasks_app.web.access import (
    current_user,
    is_htmx,
    may_act,
    principal_of,
    sequence_or_404,
    step_or_404,
    task_or_404,
)
from tasks_app.web.publishing import can_approve
from tasks_app.web.rendering.diff import FileDiff, Gap, shown_lines, tree_rows
from tasks_app.web.rendering.syntax import colours_of, language_of
from tasks_app.web.reviews import (
    ReviewState,
    ThreadsBeside,
    no_threads,
    own_last_review,
    review_state,
    threads_beside,
)
from tasks_app.web.tasks.comparison import Comparison, chosen_comparison, chosen_file, number_in
from tasks_app.web.tasks.diff_files import (
    FileList,
    ListedFile,
    anchor_of,
    expanded_lines,
    file_bodies,
    file_list,
    file_url,
    image_type,
    rows_of,
)
from tasks_app.web.tasks.head import Tab, head_context
from tasks_app.web.tasks.result import shown_accounts

#: The cookie with the view that a browser last chose.
VIEW_COOKIE = "diff_view"
_YEAR = 365 * 24 * 3600
_IMAGE_BYTES = 10_000_000
#: Lines of a gap that are shown at once.
_MOST_EXPANDED = 5_000


def task_diff(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show what changed, with the threads of reviewers.

    `?step=N`: by one step; `?step=N&run=M`: by one run; `?since=N`: since review N;
    `?from=sequence`: by its sequence up to it; else by the whole task.
    `?file=PATH`: one file of it. `?view=split`: old and new lines beside each other.
    """
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    context = _page_context(request, compared)
    if not is_htmx(request):
        context |= head_context(request, task, Tab.CHANGES)
        if not compared.query:
            context |= {"checks": checks_of([task]), "accounts": shown_accounts(task, [task])}
    try:
        if "file" in request.GET:
            context |= _file_context(request, compared)
        else:
            context |= _list_context(request, compared)
    except WorkspaceError as error:
        context["trouble"] = str(error)
    response = render(request, _template(request), context)
    if request.GET.get("view") in ("split", "unified") and not is_htmx(request):
        response.set_cookie(VIEW_COOKIE, request.GET["view"], max_age=_YEAR, samesite="Lax", httponly=True)
    return response


def _template(request: HttpRequest) -> str:
    if not is_htmx(request):
        return "tasks/diff.html"
    return "tasks/_diff_file.html" if "file" in request.GET else "tasks/_diff.html"


def _is_split(request: HttpRequest) -> bool:
    return (request.GET.get("view") or request.COOKIES.get(VIEW_COOKIE)) == "split"


def _page_context(request: HttpRequest, compared: Comparison) -> dict[str, Any]:
    task = compared.task
    runs = list(compared.step.runs.exclude(head_commit="")) if compared.step else []
    prefetch_answerers(runs)
    return {
        "task": task,
        "compared": compared,
        "step": compared.step,
        "run": compared.run,
        "since": compared.since,
        "of_sequence": compared.of_sequence,
        "steps": task.steps.exclude(head_commit=""),
        "runs": runs,
        "has_separate_runs": compared.step is not None and has_separate_runs(compared.step),
        "last_review": own_last_review(request, task),
        "may_comment": may_act(request, task.project) and compared.takes_threads,
        "fresh_key": uuid.uuid4(),
        "is_split": _is_split(request),
        "patch_url": compared.url("task_patch"),
        "threads_url": compared.url("diff_threads"),
        "split_url": compared.url("task_diff", view="split"),
        "unified_url": compared.url("task_diff", view="unified"),
    }


def _list_context(request: HttpRequest, compared: Comparison) -> dict[str, Any]:
    threads, task = _threads(request, compared), compared.task
    changes: FileList | None = None
    listed: list[ListedFile] = []
    if compared.difference:
        viewed = viewed_keys(task, current_user(request))
        changes = file_list(compared, threads, viewed, split=_is_split(request))
        listed = changes.files
    # While the first step waits, there is nothing yet that an agent could change.
    has_result = bool(listed) or task.is_ended
    names = {name for one in listed for name in (one.file.path, one.file.old_path) if name}
    return {
        "changes": changes,
        "tree": tree_rows([(one.file.path, one) for one in listed]),
        "elsewhere": threads.elsewhere(names),
        "has_result": has_result,
        "may_request_changes": has_result and why_not_change(task) is None,
        "review": _review(request, compared, has_result=has_result),
        "can_publish": can_approve(task, principal_of(request)),
    }


def _review(request: HttpRequest, compared: Comparison, *, has_result: bool) -> ReviewState | None:
    """Return what was said of the result; None while there is nothing to review and nothing was said."""
    if not compared.task.head_commit:
        return None
    review = review_state(request, compared.task)
    if has_result or compared.query or review.has_content:
        return review
    return None


def _file_context(request: HttpRequest, compared: Comparison) -> dict[str, Any]:
    file = chosen_file(request, compared)
    threads, split = _threads(request, compared), _is_split(request)
    body = file_bodies(compared, [file], threads, split=split)[file.path]
    viewed = viewed_key(file.path, file.version) in viewed_keys(compared.task, current_user(request))
    url, own = file_url(compared, file, split=split), threads.of_file(file.path, file.old_path)
    return {"listed": ListedFile(file, url, viewed, own, body), "body": body}


def _threads(request: HttpRequest, compared: Comparison) -> ThreadsBeside:
    if not compared.takes_threads:
        return no_threads()
    return threads_beside(request, compared.task, old_side=compared.takes_old_threads)


def diff_lines(request: HttpRequest, task_id: int) -> HttpResponse:
    """Return lines that the diff leaves out: of the gap `first` to `last`, its `part` top, bottom or all."""
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    gap, part = _gap(request)
    try:
        file = chosen_file(request, compared)
        content = _content(compared, file.new_blob, TEXT_BYTES)
    except WorkspaceError as error:
        raise Http404(str(error)) from error
    lines = shown_lines(content)
    if not 1 <= gap.first <= gap.last <= len(lines):
        raise Http404("There are no such lines.")
    texts = [(file.new_blob, language_of(file.path), "\n".join(lines))]
    shown = expanded_lines(gap, part, lines, colours_of(texts).get(file.new_blob, []))
    threads, split = _threads(request, compared), _is_split(request)
    diff = FileDiff(file.path, old_path=file.old_path, lines=shown)
    rows = rows_of(compared, file, threads.lines_of(diff), split=split)
    return render(request, "tasks/_diff_rows.html", {"task": task, "rows": rows})


def _gap(request: HttpRequest) -> tuple[Gap, str]:
    """Return the gap in the parameters and which part of it is wanted. Raises Http404."""
    first, last = number_in(request, "first") or 0, number_in(request, "last") or 0
    try:
        offset = int(request.GET.get("offset", "0")[:10])
    except ValueError:
        raise Http404("There are no such lines.") from None
    edge, part = request.GET.get("edge", ""), request.GET.get("part", "")
    if edge not in ("", "start", "end") or part not in ("top", "bottom", "all"):
        raise Http404("There are no such lines.")
    if part == "all":
        last = min(last, first + _MOST_EXPANDED - 1)
    return Gap(first, last, offset, edge), part  # type: ignore[arg-type]


def _content(compared: Comparison, blob: str, limit: int) -> bytes:
    """Return the content of a blob. Raises Http404 if it is larger than `limit`."""
    if compared.difference is None:
        raise Http404("There is nothing to compare.")
    repository = compared.difference.repository
    if blob_sizes(repository, [blob]).get(blob, limit + 1) > limit:
        raise Http404("That file is too large.")
    return blob_contents(repository, [blob])[blob]


def diff_image(request: HttpRequest, task_id: int) -> HttpResponse:
    """Return one `side` of a changed image. Only raster images: others can contain scripts."""
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    try:
        file = chosen_file(request, compared)
        blob = file.new_blob
        if request.GET.get("side") == "old":
            blob = file.old_blob
        content = _content(compared, blob, _IMAGE_BYTES)
    except WorkspaceError as error:
        raise Http404(str(error)) from error
    kind = image_type(content)
    if not kind:
        raise Http404("That is not an image.")
    response = HttpResponse(content, content_type=kind)
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Disposition"] = "inline"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


def diff_threads(request: HttpRequest, task_id: int) -> HttpResponse:
    """Return all threads of the comparison with their places, which review.js holds against the page."""
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    threads = _threads(request, compared)
    placed = {one.thread.pk: one for group in threads.by_path.values() for one in group}
    shown = [*placed.values(), *threads.whole]
    context = {
        "task": task,
        "compared": compared,
        "threads": [(one, anchor_of(one.path) if one.path else "") for one in shown],
    }
    return render(request, "reviews/_threads.html", context)


@require_POST
def diff_viewed(request: HttpRequest, task_id: int) -> HttpResponse:
    """Mark a file as `viewed` (yes or no), in the content that it has in this comparison."""
    task: Task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    try:
        file = chosen_file(request, compared)
    except WorkspaceError as error:
        raise Http404(str(error)) from error
    if request.POST.get("blob", "") != file.version:
        problem = f"{in_one_line(file.path)} has changed since this page was loaded. Reload it."
        return HttpResponse(problem, status=409, content_type="text/plain")
    viewed = request.POST.get("viewed") == "yes"
    mark_viewed(task, current_user(request), path=file.path, blob=file.version, viewed=viewed)
    if is_htmx(request):
        return HttpResponse(status=204)
    return redirect(f"{compared.url('task_diff')}#{anchor_of(file.path)}")


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    name = f"task-{task_id}-step-{position}-{kind}.log"
    record_download(name, by=principal_of(request), of=step)
    return download(render_log(step, LogKind(kind)), name=name, kind="text/plain")


def setup_log(request: HttpRequest, task_id: int) -> StreamingHttpResponse:
    task = task_or_404(request, task_id)
    name = f"task-{task_id}-setup.log"
    record_download(name, by=principal_of(request), of=task)
    return download(render_setup_log(task), name=name, kind="text/plain")


def step_plan(request: HttpRequest, task_id: int, position: int) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if not step.plan:
        raise Http404("This step wrote no plan.")
    name = f"task-{task_id}-plan.md"
    record_download(name, by=principal_of(request), of=step)
    return download(iter([step.plan]), name=name, kind="text/markdown")


def task_patch(request: HttpRequest, task_id: int) -> HttpResponseBase:
    """Download the changes that the diff page with the same parameters shows."""
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    send = partial(download_difference, compared.difference, name=compared.name, by=principal_of(request))
    response = _patch_or_error(request, send, back=reverse("task", args=[task.pk]))
    if response.streaming:
        record_download(f"{compared.name}.patch", by=principal_of(request), of=task)
    return response


def sequence_patch(request: HttpRequest, sequence_id: int) -> HttpResponseBase:
    sequence = sequence_or_404(request, sequence_id)
    send = partial(download_patch, sequence, by=principal_of(request))
    return _patch_or_error(request, send, back=reverse("sequence", args=[sequence.pk]))


def _patch_or_error(
    request: HttpRequest, send: Callable[[], StreamingHttpResponse], *, back: str
) -> HttpResponseBase:
    """Return the patch, or the page with the reason why there is none."""
    try:
        return send()
    except WorkspaceError as error:
        messages.error(request, str(error))
        return redirect(back)
