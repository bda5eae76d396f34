"""The question alone, the cards that a page does not show yet, and taking an answer (H5)."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_POST

from tasks_app.actions.answers import Answered, Reply, answer_question
from tasks_app.errors import AnswerTooLong, CatHerderError, NotAllowed, NotOpen
from tasks_app.forms.answer import Typed, reply_from_json
from tasks_app.models import Channel, Question
from tasks_app.views.access import is_htmx, person, question_or_404, task_or_404
from tasks_app.views.cards import Card, card_of, cards_of
from tasks_app.views.live import waiting

_STATUS: dict[type[CatHerderError], int] = {NotAllowed: 403, NotOpen: 409, AnswerTooLong: 413}


def question(request: HttpRequest, question_id: int) -> HttpResponse:
    """The card. 204 if the page that asks shows it in this very state: a form in use is left alone."""
    found = question_or_404(request, question_id)
    if is_htmx(request) and request.GET.get("shown") == found.state:
        return HttpResponse(status=204)
    return _shown(request, card_of(request, found))


def task_questions(request: HttpRequest, task_id: int) -> HttpResponse:
    """The open questions of a task that are not among `?known=N`."""
    questions = task_or_404(request, task_id).questions.open()
    related = questions.select_related("task__project", "step", "run", "answered_by")
    return _unknown(request, cards_of(request, related))


def live_questions(request: HttpRequest) -> HttpResponse:
    """The open questions of all projects that are not among `?known=N`."""
    return _unknown(request, waiting(request))


def _unknown(request: HttpRequest, cards: list[Card]) -> HttpResponse:
    known = set(request.GET.getlist("known"))
    new = [card for card in cards if str(card.question.pk) not in known]
    if not new:
        return HttpResponse(status=204)
    return render(request, "questions/_cards.html", {"cards": new})


# The protection is inside: it reads the form, and a form past all bounds must get this view's words.
@csrf_exempt
@require_POST
def question_answer(request: HttpRequest, question_id: int) -> HttpResponse:
    """Take an answer: 200, or 400, 403, 409, 413 with the reason and all that was typed."""
    try:
        return _protected(request, question_id)
    except RequestDataTooBig:
        message = "The answer is far too long for this installation and was not read. Please shorten it."
        return _told(request, question_id, message, 413)


@csrf_protect
def _protected(request: HttpRequest, question_id: int) -> HttpResponse:
    if wants_json(request):
        return _answer_json(request, question_id)
    return _answer_form(request, question_or_404(request, question_id))


def wants_json(request: HttpRequest) -> bool:
    sends = request.content_type == "application/json"
    return sends or request.headers.get("Accept", "").startswith("application/json")


def _answer_json(request: HttpRequest, question_id: int) -> HttpResponse:
    try:
        found = question_or_404(request, question_id)
        answered = _answer(request, found, _reply_of(request, found))
    except Http404:
        return JsonResponse({"detail": f"There is no question {question_id}."}, status=404)
    except CatHerderError as error:
        return JsonResponse({"detail": str(error)}, status=_status_of(error))
    return JsonResponse({"detail": _done(answered), "question": question_id, "repeated": answered.repeated})


def _reply_of(request: HttpRequest, found: Question) -> Reply:
    if request.content_type == "application/json":
        return reply_from_json(found, request.body)
    return Typed.of(found, request.POST).reply(found)


def _answer_form(request: HttpRequest, found: Question) -> HttpResponse:
    typed = Typed.of(found, request.POST)
    try:
        answered = _answer(request, found, typed.reply(found))
    except NotOpen as error:
        card = card_of(request, found, message=str(error), kept=typed.text)
        return _shown(request, card, status=409)
    except NotAllowed as error:
        if not is_htmx(request):
            raise PermissionDenied(str(error)) from error
        return _told(request, found.pk, str(error), 403)
    except CatHerderError as error:
        if is_htmx(request):
            return _told(request, found.pk, str(error), _status_of(error))
        card = card_of(request, found, typed=typed, message=str(error))
        return _shown(request, card, status=_status_of(error))
    return _shown(request, card_of(request, answered.question, repeated=answered.repeated))


def _answer(request: HttpRequest, found: Question, reply: Reply) -> Answered:
    return answer_question(found, reply, by=person(request), via=Channel.WEB)


def _done(answered: Answered) -> str:
    name = answered.question.answered_by.shown_name if answered.question.answered_by else "somebody"
    return f"Answered by {name}, resuming."


def _status_of(error: CatHerderError) -> int:
    return _STATUS.get(type(error), 400)


def _shown(request: HttpRequest, card: Card, *, status: int = 200) -> HttpResponse:
    template = "questions/_card.html" if is_htmx(request) else "questions/page.html"
    return render(request, template, {"card": card}, status=status)


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
