"""Helpers of views: the user, the rows that they may see, numbers in URLs, actions, parts of pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from allauth.account import app_settings
from allauth.account.authentication import get_authentication_records
from allauth.account.decorators import reauthentication_required
from django import forms
from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app import models, permissions
from tasks_app.core.errors import CatHerderError, NotAllowed
from tasks_app.models import Project, Question, Sequence, Step, Task, User
from tasks_app.permissions import Principal


def current_user(request: HttpRequest) -> User:
    """Return the user. Only for pages behind the login."""
    return cast(User, request.user)


def principal_of(request: HttpRequest) -> Principal:
    """Return the user as an unrestricted principal: no token limits a browser."""
    return Principal.unrestricted(current_user(request))


class VisibleProject(NamedTuple):
    """A project that the user may see, and whether they may create tasks and answer questions in it."""

    id: int
    name: str
    may_act: bool


def visible_projects(request: HttpRequest) -> list[VisibleProject]:
    """Return the projects that the user may see, by name; one query per request."""
    if not hasattr(request, "_visible_projects"):
        principal = principal_of(request)
        actable = permissions.projects_actable_by(principal).filter(pk=OuterRef("pk"))
        rows = permissions.projects_visible_to(principal).annotate(may_act=Exists(actable))
        found = [VisibleProject(*row) for row in rows.order_by("name").values_list("pk", "name", "may_act")]
        request._visible_projects = found  # type: ignore[attr-defined]
    return request._visible_projects  # type: ignore[attr-defined, no-any-return]


def actable_projects(request: HttpRequest) -> frozenset[int]:
    """Return the ids of the projects in which the user may create tasks and answer."""
    return frozenset(project.id for project in visible_projects(request) if project.may_act)


def waits_for_others(request: HttpRequest, thing: Task | Sequence) -> bool:
    """Return whether its open questions are all asked of others by name; one query per request."""
    if not hasattr(request, "_waiting_for_others"):
        waiting = Task.objects.filter(models.waits_for_others(current_user(request))).order_by()
        rows = list(waiting.values_list("pk", "sequence"))
        found = {(Task, pk) for pk, _ in rows} | {(Sequence, pk) for _, pk in rows}
        request._waiting_for_others = found  # type: ignore[attr-defined]
    return (type(thing), thing.pk) in request._waiting_for_others  # type: ignore[attr-defined]


def may_act(request: HttpRequest, project: Project) -> bool:
    """Return whether the user may create tasks, answer, start and cancel in the project."""
    return project.pk in actable_projects(request)


def task_or_404(request: HttpRequest, task_id: int) -> Task:
    return permissions.task_or_404(principal_of(request), task_id)


def project_or_404(request: HttpRequest, project_id: int) -> Project:
    return permissions.project_or_404(principal_of(request), project_id)


def sequence_or_404(request: HttpRequest, sequence_id: int) -> Sequence:
    return permissions.sequence_or_404(principal_of(request), sequence_id)


def step_or_404(request: HttpRequest, task_id: int, position: int) -> Step:
    return permissions.step_or_404(principal_of(request), task_id, position)


def question_or_404(request: HttpRequest, question_id: int) -> Question:
    return permissions.question_or_404(principal_of(request), question_id)


def is_htmx(request: HttpRequest) -> bool:
    """Return whether HTMX requested a part of a page."""
    return request.headers.get("HX-Request") == "true"


#: allauth has this as a decorator of views only.
_REAUTHENTICATED = reauthentication_required(app="allauth.account")(lambda request: None)


def require_reauthentication(request: HttpRequest) -> None:
    """Raise ReauthenticationRequired unless the user has confirmed this login lately."""
    _REAUTHENTICATED(request)


def require_recent_login(request: HttpRequest) -> None:
    """Raise ReauthenticationRequired, which asks for the password and then repeats the request.

    Unlike allauth's own, a login counts as well, and so does one through somebody who vouches.
    """
    records = get_authentication_records(request, current_user(request))
    newest = max((record["at"] for record in records), default=0)
    if time.time() - newest >= app_settings.REAUTHENTICATION_TIMEOUT:
        require_reauthentication(request)


def run_action(request: HttpRequest, thing: Task | Sequence, action: Callable[..., object]) -> None:
    """Run the action. If somebody else was first, the page shows the current state."""
    try:
        action(thing, by=principal_of(request))
    except NotAllowed:
        raise
    except CatHerderError as error:
        messages.error(request, str(error))


#: Digits of a number that every database can look up.
_MAX_DIGITS = 18


def number_from(text: str, *, digits: int = _MAX_DIGITS) -> int | None:
    """Return the number that a URL or a form has as text; None for anything else, and if it is too long."""
    if text.isascii() and text.isdigit() and len(text) <= digits:
        return int(text)
    return None


def render_part_or_page(
    request: HttpRequest, part: str, page: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """Render the template of a part of the page for HTMX, else that of the whole page."""
    return render(request, part if is_htmx(request) else page, context, status=status)


def refusal(request: HttpRequest, message: str, *, status: int, target: str) -> HttpResponse:
    """Return the reason for HTMX, which puts it at the target and leaves everything that was entered."""
    response = render(request, "questions/_refusal.html", {"message": message}, status=status)
    response["HX-Retarget"] = target
    response["HX-Reswap"] = "innerHTML"
    return response


class TimeInput(forms.TimeInput):
    input_type = "time"

    def __init__(self, **attributes: str) -> None:
        super().__init__(attributes, format="%H:%M")


class ProjectsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Rejects ids that are too large for the database, for which Django would fail."""

    def clean(self, value: Any) -> Any:
        for one in value or ():
            if len(str(one)) > _MAX_DIGITS:
                raise forms.ValidationError(
                    self.error_messages["invalid_choice"],
                    code="invalid_choice",
                    params={"value": str(one)[:40]},
                )
        return super().clean(value)
