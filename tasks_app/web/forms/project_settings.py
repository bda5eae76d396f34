"""The forms of a project's settings: overrides of cat-herder.yaml, source and branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from tasks_app.config.pipeline import ProjectConfig
from tasks_app.config.project_settings import SETTINGS, Overrides
from tasks_app.config.setting import Choices, Setting
from tasks_app.core.errors import BadInput

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
            sentence = error.message if error.where else f"it {error.message}"
            raise forms.ValidationError(f"{sentence[0].upper()}{sentence[1:]}.") from None

    def prepare_value(self, value: Any) -> Any:
        return value if value is None or isinstance(value, str) else self.setting.kind.as_text(value)

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
