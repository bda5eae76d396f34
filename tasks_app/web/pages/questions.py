"""The page of a question, who is answering it, and cards that a page does not show yet (H5, W3)."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import NotAllowed
from tasks_app.models import SHOWN_WITH
from tasks_app.services.questions.claims import claim_question, release_question
from tasks_app.web.pages.access import is_htmx, principal_of, question_or_404, task_or_404
from tasks_app.web.pages.cards import card_of, cards_of, filled_in, show, unknown_cards


def question(request: HttpRequest, question_id: int) -> HttpResponse:
    """Render the card; 204 if the page shows the same, so that a form in use is not replaced.

    `?use=N` fills the form with the earlier answer N, for browsers without scripts.
    """
    found = question_or_404(request, question_id)
    card = card_of(request, found, typed=filled_in(found, request.GET.get("use", "")))
    if is_htmx(request) and request.GET.get("shown") == card.shown:
        return HttpResponse(status=204)
    return show(request, card)


def task_questions(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render open questions of a task that are not among `?known=N`."""
    questions = task_or_404(request, task_id).questions.open()
    related = questions.select_related(*SHOWN_WITH)
    return unknown_cards(request, cards_of(request, related))


@require_http_methods(["GET", "POST"])
def question_claim(request: HttpRequest, question_id: int) -> HttpResponse:
    """Show who is answering; a POST says that the user is, or with `release=yes` that they no longer are."""
    found = question_or_404(request, question_id)
    if request.method == "POST":
        change = release_question if request.POST.get("release") == "yes" else claim_question
        try:
            change(found, by=principal_of(request))
        except NotAllowed as error:
            raise PermissionDenied(str(error)) from error
        found = question_or_404(request, question_id)
    return render(request, "questions/_claim.html", {"question": found})
