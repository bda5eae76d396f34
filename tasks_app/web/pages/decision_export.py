"""Exporting the decisions of a project as files, which are then reviewed and published like other results."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from tasks_app.core.errors import CatHerderError, NotAllowed
from tasks_app.services.decisions.exporting import export_decisions
from tasks_app.web.pages.access import principal_of, project_or_404


@require_POST
def decision_export(request: HttpRequest, project_id: int) -> HttpResponse:
    """Write the decisions as files and show the task with them."""
    project = project_or_404(request, project_id)
    try:
        export = export_decisions(project, by=principal_of(request))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        messages.error(request, str(error))
        return redirect("decisions", project.pk)
    if export.task is None:
        messages.info(request, f"Nothing to export: the branch {project.branch} has all decisions as files.")
        return redirect("decisions", project.pk)
    if not export.is_new:
        messages.info(request, "Nothing has changed since this export.")
    return redirect("task", export.task.pk)
