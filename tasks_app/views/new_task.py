"""Creating a task, or a sequence from a folder of them, and starting it at once if wanted."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app.actions.sequences import create_sequence, start_sequence
from tasks_app.actions.tasks import create_task, start_task
from tasks_app.errors import CatHerderError, NotAllowed
from tasks_app.forms.new_task import NewTaskForm
from tasks_app.models import Project, Sequence, Task
from tasks_app.views.access import person


@require_http_methods(["GET", "POST"])
def task_new(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if request.method == "GET":
        return _page(request, NewTaskForm(user=user, initial={"project": request.GET.get("project")}))
    if not Project.objects.actable_by(user).exists():
        raise PermissionDenied("You may not create tasks in any project. A maintainer can change that.")
    form = NewTaskForm(request.POST, user=user)
    made = _create(request, form) if form.is_valid() else None
    if made is None:
        return _page(request, form, status=400)
    if "start" in request.POST:
        _start(request, made)
    return redirect("task" if isinstance(made, Task) else "sequence", made.pk)


def _page(request: HttpRequest, form: NewTaskForm, *, status: int = 200) -> HttpResponse:
    may_see_any = Project.objects.visible_to(person(request)).exists()
    return render(request, "tasks/new.html", {"form": form, "may_see_any": may_see_any}, status=status)


def _create(request: HttpRequest, form: NewTaskForm) -> Task | Sequence | None:
    """The new task or sequence; None if it was refused, with the reason in the form."""
    given = form.cleaned_data
    wanted = {"threshold": given["threshold"], "pipeline": given["pipeline"] or None}
    user = person(request)
    try:
        if form.is_folder:
            return create_sequence(given["project"], given["folder"], by=user, **wanted)
        return create_task(given["project"], given["text"], by=user, where="task", **wanted)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        form.add_error("folder" if form.is_folder else "text", str(error))
        return None


def _start(request: HttpRequest, made: Task | Sequence) -> None:
    """It exists already: what hinders its start is told on its page."""
    try:
        if isinstance(made, Task):
            start_task(made, by=person(request))
        else:
            start_sequence(made, by=person(request))
    except CatHerderError as error:
        messages.error(request, f"It was created but not started: {error}")
