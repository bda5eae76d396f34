"""The page of a question, and cards that a page does not show yet (H5, W3)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from tasks_app.web.pages.access import is_htmx, question_or_404, task_or_404
from tasks_app.web.pages.cards import card_of, cards_of, show, unknown_cards
from tasks_app.web.pages.live import waiting


def question(request: HttpRequest, question_id: int) -> HttpResponse:
    """Render the card; 204 if the page has it in this state, so that a form in use is not replaced."""
    found = question_or_404(request, question_id)
    if is_htmx(request) and request.GET.get("shown") == found.state:
        return HttpResponse(status=204)
    return show(request, card_of(request, found))


def task_questions(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render open questions of a task that are not among `?known=N`."""
    questions = task_or_404(request, task_id).questions.open()
    related = questions.select_related("task__project", "step", "run", "answered_by")
    return unknown_cards(request, cards_of(request, related))


def live_questions(request: HttpRequest) -> HttpResponse:
    """Render open questions of all projects that are not among `?known=N`."""
    return unknown_cards(request, waiting(request))
