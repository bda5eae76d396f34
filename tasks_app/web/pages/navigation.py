"""Updates of the navigation: the number of open questions and the state of workers."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.web.pages.notices import fresh


def navigation(request: HttpRequest) -> HttpResponse:
    """Render the updates; with `?after=N` also notices of later questions."""
    return render(request, "_navigation_counts.html", {"fresh": fresh(request)})


def workers(request: HttpRequest) -> HttpResponse:
    """Render the banner that no worker is running; it polls by itself."""
    return render(request, "_workers.html")
