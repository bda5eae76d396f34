"""A task's live log: the last events first, earlier ones on demand, new ones as they come."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.models import Event, Task
from tasks_app.views.access import is_htmx, task_or_404
from tasks_app.views.rendering.entries import UNSEEN, Entry, entries_of

PAGE = 200
_CATCH_UP = 1000


@dataclass(frozen=True)
class LogPart:
    """A stretch of a log. `first` and `last` are event numbers, to ask for what is before and after."""

    entries: list[Entry]
    first: int
    last: int
    earlier: bool = False
    more: bool = False


def task_log(request: HttpRequest, task_id: int) -> HttpResponse:
    """`?after=N`: what came since event N. `?before=N`: the stretch before it. Else the last stretch."""
    task = task_or_404(request, task_id)
    if "after" in request.GET:
        return _newer(request, task, _number(request, "after"))
    part = before(task, _number(request, "before")) if "before" in request.GET else latest(task)
    template = "tasks/_log_part.html" if is_htmx(request) else "tasks/log_page.html"
    return render(request, template, {"task": task, "log": part})


def latest(task: Task) -> LogPart:
    return _stretch(list(_events(task).order_by("-pk")[: PAGE + 1]))


def before(task: Task, number: int) -> LogPart:
    return _stretch(list(_events(task).filter(pk__lt=number).order_by("-pk")[: PAGE + 1]))


def after(task: Task, number: int) -> LogPart:
    """New events, in bounded portions: a page that slept for an hour must not get all at once."""
    found = list(_events(task).filter(pk__gt=number).order_by("pk")[: _CATCH_UP + 1])
    events, more = found[:_CATCH_UP], len(found) > _CATCH_UP
    last_run = _run_before(task, number) if events else None
    last = events[-1].pk if events else number
    return LogPart(entries_of(events, last_run=last_run), number, last, more=more)


def _newer(request: HttpRequest, task: Task, number: int) -> HttpResponse:
    part = after(task, number)
    if part.last == number:
        return HttpResponse(status=204)
    response = render(request, "tasks/_log_newer.html", {"task": task, "log": part})
    if part.more:
        response["HX-Trigger-After-Swap"] = "catherder:refresh"
    return response


def _run_before(task: Task, number: int) -> int | None:
    """The run that the page showed last, if it shows events up to `number`."""
    seen = Event.objects.filter(run__step__task=task, pk__lte=number).exclude(kind__in=UNSEEN)
    return seen.order_by("-pk").values_list("run_id", flat=True).first()


def _stretch(newest_first: list[Event]) -> LogPart:
    events, before_them = newest_first[:PAGE][::-1], newest_first[PAGE:]
    last_run = before_them[0].run_id if before_them else None
    first, last = (events[0].pk, events[-1].pk) if events else (0, 0)
    entries = entries_of(events, last_run=last_run)
    return LogPart(entries, first, last, earlier=bool(before_them))


def _events(task: Task) -> QuerySet[Event]:
    """The task's events; their numbers rise in time, as only one process writes to a task at a time."""
    return Event.objects.filter(run__step__task=task).select_related("run__step").defer("raw", "run__prompt")


def _number(request: HttpRequest, name: str) -> int:
    value = request.GET[name]
    if not value.isdecimal() or len(value) > 18:
        raise Http404(f"“{value}” is not the number of an event.")
    return int(value)
