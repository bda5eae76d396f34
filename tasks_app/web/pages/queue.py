"""The queue: what waits, in which order, and for what."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.models.task import Priority
from tasks_app.permissions import projects_actable_by
from tasks_app.reporting.queue import Queue
from tasks_app.web.pages.access import principal_of


def queue(request: HttpRequest) -> HttpResponse:
    return render(request, "queue/page.html", _waiting(request))


def queue_waiting(request: HttpRequest) -> HttpResponse:
    return render(request, "queue/_waiting.html", _waiting(request))


def _waiting(request: HttpRequest) -> dict[str, object]:
    principal, found = principal_of(request), Queue()
    entries = found.seen_by(principal)
    seen = found.count_seen_by(principal)
    return {
        "queue": found,
        "slots": found.slots,
        "entries": entries,
        "more": seen - len(entries),
        "others": max(found.waiting - seen, 0),
        "actable": set(projects_actable_by(principal).values_list("pk", flat=True)),
        "priorities": Priority,
    }
