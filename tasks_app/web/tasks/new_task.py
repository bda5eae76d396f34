"""The form for a new task, and what it offers of the chosen project."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.config.task_file import TaskDefinition, below_front_matter, parse_task, with_settings
from tasks_app.config.threshold import LEVELS, resolve_threshold
from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.models import Project, Sequence, Task, User
from tasks_app.permissions import Principal, projects_actable_by, projects_visible_to
from tasks_app.services.projects.settings import default_threshold
from tasks_app.services.projects.task_files import RepositoryTaskFiles
from tasks_app.services.questions.routing import require_people
from tasks_app.services.sequences import create_sequence
from tasks_app.services.tasks import create_task
from tasks_app.services.usage.cost_limits import Budgets, budgets_of
from tasks_app.services.usage.statistics import Forecast, forecasts
from tasks_app.web.access import current_user, number_from, principal_of, task_or_404
from tasks_app.web.projects.at_head import ProjectAtHead, ShownPipeline, at_head

_LISTED = 50


@dataclass(frozen=True)
class Listing:
    """Matching names, up to a limit; `more` were left out."""

    names: list[str]
    more: int = 0

    @classmethod
    def from_names(cls, names: list[str]) -> Listing:
        return cls(names[:_LISTED], max(0, len(names) - _LISTED))


@dataclass(frozen=True)
class ChosenProject:
    """A project in the form, at the newest fetched commit.

    `user` fills in the form, `query` is what was searched for, `folder` the folder that is looked into.
    """

    project: Project
    user: User
    query: str = ""
    folder: str = ""

    @cached_property
    def head(self) -> ProjectAtHead | None:
        try:
            return at_head(self.project)
        except CatHerderError:
            return None

    @cached_property
    def pipelines(self) -> list[ShownPipeline]:
        return self.head.pipelines if self.head else []

    @cached_property
    def forecasts(self) -> list[tuple[ShownPipeline, Forecast]]:
        """The pipelines, each with what a task of it is likely to cost and to take."""
        found = forecasts(self.project)
        return [(one, found.get(one.name, Forecast())) for one in self.pipelines]

    @cached_property
    def budgets(self) -> Budgets:
        """The budgets that limit what the task may cost."""
        return budgets_of(self.project, self.user)

    @property
    def left(self) -> float | None:
        """Dollars that a task may cost this month; None if nothing limits them or nothing is left."""
        return None if self.budgets.are_too_small else self.budgets.left

    @property
    def is_broken(self) -> bool:
        """Return whether cat-herder.yaml has errors, so that nothing can be created."""
        return self.head is not None and self.head.config is None

    @cached_property
    def threshold(self) -> int | None:
        """The default threshold; None if the settings cannot be read."""
        if self.head is None or self.head.config is None:
            return None
        chosen = self.head.config.interaction_threshold
        installation = default_threshold(self.project)
        return resolve_threshold(explicit=None, task=None, project=chosen, installation=installation)

    @cached_property
    def files(self) -> Listing:
        """The Markdown files, with the task folder's first."""
        return Listing.from_names(self._pickable.paths(self.query) if self._pickable else [])

    @cached_property
    def folders(self) -> Listing:
        """The folders that contain task files."""
        return Listing.from_names(self._pickable.folders(self.query) if self._pickable else [])

    @cached_property
    def would_run(self) -> list[str]:
        """The task files of `folder` in the order in which they would run."""
        return self._pickable.tasks_in_order(self.folder) if self._pickable else []

    def text_of(self, path: str) -> str:
        """Return the text of a Markdown file. Raises BadInput."""
        if self._pickable is None:
            raise BadInput("The project’s repository cannot be read.")
        return self._pickable.read_text(path)

    @cached_property
    def _pickable(self) -> RepositoryTaskFiles | None:
        if self.head is None:
            return None
        folder = DEFAULT_TASK_FOLDER
        try:
            if self.head.config:
                folder = self.head.config.task_folder
            return RepositoryTaskFiles(self.head.repository, self.head.files, folder)
        except CatHerderError:
            return None


