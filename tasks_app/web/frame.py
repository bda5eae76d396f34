"""The frame of each page: the state of the installation and the counts in the navigation. Lazy."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Count, Exists, IntegerField, Max, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.models import Notice, User, WorkerBeat, asked_of
from tasks_app.permissions import (
    Principal,
    notices_visible_to,
    projects_maintained_by,
    questions_answerable_by,
)
from tasks_app.sandbox import Sandbox, SandboxMode, detect
from tasks_app.web.notifications import fresh


@cache
def sandbox() -> Sandbox:
    """Return the sandbox, detected once per process, because this starts a subprocess."""
    try:
        return detect(SandboxMode(settings.ENVIRONMENT.sandbox))
    except SandboxUnavailable as error:
        return Sandbox(None, str(error))


class State(NamedTuple):
    """Values of every page; an anonymous user gets the defaults.

    `open_questions` are those that are asked of the user. `newest_notice`: only later ones become toasts.
    """

    open_questions: int = 0
    some_worker_takes_tasks: bool = True
    unread_notices: int = 0
    newest_notice: int = 0
    maintains_projects: bool = False
    has_idle_workers: bool = False
    has_unsandboxed_workers: bool = False


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

    @cached_property
    def idle_workers(self) -> list[WorkerBeat]:
        """Workers that run but take no tasks, with the reason; asked for only if no other does."""
        if not self.state.has_idle_workers:
            return []
        return list(WorkerBeat.objects.idle())

    @cached_property
    def unsandboxed_workers(self) -> list[WorkerBeat]:
        """Workers without a sandbox, with the reason. If this machine has none, every page says so anyway."""
        if not self.sandboxed or not self.state.has_unsandboxed_workers:
            return []
        return list(WorkerBeat.objects.unsandboxed())

    @property
    def reads_audit_log(self) -> bool:
        """Return whether the user may read entries of others: site admins and maintainers."""
        user = self._user
        return isinstance(user, User) and (user.is_superuser or self.state.maintains_projects)

    @cached_property
    def state(self) -> State:
        """Read it in one query."""
        if not isinstance(self._user, User):
            return State()
        principal = Principal.unrestricted(self._user)
        answerable = questions_answerable_by(principal).open().filter(asked_of(self._user)).order_by()
        counted = answerable.values("state").annotate(number=Count("pk", distinct=True)).values("number")
        unread = notices_visible_to(principal).beyond_inbox().order_by().values("user")
        newest = Notice.objects.filter(user=self._user).order_by().values("user")
        values = {
            "open_questions": _number_or_zero(counted),
            "some_worker_takes_tasks": WorkerBeat.objects.some_takes_tasks(),
            "unread_notices": _number_or_zero(
                unread.annotate(number=Count("pk", distinct=True)).values("number")
            ),
            "newest_notice": _number_or_zero(newest.annotate(number=Max("pk")).values("number")),
            "maintains_projects": Exists(projects_maintained_by(principal).order_by()),
            "has_idle_workers": Exists(WorkerBeat.objects.idle().order_by()),
            "has_unsandboxed_workers": Exists(WorkerBeat.objects.unsandboxed().order_by()),
        }
        return State(**User.objects.filter(pk=self._user.pk).annotate(**values).values(*values).get())


def _number_or_zero(query: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(query, output_field=IntegerField()), 0)


def installation(request: HttpRequest) -> dict[str, Any]:
    return {"installation": Installation(request)}


def navigation(request: HttpRequest) -> HttpResponse:
    """Render the updates; with `?after=N` also notices of later questions."""
    return render(request, "_navigation_counts.html", {"fresh": fresh(request)})


def workers(request: HttpRequest) -> HttpResponse:
    """Render the banner that no worker is running; it polls by itself."""
    return render(request, "_workers.html")
