"""A project's settings: what its repository says, and what the portal says instead."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app import places
from tasks_app.actions.settings import change_settings, overrides_of, repository_settings
from tasks_app.errors import CatHerderError, NotAllowed
from tasks_app.forms.project_settings import ProjectSettingsForm
from tasks_app.models import Project
from tasks_app.views.access import person, project_or_404


@require_http_methods(["GET", "POST"])
def project_settings(request: HttpRequest, project_id: int) -> HttpResponse:
    """The repository is read as the portal last fetched it: a page must not wait for a network."""
    project = project_or_404(request, project_id)
    try:
        commit = places.repository(project).head(project.branch)
        config = repository_settings(project, commit=commit)
    except CatHerderError as error:
        return render(request, "projects/settings.html", {"project": project, "trouble": str(error)})
    form_of = partial(ProjectSettingsForm, config=config, installation=settings.ENVIRONMENT.threshold)
    if request.method == "GET":
        initial = ProjectSettingsForm.initial_of(overrides_of(project))
        return _page(request, project, form_of(initial=initial))
    form = form_of(request.POST)
    if not form.is_valid() or not _change(request, project, form, commit):
        return _page(request, project, form, status=400)
    messages.success(request, "Saved. It holds for tasks that are created from now on.")
    return redirect("project_settings", project.pk)


def _change(request: HttpRequest, project: Project, form: ProjectSettingsForm, commit: str) -> bool:
    try:
        change_settings(project, form.overrides(), by=person(request), commit=commit)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        form.add_error(None, str(error))
        return False
    return True


def _page(
    request: HttpRequest, project: Project, form: ProjectSettingsForm, *, status: int = 200
) -> HttpResponse:
    may_change = Project.objects.maintained_by(person(request)).filter(pk=project.pk).exists()
    context = {"project": project, "form": form, "may_change": may_change}
    return render(request, "projects/settings.html", context, status=status)
