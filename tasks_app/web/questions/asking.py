"""Handing a question over, asking for a second opinion, and taking that back: a form on the card."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.models import AskedBy, Question
from tasks_app.services.questions.asking import (
    ask_opinion,
    find_user_to_ask,
    hand_over,
    take_back,
    users_who_may_answer,
)
from tasks_app.web.access import (
    current_user,
    is_htmx,
    number_from,
    principal_of,
    question_or_404,
    refusal,
    render_part_or_page,
)
from tasks_app.web.questions.cards import card_of, show


@require_http_methods(["GET", "POST"])
def question_asking(request: HttpRequest, question_id: int) -> HttpResponse:
    """Show whom else to ask; a POST asks them, or takes back the row `take_back` of this question."""
    question = question_or_404(request, question_id)
    if request.method == "GET":
        return _form(request, question)
    try:
        if row := number_from(request.POST.get("take_back", "")):
            take_back(get_object_or_404(question.asked, pk=row), by=principal_of(request))
        else:
            _ask(request, question)
    except NotAllowed:
        raise
    except CatHerderError as error:
        message = error.message.capitalize() if isinstance(error, BadInput) else str(error)
        if is_htmx(request):
            target = f"#question-{question.pk}-asking-refusal"
            return refusal(request, message, status=400, target=target)
        return _form(request, question, message=message, status=400)
    if is_htmx(request):
        return show(request, card_of(request, question_or_404(request, question_id)))
    return redirect("question", question.pk)


def _ask(request: HttpRequest, question: Question) -> None:
    by, note = principal_of(request), request.POST.get("note", "")
    to = find_user_to_ask(question.task.project, request.POST.get("to", ""), by=by)
    if request.POST.get("kind") == "opinion":
        ask_opinion(question, to, by=by, note=note)
    else:
        hand_over(question, to, by=by, note=note)


def _form(request: HttpRequest, question: Question, *, status: int = 200, **more: Any) -> HttpResponse:
    others = users_who_may_answer(question.task.project).exclude(pk=current_user(request).pk)
    mine = [one for one in question.asked_now if one.user_id == current_user(request).pk and one.by_id]
    # Who gives an opinion hands the question back to whom wanted it.
    wants = next((one.by_id for one in mine if one.asked_by == AskedBy.OPINION), None)
    context = {"question": question, "others": others, "wants_opinion": wants, **more}
    return render_part_or_page(
        request, "questions/_asking.html", "questions/asking.html", context, status=status
    )
