"""The settings of a project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import ProjectConfig, load_project_config
from tasks_app.config.project_settings import SETTINGS, Overrides
from tasks_app.config.setting import Choices, Setting, ask_rules, value_in_words
from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.models import Action, AuditEntry, Calendar, Project, QuestionState, paths
from tasks_app.permissions import may_maintain
from tasks_app.services.calendars import read_on_call_calendar
from tasks_app.services.projects.projects import change_source, remove_project
from tasks_app.services.projects.settings import (
    CONFIG_FILE,
    SettingInEffect,
    change_branch,
    change_settings,
    overrides_of,
    settings_in_effect,
    use_default_branch,
)
from tasks_app.services.questions.routing import names_of_nobody
from tasks_app.web.access import principal_of, project_or_404
from tasks_app.web.calendars import tell_reading
from tasks_app.web.projects.at_head import at_head

#: The choice that leaves a setting to cat-herder.yaml.
NO_OVERRIDE = "no override"
#: Of numbers, durations and choices.
_MAX_SHORT_TEXT = 20


class SettingField(forms.CharField):
    """The override of a setting, as its descriptor says. An empty field leaves it to cat-herder.yaml.

    `choices` are offered in a list; without them, text is entered.
    """

    def __init__(self, setting: Setting, *, choices: Choices = ()) -> None:
        self.setting = setting
        self.choices = choices
        super().__init__(
            required=False,
            label=setting.label,
            help_text=setting.text_help,
            max_length=setting.kind.max_length or _MAX_SHORT_TEXT,
            widget=self._widget_for(setting),
        )

    def _widget_for(self, setting: Setting) -> forms.Widget:
        if self.choices:
            return forms.Select(choices=[("", NO_OVERRIDE), *self.choices])
        attributes = {"placeholder": NO_OVERRIDE, "autocomplete": "off"}
        if setting.kind.widget == "lines":
            return forms.Textarea(attributes | {"rows": "3", "spellcheck": "false", "class": "machine"})
        if setting.kind.widget == "number":
            schema = setting.kind.schema
            step = "1" if schema["type"] == "integer" else "any"
            bounds = {"min": str(schema["minimum"]), "max": str(schema["maximum"]), "step": step}
            return forms.NumberInput(attributes | bounds)
        return forms.TextInput(attributes)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if text and self.choices and text not in dict(self.choices):
            raise forms.ValidationError(f"“{text}” is not one of the choices.")
        try:
            return self.setting.kind.parse(text)
        except BadInput as error:
            # With a place, the message is a sentence; without one, it continues the label.
            sentence = error.message
            if not error.where:
                sentence = f"it {sentence}"
            raise forms.ValidationError(f"{sentence[0].upper()}{sentence[1:]}.") from None

    def prepare_value(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return self.setting.kind.as_text(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except forms.ValidationError:
            return True


class ProjectSettingsForm(forms.Form):
    """The overrides, one field for each setting."""

    def __init__(self, *args: Any, config: ProjectConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, setting in SETTINGS.items():
            field = SettingField(setting, choices=setting.choices(config))
            field.widget.attrs["aria-describedby"] = f"{name}-hint"
            self.fields[name] = field

    @staticmethod
    def initial_values(overrides: Overrides) -> Mapping[str, Any]:
        return {name: getattr(overrides, name) for name in SETTINGS}

    def overrides(self) -> Overrides:
        return Overrides(**self.cleaned_data)


class SourceForm(forms.Form):
    """The location of the repository. The service checks whether there is one."""

    source = forms.CharField(
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "machine"}),
        error_messages={"required": "Enter a folder, or an https or ssh URL."},
    )


class BranchForm(forms.Form):
    """The branch of the source that tasks start from."""

    branch = forms.ChoiceField(
        error_messages={"invalid_choice": "The source had no branch “%(value)s” at the last fetch."}
    )

    def __init__(self, *args: Any, branches: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["branch"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [(one, one) for one in branches]


_CHANGES = 20
_BRANCHES = 500

#: Labels of what the same page changes, besides the settings.
_OTHER_LABELS = {"source": "Source", "branch": "Branch"}


@dataclass(frozen=True)
class Row:
    """A setting with the form field of its override."""

    shown: SettingInEffect
    field: forms.BoundField

    @property
    def group(self) -> str:
        """The heading above it."""
        path = self.shown.setting.path
        if not path:
            return "Only in the portal"
        return "Limits" if path[0] == "limits" else "Tasks"


@dataclass(frozen=True)
class Change:
    """A change of settings, with old and new values."""

    at: datetime
    by: str
    what: list[tuple[str, str, str]]


@require_http_methods(["GET", "POST"])
def project_settings(request: HttpRequest, project_id: int) -> HttpResponse:
    """The repository is read as the portal last fetched it: a page must not wait for a network."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project)
    if "source" in request.POST:
        return _post_source(request, project)
    if "default_branch" in request.POST:
        return _post_default_branch(request, project)
    if "branch" in request.POST:
        return _post_branch(request, project)
    return _post_settings(request, project)