#: Form fields that are also keys of the front matter.
FRONT_MATTER_KEYS = {
    "title": "title",
    "pipeline": "pipeline",
    "threshold": "interactionThreshold",
    "model": "model",
    "resume": "resume",
    "priority": "priority",
    "ask": "ask",
}

_EXAMPLE = """# Round invoice totals to the cent

Totals sometimes show 19.989999. Round them where they are computed, and add a test."""


class NewTaskForm(forms.Form):
    """A task, or a folder of tasks. The service parses the text, not the form."""

    project = forms.ModelChoiceField(
        Project.objects.none(),
        empty_label=None,
        error_messages={"invalid_choice": "There is no such project, or you may not create tasks in it."},
    )
    kind = forms.ChoiceField(
        required=False,
        choices=[("task", "A task"), ("folder", "A folder of tasks")],
        initial="task",
        widget=forms.RadioSelect,
    )
    folder = forms.CharField(
        required=False,
        max_length=300,
        widget=forms.TextInput(attrs={"placeholder": "tasks/new-prices", "autocomplete": "off"}),
    )
    text = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 14, "placeholder": _EXAMPLE, "spellcheck": "true"}),
    )
    threshold = forms.TypedChoiceField(
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "Project default"), *((str(n), s) for n, s in LEVELS.items())],
        widget=forms.RadioSelect,
        error_messages={
            "invalid_choice": "The threshold must be a whole number from 0 to 5, not “%(value)s”."
        },
    )
    pipeline = forms.CharField(required=False, max_length=100)
    title = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"placeholder": "first heading", "autocomplete": "off"}),
    )
    model = forms.CharField(
        required=False,
        max_length=100,
        widget=forms.TextInput(attrs={"placeholder": "project default", "autocomplete": "off"}),
    )
    resume = forms.ChoiceField(
        required=False,
        choices=[
            ("", "Resume the session"),
            ("replay", "Start a new session with the history"),
            ("session", "Resume the session (set in the text)"),
        ],
    )
    priority = forms.ChoiceField(
        required=False,
        choices=[("", "Normal"), ("high", "High"), ("low", "Low"), ("normal", "Normal (set in the text)")],
    )
    ask = forms.CharField(
        required=False,
        max_length=500,
        widget=forms.TextInput(attrs={"placeholder": "as the project says", "autocomplete": "off"}),
    )
    file = forms.CharField(required=False, max_length=300, widget=forms.HiddenInput)
    form_key = forms.RegexField("^[0-9a-f-]{36}$", required=False, max_length=40, widget=forms.HiddenInput)

    def front_matter(self) -> dict[str, Any]:
        """The options that were chosen next to the text, under their front matter keys."""
        given = {key: self.cleaned_data.get(name) for name, key in FRONT_MATTER_KEYS.items()}
        return {key: value for key, value in given.items() if value not in (None, "", [])}

    def clean_ask(self) -> list[str]:
        """Return the names that were entered with commas between them."""
        return [name.strip() for name in self.cleaned_data["ask"].split(",") if name.strip()]

    def clean_text(self) -> str:
        """Normalise CRLF to LF: browsers send CRLF in forms."""
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if self.is_folder and not given.get("folder"):
            self.add_error("folder", "Enter the path of a folder in the repository.")
        elif not self.is_folder and not str(given.get("text") or "").strip():
            self.add_error("text", "Enter the task: say what should be done.")
        return given

    @property
    def is_folder(self) -> bool:
        """Return whether a sequence is to be created instead of a task."""
        return bool(self["kind"].value() == "folder")

    def __init__(self, *args: object, principal: Principal | None, **kwargs: object) -> None:
        """Without a principal no project can be chosen, as for a preview."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field = self.fields["project"]
        assert isinstance(field, forms.ModelChoiceField)  # noqa: S101 (for the type checker)
        field.queryset = projects_actable_by(principal) if principal else Project.objects.none()
        for name, bound in self.fields.items():
            if name in self.errors:
                bound.widget.attrs.update({"aria-invalid": "true", "aria-describedby": f"{name}-error"})


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
    """Render a preview of the text and its settings, or with `?part=faults` what is wrong with it alone."""
    template = "_faults.html" if request.GET.get("part") == "faults" else "_preview.html"
    return render(request, f"tasks/new/{template}", _preview(request.POST.dict()))


def _chosen_project(request: HttpRequest) -> ChosenProject | None:
    """Return the chosen project, if the user may create tasks in it, else the first one."""
    projects = projects_actable_by(principal_of(request))
    wanted = request.POST.get("project") or request.GET.get("project") or ""
    if wanted:
        projects = projects.filter(pk=number_from(wanted) or 0)
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
        number = number_from(other)
        if number is None:
            raise Http404("There is no such task.")
        task = task_or_404(request, number)
        initial |= {"project": task.project_id, "text": task.text}
    elif path := request.GET.get("file"):
        chosen = _chosen_project(request)
        try:
            initial |= {"text": chosen.text_of(path), "file": path} if chosen else {}
        except CatHerderError as error:
            messages.error(request, str(error))
    return initial


def _render_page(request: HttpRequest, form: NewTaskForm, *, status: int = 200) -> HttpResponse:
    principal = principal_of(request)
    projects = projects_actable_by(principal)
    wanted = number_from(str(form["project"].value())) or 0
    chosen = projects.filter(pk=wanted).first() or projects.first()
    # Drafts of forms that were submitted can be deleted.
    submitted = Task.objects.filter(created_by=principal.user).exclude(form_key="").order_by("-pk")
    query, folder = request.GET.get("q", ""), form["folder"].value() or ""
    context: dict[str, Any] = {
        "form": form,
        "may_see_any": projects_visible_to(principal).exists(),
        "chosen": chosen and ChosenProject(chosen, principal.user, query=query, folder=folder),
        "pipeline": form["pipeline"].value() or "",
        "kind": form["kind"].value(),
        "fresh_key": uuid.uuid4(),
        "sent": " ".join(submitted.values_list("form_key", flat=True)[:_SENT]),
    }
    if "preview" in request.POST:
        context |= {"show_preview": True, **_preview(request.POST.dict())}
    return render(request, "tasks/new.html", context, status=status)


def _create(request: HttpRequest, form: NewTaskForm) -> Task | Sequence | None:
    """Create the task or sequence, and start it if wanted; return None and add form errors if refused."""
    given, principal, start = form.cleaned_data, principal_of(request), "start" in request.POST
    try:
        if form.is_folder:
            wanted = {"threshold": given["threshold"], "pipeline": given["pipeline"] or None}
            return create_sequence(
                given["project"],
                given["folder"],
                by=principal,
                ask=tuple(given["ask"]),
                form_key=given["form_key"],
                start=start,
                **wanted,
            )
        require_people(given["project"], given["ask"])
        text = with_settings(given["text"], form.front_matter(), where=WHERE)
        return create_task(
            given["project"],
            text,
            by=principal,
            where=WHERE,
            file=given["file"],
            form_key=given["form_key"],
            start=start,
        )
    except NotAllowed:
        raise
    except CatHerderError as error:
        field = "folder" if form.is_folder else "text"
        if isinstance(error, BadInput) and error.where == "ask":
            field = "ask"
        for sentence in _error_sentences(error):
            form.add_error(field, sentence)
        return None


def _error_sentences(error: CatHerderError) -> Iterable[str]:
    """Return each error with its line in the text, if it has one."""
    if isinstance(error, ConfigInvalid) and error.file == WHERE:
        return [_at_line(one.line, one.sentence) for one in error.problems]
    if isinstance(error, BadInput) and error.where.startswith(f"{WHERE}:"):
        return [_at_line(error.where.removeprefix(f"{WHERE}:"), error.message)]
    return [error.message if isinstance(error, BadInput) and error.where in (WHERE, "ask") else str(error)]


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
