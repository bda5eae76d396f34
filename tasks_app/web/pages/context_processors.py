"""Lazy values about the installation for all templates."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, IntegerField, Max, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.models import Notice, User, WorkerBeat
from tasks_app.permissions import (
    Principal,
    notices_visible_to,
    projects_maintained_by,
    questions_answerable_by,
)
from tasks_app.sandbox import Sandbox, SandboxMode, detect


@cache
def sandbox() -> Sandbox:
    """Return the sandbox, detected once per process, because this starts a subprocess."""
    try:
        return detect(SandboxMode(settings.ENVIRONMENT.sandbox))
    except SandboxUnavailable as error:
        return Sandbox(None, str(error))


class Installation:
    """The state of the portal as the user may see it."""

    def __init__(self, request: HttpRequest) -> None:
        self._user = getattr(request, "user", None)

    @property
    def rehearsal(self) -> bool:
        return bool(settings.ENVIRONMENT.rehearsal)

    @property
    def sandboxed(self) -> bool:
        return sandbox().active

    @property
    def sandbox_reason(self) -> str:
        return sandbox().reason

    @property
    def open_questions(self) -> int:
        """The number of open questions that the user may answer."""
        return self._state[0]

    @property
    def unread_notices(self) -> int:
        return self._state[2]

    @property
    def newest_notice(self) -> int:
        """The newest notice that the page knows: only later ones become toasts."""
        return self._state[3]

    @property
    def without_worker(self) -> bool:
        """Whether no worker takes tasks. Not shown to anonymous users."""
        return not self._state[1]

    @cached_property
    def idle_workers(self) -> list[WorkerBeat]:
        """Workers that run but take no tasks, with the reason; asked for only if no other does."""
        return list(WorkerBeat.objects.idle()) if self._state[5] else []

    @property
    def reads_audit_log(self) -> bool:
        """Whether the user may read entries of others: site admins and maintainers."""
        return self._state[4]

    @cached_property
    def _state(self) -> tuple[int, bool, int, int, bool, bool]:
        """Values of every page, in the order of the properties above, in one query."""
        if not isinstance(self._user, User):
            return 0, True, 0, 0, False, False
        principal = Principal.unrestricted(self._user)
        answerable = questions_answerable_by(principal).open().order_by()
        counted = answerable.values("state").annotate(number=Count("pk", distinct=True)).values("number")
        unread = notices_visible_to(principal).unread().order_by().values("user")
        newest = Notice.objects.filter(user=self._user).order_by().values("user")
        now = User.objects.filter(pk=self._user.pk).annotate(
            open_questions=_number_or_zero(counted),
            worker=WorkerBeat.objects.some_takes_tasks(),
            unread=_number_or_zero(unread.annotate(number=Count("pk", distinct=True)).values("number")),
            newest=_number_or_zero(newest.annotate(number=Max("pk")).values("number")),
            maintains=Exists(projects_maintained_by(principal).order_by()),
            idle=Exists(WorkerBeat.objects.idle().order_by()),
        )
        open_questions, worker, unread_notices, newest_notice, maintains, idle = now.values_list(
            "open_questions", "worker", "unread", "newest", "maintains", "idle"
        ).get()
        reads_audit_log = maintains or self._user.is_superuser
        return open_questions, worker, unread_notices, newest_notice, reads_audit_log, idle


def _number_or_zero(query: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(query, output_field=IntegerField()), 0)


def installation(request: HttpRequest) -> dict[str, Any]:
    return {"installation": Installation(request)}
