"""The live page: open questions, then running tasks with their last events."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.core.phases import Phase
from tasks_app.permissions import questions_visible_to, tasks_visible_to
from tasks_app.web.pages.access import principal_of
from tasks_app.web.pages.activity import Activity, activities, shown_steps
from tasks_app.web.pages.cards import Card, cards_of

MOST = 50


def live(request: HttpRequest) -> HttpResponse:
    cards = waiting(request, most=MOST + 1)
    context = {"cards": cards[:MOST], "more": len(cards) > MOST, "running": _running(request)}
    return render(request, "live/page.html", context)


def live_running(request: HttpRequest) -> HttpResponse:
    return render(request, "live/_running.html", {"running": _running(request)})


def waiting(request: HttpRequest, *, most: int = MOST) -> list[Card]:
    questions = questions_visible_to(principal_of(request)).open()
    related = questions.select_related("task__project", "step", "run", "answered_by")
    return cards_of(request, related.order_by("asked_at", "pk")[:most])


def _running(request: HttpRequest) -> list[Activity]:
    tasks = tasks_visible_to(principal_of(request)).filter(phase=Phase.RUNNING).select_related("project")
    shown = tasks.defer("text", "body").prefetch_related(shown_steps()).order_by("-started_at")[:MOST]
    return list(activities(shown).values())
