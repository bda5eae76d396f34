"""What the buttons of a task and of a sequence have in common."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from tasks_app.core.errors import CatHerderError, NotAllowed
from tasks_app.models import Sequence, Task
from tasks_app.web.pages.access import principal_of


def act(request: HttpRequest, thing: Task | Sequence, action: Callable[..., object]) -> None:
    """Do it. That somebody was first is no error: the page that follows tells what holds now."""
    try:
        action(thing, by=principal_of(request))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        messages.error(request, str(error))
