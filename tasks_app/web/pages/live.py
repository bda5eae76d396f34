"""The live page: a wall of what runs, with a tile for each running task."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.core.phases import Phase
from tasks_app.permissions import tasks_visible_to
from tasks_app.web.pages.access import principal_of
from tasks_app.web.pages.activity import activities, shown_steps

MOST = 50


def live(request: HttpRequest) -> HttpResponse:
    return render(request, "live/page.html", _running(request))


def live_running(request: HttpRequest) -> HttpResponse:
    return render(request, "live/_running.html", _running(request))


def _running(request: HttpRequest) -> dict[str, object]:
    tasks = tasks_visible_to(principal_of(request)).filter(phase=Phase.RUNNING).select_related("project")
    newest = tasks.defer("text", "body").prefetch_related(shown_steps()).order_by("-started_at", "-pk")
    found = list(activities(newest[: MOST + 1]).values())
    # The newest are at the end: a task that begins moves none of the others.
    return {"running": found[:MOST][::-1], "more": len(found) > MOST}
