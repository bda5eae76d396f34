"""The first steps of a new installation, which the list of tasks shows to its admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from tasks_app.core.phases import Phase
from tasks_app.models import Invitation, Project, Task, User
from tasks_app.services.accounts import dismiss_first_steps
from tasks_app.web.access import current_user, is_htmx
from tasks_app.web.frame import sandbox

#: The project that `up` adds to a new installation.
_SAMPLE = "sample"


@dataclass(frozen=True)
class FirstStep:
    """`how` says what to do, or what it is good for; `url` leads there, if it is a page."""

    title: str
    how: str
    done: bool
    url: str = ""


def first_steps(user: User) -> list[FirstStep]:
    """Return the steps; none if all are done, for those who dismissed them, and for all but site admins."""
    if not user.is_superuser or user.first_steps_dismissed:
        return []
    steps = _steps(user)
    if all(step.done for step in steps):
        return []
    return steps


@require_GET
def first_steps_part(request: HttpRequest) -> HttpResponse:
    """Render the checklist alone, for the page that is open while something gets done."""
    context = {"first_steps": first_steps(current_user(request))}
    return render(request, "tasks/_first_steps.html", context)


@require_POST
def first_steps_dismiss(request: HttpRequest) -> HttpResponse:
    dismiss_first_steps(current_user(request))
    return HttpResponse() if is_htmx(request) else redirect("tasks")


def _steps(user: User) -> list[FirstStep]:
    known = _known_steps(user)
    sample = known["sample"]
    free = " It costs nothing in rehearsal." if settings.ENVIRONMENT.rehearsal else ""
    run_sample = FirstStep(
        "Run the sample task",
        "See how an agent works, asks and continues." + free,
        known["sample_done"],
        reverse("task", args=[sample]) if sample else "",
    )
    return [
        *([run_sample] if sample else []),
        FirstStep(
            "Connect the real model",
            "Set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and restart the portal.",
            not settings.ENVIRONMENT.rehearsal,
            reverse("help_page", args=["operations"]) + "#model-and-cost",
        ),
        FirstStep(
            "Install the sandbox",
            "apt install bubblewrap: agents then see the files of their task and no others.",
            sandbox().active,
            reverse("help_page", args=["operations"]) + "#sandbox",
        ),
        FirstStep(
            "Add your own repository",
            "A path, or an https or ssh URL. The portal works on its own copy.",
            known["own_project"],
            reverse("projects"),
        ),
        FirstStep(
            "Invite somebody",
            "On the page Members of a project. They can answer the questions of its tasks.",
            known["invited"],
            reverse("project_members", args=[known["project"]]) if known["project"] else reverse("people"),
        ),
    ]


def _known_steps(user: User) -> dict[str, Any]:
    """Return what the database knows of the steps, by one query."""
    sample = Project.objects.filter(name=_SAMPLE).order_by().values("pk")
    # What goes on comes first, as an index of the project's tasks has it: by id alone, all tasks were read.
    of_sample = Task.objects.filter(project=sample[:1]).order_by("-phase", "pk")
    others = User.objects.exclude(pk=OuterRef("pk")).filter(is_active=True)
    own = Project.objects.exclude(name=_SAMPLE).order_by("-pk")
    known = (
        User.objects.filter(pk=user.pk)
        .annotate(
            sample=of_sample.values("pk")[:1],
            sample_done=Exists(of_sample.filter(phase=Phase.DONE).order_by()),
            own_project=Exists(own),
            project=own.values("pk")[:1],
            other_user=Exists(others),
            invitation=Exists(Invitation.objects.all()),
        )
        .values("sample", "sample_done", "own_project", "project", "other_user", "invitation")
        .get()
    )
    return {**known, "invited": bool(known["other_user"] or known["invitation"])}