@require_POST
def project_remove(request: HttpRequest, project_id: int) -> HttpResponse:
    """Remove the project after its name was typed."""
    project = project_or_404(request, project_id)
    typed = request.POST.get("name", "").strip()
    if typed != project.name and _may_change(request, project):
        fault = f"Nothing was removed. Type “{project.name}” to remove the project."
        return _render_page(request, project, status=400, remove_fault=fault, typed=typed)
    try:
        remove_project(project, by=principal_of(request))
    except NotAllowed:
        raise
    except CatHerderError as error:
        return _render_page(request, project, status=409, remove_fault=str(error), typed=typed)
    messages.success(request, f"Project “{typed}” removed. Its source was not touched.")
    return redirect("projects")


def _post_source(request: HttpRequest, project: Project) -> HttpResponse:
    if not _may_move(request):
        raise PermissionDenied("Only a site admin can change the source of a project.")
    form, branch = SourceForm(request.POST), project.branch
    if not form.is_valid() or not _try_action(
        form, partial(change_source, project, form.cleaned_data["source"], by=principal_of(request))
    ):
        return _render_page(request, Project.objects.get(pk=project.pk), status=400, source_form=form)
    said = f"Source changed to {project.source}."
    if project.branch != branch:
        said += f" It has no branch {branch}, so tasks start from {project.branch}."
    messages.success(request, said)
    return redirect("project_settings", project.pk)


def _may_move(request: HttpRequest) -> bool:
    return principal_of(request).is_site_admin


def _post_branch(request: HttpRequest, project: Project) -> HttpResponse:
    form = BranchForm(request.POST, branches=_branches(project))
    if not _may_change(request, project):
        raise PermissionDenied(
            f"Your role in {project} does not allow this. Its maintainers change settings."
        )
    if form.is_valid() and _try_action(
        form, partial(change_branch, project, form.cleaned_data["branch"], by=principal_of(request))
    ):
        messages.success(request, f"Tasks now start from the branch {project.branch}.")
        return redirect("project_settings", project.pk)
    return _render_page(request, project, status=400, branch_form=form)


def _post_default_branch(request: HttpRequest, project: Project) -> HttpResponse:
    try:
        use_default_branch(project, by=principal_of(request))
    except NotAllowed:
        raise
    except CatHerderError as error:
        return _render_page(request, Project.objects.get(pk=project.pk), status=409, trouble=str(error))
    messages.success(request, f"Tasks now start from the branch {project.branch}.")
    return redirect("project", project.pk)


def _post_settings(request: HttpRequest, project: Project) -> HttpResponse:
    try:
        commit = paths.repository(project).head(project.branch)
        head = at_head(project)
    except CatHerderError as error:
        return _render_page(request, project, status=409, trouble=str(error))
    if head.file_config is None:
        return _render_page(request, project, status=409)
    form = ProjectSettingsForm(request.POST, config=head.file_config)
    reset, before = request.POST.get("reset", ""), overrides_of(project)
    if reset in SETTINGS:
        overrides = before.model_copy(update={reset: SETTINGS[reset].kind.unset})
    elif form.is_valid():
        overrides = form.overrides()
    else:
        for name in form.fields:
            if name in form.errors:  # the browser begins there: it may be far below
                form.fields[name].widget.attrs["autofocus"] = True
                break
        return _render_page(request, project, status=400, form=form)
    if not _try_action(
        form, lambda: change_settings(project, overrides, by=principal_of(request), commit=commit)
    ):
        return _render_page(request, project, status=400, form=form)
    change = "Saved."
    if reset in SETTINGS:
        change = f"Override of “{SETTINGS[reset].label}” removed."
    messages.success(
        request,
        f"{change} Where a setting does not say otherwise, this applies to tasks created from now on.",
    )
    named = [name for rule in ask_rules(overrides_of(project).ask) for name in rule.people]
    if unknown := names_of_nobody(project, named):
        messages.warning(
            request,
            f"{SETTINGS['ask'].label}: {', '.join(unknown)} means nobody who may answer in {project}.",
        )
    if overrides.on_call != before.on_call:
        calendar = read_on_call_calendar(project, by=principal_of(request))
        if calendar.source:
            tell_reading(request, calendar)
    return redirect("project_settings", project.pk)


