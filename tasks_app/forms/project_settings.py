"""The form for what the portal says instead of a repository's cat-herder.yaml."""

from __future__ import annotations

from typing import Any

from django import forms

from tasks_app.actions.settings import Overrides
from tasks_app.config.pipeline import ProjectConfig
from tasks_app.forms.new_task import LEVELS

_YES_OR_NO = {"": None, "yes": True, "no": False}


def _word(value: bool) -> str:
    return "yes" if value else "no"


class ProjectSettingsForm(forms.Form):
    """Every field has a first choice that leaves the setting to the repository, and says what that is."""

    threshold = forms.TypedChoiceField(required=False, coerce=int, empty_value=None)
    default_pipeline = forms.ChoiceField(required=False)
    model = forms.CharField(required=False, max_length=100)
    wait_for_reset = forms.ChoiceField(required=False)
    auto_commit = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, config: ProjectConfig, installation: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        said = config.interaction_threshold
        holds = f"cat-herder.yaml: {said}" if said is not None else f"the installation: {installation}"
        first = config.default_pipeline or config.pipelines[0].name
        pipelines = [(pipeline.name, pipeline.name) for pipeline in config.pipelines]
        self._choose("threshold", holds, [(str(level), f"{level}: {text}") for level, text in LEVELS.items()])
        self._choose("default_pipeline", f"cat-herder.yaml: {first}", pipelines)
        for name, value in (
            ("wait_for_reset", config.wait_for_rate_limit_reset),
            ("auto_commit", config.auto_commit),
        ):
            self._choose(name, f"cat-herder.yaml: {_word(value)}", [("yes", "yes"), ("no", "no")])
        self.fields["model"].widget.attrs["placeholder"] = (
            f"as cat-herder.yaml: {config.model or 'the default'}"
        )

    def _choose(self, name: str, without: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [("", f"as {without}"), *choices]

    @staticmethod
    def initial_of(overrides: Overrides) -> dict[str, Any]:
        words = {True: "yes", False: "no", None: ""}
        return {
            "threshold": "" if overrides.threshold is None else overrides.threshold,
            "default_pipeline": overrides.default_pipeline,
            "model": overrides.model,
            "wait_for_reset": words[overrides.wait_for_reset],
            "auto_commit": words[overrides.auto_commit],
        }

    def overrides(self) -> Overrides:
        given = self.cleaned_data
        return Overrides(
            threshold=given["threshold"],
            default_pipeline=given["default_pipeline"],
            model=given["model"].strip(),
            wait_for_reset=_YES_OR_NO[given["wait_for_reset"]],
            auto_commit=_YES_OR_NO[given["auto_commit"]],
        )
