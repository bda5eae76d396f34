"""The form for a new task."""

from __future__ import annotations

from typing import Any

from django import forms

from tasks_app.config.threshold import LEVELS
from tasks_app.models import Project
from tasks_app.permissions import Principal, projects_actable_by

#: Form fields that are also keys of the front matter.
FRONT_MATTER_KEYS = {
    "title": "title",
    "pipeline": "pipeline",
    "threshold": "interactionThreshold",
    "model": "model",
    "resume": "resume",
    "priority": "priority",
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
    file = forms.CharField(required=False, max_length=300, widget=forms.HiddenInput)
    form_key = forms.RegexField("^[0-9a-f-]{36}$", required=False, max_length=40, widget=forms.HiddenInput)

    def front_matter(self) -> dict[str, Any]:
        """The options that were chosen next to the text, under their front matter keys."""
        given = {key: self.cleaned_data.get(name) for name, key in FRONT_MATTER_KEYS.items()}
        return {key: value for key, value in given.items() if value not in (None, "")}

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
        """Whether a sequence is to be created instead of a task."""
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
