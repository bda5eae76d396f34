"""What people do with a question: answer it, decline to, or decide about a tool call or a plan (H5).

Each is 200, or 400, 403, 409, 413 with the reason and all that was typed; as a page, as the part of a page
that HTMX wants, or as JSON.
"""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_POST

from tasks_app.core.errors import AnswerTooLong, CatHerderError, NotAllowed, NotOpen
from tasks_app.models import Channel, Question
from tasks_app.services.answers import Answered, answer_question, decide, dismiss_question
from tasks_app.web.forms.answer import CardInput, fields_from_json, reply_from_json
from tasks_app.web.pages.access import is_htmx, principal_of, question_or_404
from tasks_app.web.pages.cards import card_of, show

_STATUS: dict[type[CatHerderError], int] = {NotAllowed: 403, NotOpen: 409, AnswerTooLong: 413}

Act = Callable[[HttpRequest, Question], Answered]


# The protection is inside: it reads the form, and a form past all bounds must get these views' words.
@csrf_exempt
@require_POST
def question_answer(request: HttpRequest, question_id: int) -> HttpResponse:
    return _bounded(request, question_id, _answer)


@csrf_exempt
@require_POST
def question_dismiss(request: HttpRequest, question_id: int) -> HttpResponse:
    return _bounded(request, question_id, _dismiss)


@csrf_exempt
@require_POST
def question_decide(request: HttpRequest, question_id: int) -> HttpResponse:
    return _bounded(request, question_id, _decide)


def _answer(request: HttpRequest, found: Question) -> Answered:
    if request.content_type == "application/json":
        reply = reply_from_json(found, request.body)
    else:
        reply = CardInput.from_post(found, request.POST).reply(found)
    return answer_question(found, reply, by=principal_of(request), via=Channel.WEB)


def _dismiss(request: HttpRequest, found: Question) -> Answered:
    if request.content_type == "application/json":
        notes = fields_from_json(request.body, "notes")["notes"]
    else:
        notes = CardInput.from_post(found, request.POST).remark
    return dismiss_question(found, by=principal_of(request), via=Channel.WEB, notes=notes)


def _decide(request: HttpRequest, found: Question) -> Answered:
    if request.content_type == "application/json":
        given = fields_from_json(request.body, "verdict", "notes")
        verdict, notes = given["verdict"], given["notes"]
    else:
        typed = CardInput.from_post(found, request.POST)
        verdict, notes = request.POST.get("verdict", ""), typed.reason or typed.notes
    return decide(found, verdict, by=principal_of(request), via=Channel.WEB, notes=notes)


def _bounded(request: HttpRequest, question_id: int, act: Act) -> HttpResponse:
    try:
        return _protected(request, question_id, act)
    except RequestDataTooBig:
        message = "The answer is too long and was not read. Shorten it and send it again."
        return _told(request, question_id, message, 413)


@csrf_protect
def _protected(request: HttpRequest, question_id: int, act: Act) -> HttpResponse:
    if wants_json(request):
        return _as_json(request, question_id, act)
    return _as_form(request, question_or_404(request, question_id), act)


def wants_json(request: HttpRequest) -> bool:
    sends = request.content_type == "application/json"
    return sends or request.headers.get("Accept", "").startswith("application/json")


def _as_json(request: HttpRequest, question_id: int, act: Act) -> HttpResponse:
    try:
        done = act(request, question_or_404(request, question_id))
    except Http404:
        return JsonResponse({"detail": f"There is no question {question_id}."}, status=404)
    except CatHerderError as error:
        return JsonResponse({"detail": str(error)}, status=_status_of(error))
    return JsonResponse({"detail": _said(done), "question": question_id, "repeated": done.repeated})


def _as_form(request: HttpRequest, found: Question, act: Act) -> HttpResponse:
    typed = CardInput.from_post(found, request.POST)
    try:
        done = act(request, found)
    except NotOpen as error:
        return show(request, card_of(request, found, message=str(error), kept=typed.text), status=409)
    except NotAllowed as error:
        if not is_htmx(request):
            raise PermissionDenied(str(error)) from error
        return _told(request, found.pk, str(error), 403)
    except CatHerderError as error:
        if is_htmx(request):
            return _told(request, found.pk, str(error), _status_of(error))
        card = card_of(request, found, typed=typed, message=str(error))
        return show(request, card, status=_status_of(error))
    return show(request, card_of(request, done.question, repeated=done.repeated))


def _said(done: Answered) -> str:
    question = done.question
    name = question.answered_by.shown_name if question.answered_by else "somebody"
    return f"{question.outcome} by {name}, resuming."


def _status_of(error: CatHerderError) -> int:
    return _STATUS.get(type(error), 400)


def _told(request: HttpRequest, question_id: int, message: str, status: int) -> HttpResponse:
    """A refusal. HTMX puts it into the card's own place for it and touches nothing that was typed."""
    if wants_json(request):
        return JsonResponse({"detail": message}, status=status)
    template = "questions/_refusal.html" if is_htmx(request) else "questions/refused.html"
    response = render(request, template, {"message": message}, status=status)
    if is_htmx(request):
        response["HX-Retarget"] = f"#question-{question_id}-refusal"
        response["HX-Reswap"] = "innerHTML"
    return response
