"""What changes around every page: the number of open questions, and whether a worker is running."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.web.pages.notices import fresh


def navigation(request: HttpRequest) -> HttpResponse:
    """With `?after=N` also the questions that were told to the person since then."""
    return render(request, "_news.html", {"fresh": fresh(request)})


def workers(request: HttpRequest) -> HttpResponse:
    """The banner that says that no worker is running; it asks again by itself."""
    return render(request, "_workers.html")
