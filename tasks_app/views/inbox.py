"""The inbox: questions by what became of them, the longest waiting first."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.models import Project, Question, QuestionState
from tasks_app.views.access import person
from tasks_app.views.cards import cards_of

PER_PAGE = 20


def inbox(request: HttpRequest) -> HttpResponse:
    """Open questions as cards to answer, the others for reading up: `?state=`, `?project=`, `?page=`."""
    state = request.GET.get("state", QuestionState.OPEN)
    state = state if state in QuestionState.values else QuestionState.OPEN
    projects = Project.objects.visible_to(person(request))
    project = projects.filter(name=request.GET.get("project", "").replace("\x00", "")).first()
    questions = Question.objects.visible_to(person(request)).filter(state=state)
    if project:
        questions = questions.filter(task__project=project)
    related = questions.select_related("task__project", "step", "run", "answered_by")
    order = ("asked_at", "pk") if state == QuestionState.OPEN else ("-asked_at", "-pk")
    page = Paginator(related.order_by(*order), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "cards": cards_of(request, page),
        "page": page,
        "state": state,
        "states": QuestionState.choices,
        "project": project,
        "projects": projects,
    }
    return render(request, "inbox/page.html", context)
