"""What every page knows about the installation. Nothing is asked for until a template shows it."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from tasks_app.errors import SandboxUnavailable
from tasks_app.jail import Jail, SandboxMode, detect
from tasks_app.models import Question, User


@cache
def jail() -> Jail:
    """Found out once per process: the answer costs a subprocess and does not change."""
    try:
        return detect(SandboxMode(settings.ENVIRONMENT.sandbox))
    except SandboxUnavailable as error:
        return Jail(None, str(error))


class Installation:
    """The state of the portal as the person who looks may see it."""

    def __init__(self, request: HttpRequest) -> None:
        self._user = getattr(request, "user", None)

    @property
    def rehearsal(self) -> bool:
        return bool(settings.ENVIRONMENT.rehearsal)

    @property
    def sandboxed(self) -> bool:
        return jail().active

    @property
    def sandbox_reason(self) -> str:
        return jail().reason

    @cached_property
    def open_questions(self) -> int:
        """How many questions wait in the projects that the person sees."""
        if not isinstance(self._user, User):
            return 0
        return Question.objects.visible_to(self._user).open().count()


def installation(request: HttpRequest) -> dict[str, Any]:
    return {"installation": Installation(request)}
