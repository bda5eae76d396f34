"""Importing decisions from files of the repository: what was found, to choose from and to edit."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import BadInput, CatHerderError
from tasks_app.models import Project
from tasks_app.services.decisions.importing import ImportPreview, import_decisions, preview_import
from tasks_app.web.pages.access import principal_of, project_or_404
from tasks_app.web.pages.decisions import refuse_viewer


@require_http_methods(["GET", "POST"])
def decision_import(request: HttpRequest, project_id: int) -> HttpResponse:
    """Show what the files of the project's branch state, or import what was chosen."""
    project = project_or_404(request, project_id)
    if refused := refuse_viewer(request, project):
        return refused
    try:
        preview = preview_import(project)
    except CatHerderError as error:
        return _page(request, project, ImportPreview(faults=[str(error)]))
    if request.method == "GET":
        return _page(request, project, preview)
    return _import(request, project, preview)


def _import(request: HttpRequest, project: Project, preview: ImportPreview) -> HttpResponse:
    picked, accept = set(request.POST.getlist("pick")), "accept" in request.POST
    chosen = [
        (one, request.POST.get(f"statement-{one.key}", one.found.statement))
        for one in preview.decisions
        if one.key in picked
    ]
    if len(chosen) < len(picked):
        return _page(request, project, preview, "The files have changed meanwhile. Choose again.")
    if not chosen:
        return _page(request, project, preview, "Choose at least one decision.")
    try:
        made = import_decisions(project, chosen, by=principal_of(request), accept=accept)
    except BadInput as error:
        return _page(request, project, preview, f"Nothing was imported. A statement {error.message}.")
    except CatHerderError as error:
        return _page(request, project, preview, str(error))
    messages.success(request, f"Imported {len(made)} decision{'s' * (len(made) != 1)}.")
    return redirect("decisions", project.pk)


def _page(request: HttpRequest, project: Project, preview: ImportPreview, fault: str = "") -> HttpResponse:
    """Show the decisions that were found. What was chosen and edited stays if it was refused."""
    posted = request.method == "POST"
    picked = set(request.POST.getlist("pick"))
    rows = [
        (
            one,
            one.key in picked if posted else one.is_suggested,
            request.POST.get(f"statement-{one.key}", one.found.statement),
        )
        for one in preview.decisions
    ]
    context = {
        "project": project,
        "rows": rows,
        "faults": preview.faults,
        "fault": fault,
        "accept": "accept" in request.POST,
    }
    return render(request, "decisions/import.html", context, status=400 if posted else 200)
