"""Answering and claiming questions, undo, and the page of a question.

The response to an answer is 200, or 400, 403, 409, 413, 415 with the reason and everything that was entered:
as a page, or as the part of a page that HTMX asks for. Scripts use the API.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from django.core.exceptions import RequestDataTooBig
from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.core.errors import (
    AnswerTooLong,
    BadInput,
    CatHerderError,
    NotAllowed,
    NotOpen,
)
from tasks_app.models import Channel, Question
from tasks_app.services.questions.answers import (
    answer_question,
    claim_question,
    decide,
    dismiss_question,
    release_question,
    undo_answer,
)
from tasks_app.services.questions.approvals import approve_equal_calls
from tasks_app.services.questions.question_outcomes import Answered
from tasks_app.web.access import is_htmx, number_from, principal_of, question_or_404, refusal
from tasks_app.web.questions.answer_form import CardInput
from tasks_app.web.questions.cards import WHO_IS_ASKED, card_of, filled_in, show

_STATUS: dict[type[CatHerderError], int] = {NotAllowed: 403, NotOpen: 409, AnswerTooLong: 413}
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

#: The verdict of the button that approves equal calls too.
_APPROVE_ALL = "approved_all"

Act = Callable[[Question, CardInput], Answered]


# CSRF protection reads the form. It is applied inside, so that a form that is too large gets a readable page.
@csrf_exempt
@require_POST
def question_answer(request: HttpRequest, question_id: int) -> HttpResponse:
    def act(question: Question, entered: CardInput) -> Answered:
        return answer_question(question, entered.reply(question), by=principal_of(request), via=Channel.WEB)

    return _respond(request, question_id, act)


@csrf_exempt
@require_POST
def question_dismiss(request: HttpRequest, question_id: int) -> HttpResponse:
    def act(question: Question, entered: CardInput) -> Answered:
        return dismiss_question(question, by=principal_of(request), via=Channel.WEB, notes=entered.notes)

    return _respond(request, question_id, act)


@csrf_exempt
@require_POST
def question_decide(request: HttpRequest, question_id: int) -> HttpResponse:
    def act(question: Question, entered: CardInput) -> Answered:
        by = principal_of(request)
        if entered.verdict == _APPROVE_ALL:
            return approve_equal_calls(question, by=by, via=Channel.WEB, notes=entered.notes)
        return decide(question, entered.verdict, by=by, via=Channel.WEB, notes=entered.notes)

    return _respond(request, question_id, act)


@require_POST
def question_undo(request: HttpRequest, question_id: int) -> HttpResponse:
    """Take the answer back and show the card with it, to be changed. If it is too late, the card says so."""
    question = question_or_404(request, question_id)
    entered = None
    if not question.is_settled_by_portal:  # else one click would make it a person's answer
        entered = CardInput.from_outcome(question)
    try:
        opened = undo_answer(question, by=principal_of(request))
    except NotAllowed:
        raise
    except CatHerderError as error:
        return show(request, card_of(request, question, not_undone=str(error)), status=409)
    for other_id in filter(None, map(number_from, request.POST.get("too", "")[:1000].split(","))):
        with suppress(CatHerderError):  # the agent has it, or somebody took it back
            undo_answer(question_or_404(request, other_id), by=principal_of(request))
    if opened.pk != question.pk:  # asked anew: this card says so, and the other one arrives by itself
        return show(request, card_of(request, question_or_404(request, question_id)))
    return show(request, card_of(request, opened, typed=entered))


def _respond(request: HttpRequest, question_id: int, act: Act) -> HttpResponse:
    try:
        return _protected_response(request, question_id, act)
    except RequestDataTooBig:
        message = "The answer is too long and was not read. Shorten it and send it again."
        return _refusal(request, question_id, message, 413)


@csrf_protect
def _protected_response(request: HttpRequest, question_id: int, act: Act) -> HttpResponse:
    question = question_or_404(request, question_id)
    if request.content_type not in _FORMS:
        message = "This address only accepts form submissions. Scripts can use the API."
        return _refusal(request, question_id, message, 415)
    entered = CardInput.from_post(question, request.POST)
    try:
        done = act(question, entered)
    except NotOpen as error:
        return show(request, card_of(request, question, message=str(error), kept=entered.text), status=409)
    except NotAllowed as error:
        if not is_htmx(request):
            raise
        return _refusal(request, question.pk, str(error), 403)
    except CatHerderError as error:
        status, place = _STATUS.get(type(error), 400), entered.place_of(error)
        message = str(error)
        if place in ("remember", "decisions") and isinstance(error, BadInput):
            # It stands at the field about decisions, which it need not name.
            message = error.message[:1].upper() + error.message[1:]
        if is_htmx(request):
            return _refusal(request, question.pk, message, status, place=place)
        card = card_of(request, question, typed=entered, message=message, place=place)
        return show(request, card, status=status)
    card = card_of(
        request, done.question, may_act=True, repeated=done.repeated, approved_too=done.approved_too,
        changes_decisions=done.changes_decisions,
    )  # fmt: skip
    return show(request, card)


def _refusal(
    request: HttpRequest, question_id: int, message: str, status: int, *, place: str = ""
) -> HttpResponse:
    if not is_htmx(request):
        return render(request, "questions/refused.html", {"message": message}, status=status)
    target = f"#question-{question_id}-refusal{place and f'-{place}'}"
    return refusal(request, message, status=status, target=target)


def question(request: HttpRequest, question_id: int) -> HttpResponse:
    """Render the card; 204 if the page shows the same, so that a form in use is not replaced.

    `?use=N` fills the form with the earlier answer N, for browsers without scripts.
    """
    found = question_or_404(request, question_id)
    card = card_of(request, found, typed=filled_in(found, request.GET.get("use", "")))
    if is_htmx(request) and request.GET.get("shown") == card.shown:
        return HttpResponse(status=204)
    return show(request, card)


@require_http_methods(["GET", "POST"])
def question_claim(request: HttpRequest, question_id: int) -> HttpResponse:
    """Show who is asked and who answers; a POST says that the user does, or with `release=yes` no longer."""
    found = question_or_404(request, question_id)
    if request.method == "POST":
        change = release_question if request.POST.get("release") == "yes" else claim_question
        change(found, by=principal_of(request))
        found = question_or_404(request, question_id)
    if not found.is_open:
        return HttpResponse(status=204)  # until the card that says the answer arrives, nothing moves
    prefetch_related_objects([found], *WHO_IS_ASKED)
    return render(request, "questions/_who.html", {"question": found})