def _try_action(form: forms.Form, action: Callable[[], object]) -> bool:
    """Run the action; return False and add a form error if it was refused."""
    try:
        action()
    except NotAllowed:
        raise
    except CatHerderError as error:
        form.is_valid()
        if isinstance(error, BadInput) and error.where in form.fields:
            form.add_error(error.where, f"{error.message}.")
        else:
            form.add_error(None, str(error))
        return False
    return True


def _may_change(request: HttpRequest, project: Project) -> bool:
    return may_maintain(principal_of(request), project)


def _render_page(request: HttpRequest, project: Project, *, status: int = 200, **given: Any) -> HttpResponse:
    """Render the page; `given` are submitted forms with errors."""
    entries = AuditEntry.objects.filter(project=project, action=Action.SETTINGS_CHANGED)
    context: dict[str, Any] = {
        "project": project,
        "may_change": _may_change(request, project),
        "may_move": _may_move(request),
        "calendar": Calendar.objects.filter(project=project).exclude(source="").first(),
        "source_form": SourceForm(initial={"source": project.source}),
        "branch_form": BranchForm(initial={"branch": project.branch}, branches=_branches(project)),
        "changes": [Change(one.at, one.actor_name, _what(one.detail)) for one in entries[:_CHANGES]],
        **_setting_rows(project, given.pop("form", None)),
        **given,
    }
    if context["may_change"]:
        context["lost"] = _what_is_removed(project)
    return render(request, "projects/settings.html", context, status=status)


def _setting_rows(project: Project, form: ProjectSettingsForm | None) -> dict[str, Any]:
    """Return the rows of settings, or why there are none."""
    try:
        head = at_head(project)
        config = load_project_config(head.text, where=CONFIG_FILE)
    except ConfigInvalid as error:
        return {"trouble": str(error), "broken": True}
    except CatHerderError as error:
        return {"trouble": str(error)}
    stored = Project.objects.get(pk=project.pk)  # without what a refused change has set
    form = form or ProjectSettingsForm(
        initial=ProjectSettingsForm.initial_values(overrides_of(stored)), config=config
    )
    rows = [Row(one, form[one.setting.name]) for one in settings_in_effect(stored, head.text)]
    return {"form": form, "rows": rows, "head": head}


def _branches(project: Project) -> list[str]:
    try:
        branches = paths.repository(project).branches()[:_BRANCHES]
    except CatHerderError:
        branches = ()
    # Branches of tasks are not for other tasks to start from.
    own = [one for one in branches if not one.startswith("cat-herder/") or one == project.branch]
    if project.branch not in own:
        own.insert(0, project.branch)
    return own


def _what(detail: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the label, the old and the new value of each change."""
    changed = detail.get("changed")
    if not isinstance(changed, dict):
        return []
    found = []
    for name, pair in changed.items():
        label = str(_OTHER_LABELS.get(name) or name)
        in_words: Callable[[Any], str] = value_in_words
        if name in SETTINGS:
            label, in_words = SETTINGS[name].label, SETTINGS[name].kind.in_words
        if isinstance(pair, list) and len(pair) == 2:
            found.append((label, in_words(pair[0]) or NO_OVERRIDE, in_words(pair[1]) or NO_OVERRIDE))
    return found


def _what_is_removed(project: Project) -> dict[str, int]:
    """Count the rows that are deleted with the project."""
    return {
        "tasks": project.tasks.count(),
        "sequences": project.sequences.count(),
        "open": project.tasks.filter(questions__state=QuestionState.OPEN).distinct().count(),
        "members": project.memberships.count(),
    }
