"""Create a task, or a sequence from a folder, and optionally start it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app import permissions
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.task_file import TaskDefinition, below_front_matter, parse_task, with_settings
from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.models import Sequence, Task
from tasks_app.permissions import projects_actable_by, projects_visible_to
from tasks_app.services.sequences import create_sequence, start_sequence
from tasks_app.services.tasks import create_task, start_task
from tasks_app.web.forms.new_task import NewTaskForm
from tasks_app.web.pages.access import current_user, principal_of
from tasks_app.web.pages.chosen_project import ChosenProject

#: Names the text in messages; `task:3` is its third line.
WHERE = "task"
_SENT = 20


@require_http_methods(["GET", "POST"])
def task_new(request: HttpRequest) -> HttpResponse:
    """Show or submit the form. `choose` and `preview` show it again, for browsers without scripts."""
    principal = principal_of(request)
    if request.method == "GET":
        return _render_page(request, NewTaskForm(principal=principal, initial=_initial(request)))
    if not projects_actable_by(principal).exists():
        raise PermissionDenied("You may not create tasks in any project. A maintainer can change your role.")
    form = NewTaskForm(request.POST, principal=principal)
    if {"choose", "preview"} & set(request.POST):
        return _render_page(request, NewTaskForm(principal=principal, initial=request.POST.dict()))
    made = _create(request, form) if form.is_valid() else None
    if made is None:
        return _render_page(request, form, status=400)
    if "start" in request.POST:
        _start_created(request, made)
    return redirect("task" if isinstance(made, Task) else "sequence", made.pk)


def task_new_project(request: HttpRequest) -> HttpResponse:
    """Render the part of the form that depends on the project."""
    return render(
        request,
        "tasks/new/_project.html",
        {"chosen": _chosen_project(request), "pipeline": "", "is_part": True},
    )


def task_new_files(request: HttpRequest) -> HttpResponse:
    """Render matching files, or with `kind=folder` folders, or the tasks of a folder."""
    part = "_would_run" if "would_run" in request.GET else "_files"
    context = {"chosen": _chosen_project(request), "kind": request.GET.get("kind", "")}
    return render(request, f"tasks/new/{part}.html", context)


@require_http_methods(["GET", "POST"])
def task_preview(request: HttpRequest) -> HttpResponse:
    """Render a preview of the text and its settings. Nothing is stored."""
    return render(request, "tasks/new/_preview.html", _preview(request.POST.dict()))


def _chosen_project(request: HttpRequest) -> ChosenProject | None:
    """Return the chosen project, if the user may create tasks in it, else the first one."""
    projects = projects_actable_by(principal_of(request))
    wanted = request.POST.get("project") or request.GET.get("project") or ""
    if wanted:
        number = int(wanted) if wanted.isdecimal() and len(wanted) < 19 else 0
        project = projects.filter(pk=number).first()
    else:
        project = projects.first()
    if project is None:
        return None
    given = request.POST if request.method == "POST" else request.GET
    user, query, folder = current_user(request), given.get("q", ""), given.get("folder", "")
    return ChosenProject(project, user, query=query, folder=folder)


def _initial(request: HttpRequest) -> dict[str, Any]:
    """Return initial values from the URL: a project, a file, a folder, or the text of another task."""
    asked = {name: request.GET.get(name, "") for name in ("project", "kind", "folder")}
    initial: dict[str, Any] = {name: value for name, value in asked.items() if value}
    if other := request.GET.get("from"):
        task = _task_to_duplicate(request, other)
        initial |= {"project": task.project_id, "text": task.text}
    elif path := request.GET.get("file"):
        chosen = _chosen_project(request)
        try:
            initial |= {"text": chosen.text_of(path), "file": path} if chosen else {}
        except CatHerderError as error:
            messages.error(request, str(error))
    return initial


def _task_to_duplicate(request: HttpRequest, number: str) -> Task:
    if not number.isdecimal() or len(number) > 18:
        raise Http404("There is no such task.")
    return permissions.task_or_404(principal_of(request), int(number))


def _render_page(request: HttpRequest, form: NewTaskForm, *, status: int = 200) -> HttpResponse:
    principal = principal_of(request)
    project = form["project"].value()
    projects = projects_actable_by(principal)
    known = str(project or "").isdecimal() and len(str(project)) < 19
    chosen = (projects.filter(pk=project).first() if known else None) or projects.first()
    context: dict[str, Any] = {
        "form": form,
        "may_see_any": projects_visible_to(principal).exists(),
        "chosen": ChosenProject(
            chosen, principal.user, query=request.GET.get("q", ""), folder=form["folder"].value() or ""
        )
        if chosen
        else None,
        "pipeline": form["pipeline"].value() or "",
        "kind": form["kind"].value(),
        "fresh_key": uuid.uuid4(),
        "sent": _submitted_form_keys(request),
    }
    if "preview" in request.POST:
        context |= {"show_preview": True, **_preview(request.POST.dict())}
    return render(request, "tasks/new.html", context, status=status)


def _submitted_form_keys(request: HttpRequest) -> str:
    """Return the keys of recently submitted forms, whose drafts can be deleted."""
    made = Task.objects.filter(created_by=current_user(request)).exclude(form_key="").order_by("-pk")
    return " ".join(made.values_list("form_key", flat=True)[:_SENT])


def _create(request: HttpRequest, form: NewTaskForm) -> Task | Sequence | None:
    """Create the task or sequence; return None and add form errors if it was refused."""
    given, principal = form.cleaned_data, principal_of(request)
    try:
        if form.is_folder:
            wanted = {"threshold": given["threshold"], "pipeline": given["pipeline"] or None}
            return create_sequence(
                given["project"], given["folder"], by=principal, form_key=given["form_key"], **wanted
            )
        text = with_settings(given["text"], form.front_matter(), where=WHERE)
        return create_task(
            given["project"], text, by=principal, where=WHERE, file=given["file"], form_key=given["form_key"]
        )
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        for sentence in _error_sentences(error):
            form.add_error("folder" if form.is_folder else "text", sentence)
        return None


def _error_sentences(error: CatHerderError) -> Iterable[str]:
    """Return each error with its line in the text, if it has one."""
    if isinstance(error, ConfigInvalid) and error.file == WHERE:
        return [_at_line(one.line, one.sentence) for one in error.problems]
    if isinstance(error, BadInput) and error.where.startswith(f"{WHERE}:"):
        return [_at_line(error.where.removeprefix(f"{WHERE}:"), error.message)]
    return [error.message if isinstance(error, BadInput) and error.where == WHERE else str(error)]


def _at_line(line: object, sentence: str) -> str:
    return f"Line {line}: {sentence}" if line else sentence


def _preview(given: dict[str, str]) -> dict[str, Any]:
    """Return the parsed text, or its errors."""
    form = NewTaskForm(given, principal=None)
    form.is_valid()
    if not given.get("text", "").strip():
        return {"definition": None, "faults": []}
    try:
        text = with_settings(given["text"], form.front_matter(), where=WHERE)
        return {"definition": parse_task(text, where=WHERE), "faults": []}
    except CatHerderError as error:
        return {
            "definition": TaskDefinition("", below_front_matter(given["text"])),
            "faults": list(_error_sentences(error)),
        }


def _start_created(request: HttpRequest, made: Task | Sequence) -> None:
    """Start it; errors are shown on the page of the created task."""
    try:
        if isinstance(made, Task):
            start_task(made, by=principal_of(request))
        else:
            start_sequence(made, by=principal_of(request))
    except CatHerderError as error:
        messages.error(request, f"Created, but not started: {error}")
