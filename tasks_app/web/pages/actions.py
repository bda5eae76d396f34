"""Run the actions of buttons and forms, and answer what they refuse."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from tasks_app.core.errors import CatHerderError, NotAllowed
from tasks_app.models import Sequence, Task
from tasks_app.web.pages.access import principal_of


def run_action(request: HttpRequest, thing: Task | Sequence, action: Callable[..., object]) -> None:
    """Run the action. If somebody else was first, the page shows the current state."""
    try:
        run_if_allowed(lambda: action(thing, by=principal_of(request)))
    except CatHerderError as error:
        messages.error(request, str(error))


def run_if_allowed(action: Callable[[], object]) -> None:
    """Run the action. If the user may not do it, the answer is 403 with the reason."""
    try:
        action()
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
