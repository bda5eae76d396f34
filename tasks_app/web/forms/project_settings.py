"""The forms of a project's settings: overrides of cat-herder.yaml, source and branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from tasks_app.config.fields import duration_text, model_name, seconds_from_text
from tasks_app.config.pipeline import NETWORKS, ProjectConfig
from tasks_app.core.errors import BadInput
from tasks_app.services.settings import Overrides, patterns_in
from tasks_app.web.forms.new_task import LEVELS

_FLAG_VALUES = {"": None, "yes": True, "no": False}
_FLAG_CHOICES = {True: "yes", False: "no", None: ""}
#: The choice that leaves a setting to cat-herder.yaml.
NO_OVERRIDE = "no override"

FLAGS = ("wait_for_reset", "auto_commit", "publish_plan", "manage_git_branch")
DURATIONS = ("step_timeout", "check_timeout")


class DurationField(forms.CharField):
    """Seconds, entered as `90s`, `15m` or `2h`; None if left empty."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=20, **kwargs)

    def clean(self, value: Any) -> int | None:
        text = str(super().clean(value))
        try:
            return seconds_from_text(text) if text else None
        except BadInput as error:
            raise forms.ValidationError(f"It {error}.") from None

    def prepare_value(self, value: Any) -> Any:
        return duration_text(value) if isinstance(value, int) else value


def _flag_field() -> forms.ChoiceField:
    return forms.ChoiceField(required=False, choices=[("", NO_OVERRIDE), ("yes", "yes"), ("no", "no")])


class ProjectSettingsForm(forms.Form):
    """The overrides. An empty field leaves the setting to cat-herder.yaml."""

    threshold = forms.TypedChoiceField(
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", NO_OVERRIDE), *((str(level), f"{level}: {text}") for level, text in LEVELS.items())],
    )
    default_pipeline = forms.ChoiceField(required=False)
    model = forms.CharField(required=False, max_length=100)
    wait_for_reset = _flag_field()
    auto_commit = _flag_field()
    publish_plan = _flag_field()
    manage_git_branch = _flag_field()
    network = forms.ChoiceField(
        required=False, choices=[("", NO_OVERRIDE), *((one, one) for one in reversed(NETWORKS))]
    )
    max_turns = forms.IntegerField(required=False, min_value=1, max_value=1_000_000)
    max_cost_usd = forms.FloatField(required=False, min_value=0.01, max_value=1_000_000)
    step_timeout = DurationField()
    check_timeout = DurationField()
    ask_before = forms.CharField(
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "machine"}),
    )

    def __init__(self, *args: Any, config: ProjectConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["default_pipeline"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [("", NO_OVERRIDE), *((one.name, one.name) for one in config.pipelines)]
        for name, one in self.fields.items():
            one.widget.attrs["aria-describedby"] = f"{name}-hint"
            if not isinstance(one, forms.ChoiceField):
                one.widget.attrs["placeholder"] = NO_OVERRIDE
                one.widget.attrs["autocomplete"] = "off"

    def clean_model(self) -> str:
        name = str(self.cleaned_data["model"])
        try:
            return model_name(name) if name else ""
        except BadInput as error:
            raise forms.ValidationError(f"It {error}.") from None

    def clean_ask_before(self) -> str:
        given: str = self.cleaned_data["ask_before"].replace("\r\n", "\n").strip()
        try:
            patterns_in(given, typed=True)
        except BadInput as error:
            raise forms.ValidationError(f"{error.message[0].upper()}{error.message[1:]}.") from None
        return given

    @staticmethod
    def initial_values(overrides: Overrides) -> dict[str, Any]:
        values = {name: getattr(overrides, name) for name in Overrides.__dataclass_fields__}
        return values | {name: _FLAG_CHOICES[values[name]] for name in FLAGS}

    def overrides(self) -> Overrides:
        given = self.cleaned_data
        return Overrides(**(given | {name: _FLAG_VALUES[given[name]] for name in FLAGS}))


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
