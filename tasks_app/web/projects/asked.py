"""Whom a question of a project would be put to: try the rules, groups and owners before an agent asks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from tasks_app.config.routing import Asking
from tasks_app.core.errors import CatHerderError
from tasks_app.models import AskedBy, Calendar, Project, QuestionKind, User, paths
from tasks_app.services.calendars import on_call_now, read_on_call_calendar, shifts_of_nobody
from tasks_app.services.questions.routing import MOST_SHIFTS, directory_of, people_asked
from tasks_app.web.access import current_user, may_act, principal_of, project_or_404
from tasks_app.web.calendars import tell_reading


class QuestionForm(forms.Form):
    """What routing looks at of a question."""

    kind = forms.ChoiceField(choices=QuestionKind.choices, initial=QuestionKind.CLARIFICATION, required=False)
    step = forms.CharField(max_length=64, required=False)
    header = forms.CharField(max_length=100, required=False)
    path = forms.CharField(max_length=1000, required=False, label="File")


def _calendar(project: Project) -> dict[str, Any]:
    """Return what the page says of the on-call calendar; nothing if the project has none."""
    calendar = Calendar.objects.filter(project=project).exclude(source="").first()
    if calendar is None:
        return {}
    directory, now = directory_of(project), timezone.now()
    shifts = [(one.shift, one.why, directory.on_call(one.shift)) for one in on_call_now(project, now)]
    unknown = shifts_of_nobody(calendar, directory, now)[:MOST_SHIFTS]
    return {"calendar": calendar, "shifts": shifts, "unknown": unknown}


@require_GET
def project_asked(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    form = QuestionForm(request.GET if request.GET else None)
    context = {"project": project, "form": form, "may_act": may_act(request, project), **_calendar(project)}
    if form.is_valid():
        given = form.cleaned_data
        question = Asking(
            given["kind"] or QuestionKind.CLARIFICATION,
            given["step"],
            tuple(filter(None, [given["header"]])),
            tuple(filter(None, [given["path"]])),
        )
        try:
            commit = paths.repository(project).head(project.branch)
            starter = current_user(request).username
            found = people_asked(project, question, commit=commit, chosen=[], starter=starter)
        except CatHerderError as error:
            context["fault"] = str(error)
        else:
            users = User.objects.in_bulk([one.person.id for one in found])
            context["found"] = [(users[one.person.id], one) for one in found]
            context["is_default"] = {one.asked_by for one in found} <= {AskedBy.STARTER}
    return render(request, "projects/asked.html", context)


@require_POST
def project_calendar(request: HttpRequest, project_id: int) -> HttpResponse:
    """Read the on-call calendar now, for the settings (`back=settings`) or the preview."""
    project = project_or_404(request, project_id)
    tell_reading(request, read_on_call_calendar(project, by=principal_of(request)))
    back = "project_settings" if request.POST.get("back") == "settings" else "project_asked"
    return redirect(back, project.pk)
