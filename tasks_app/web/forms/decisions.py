"""The form of a decision: its statement, its reason, and where it holds."""

from __future__ import annotations

from typing import Any

from django import forms

from tasks_app.config.decision_files import MAX_REASON, MAX_STATEMENT
from tasks_app.core.errors import BadInput
from tasks_app.models import Decision, DecisionScope
from tasks_app.services.decisions.content import DecisionContent

_SCOPES = [
    (DecisionScope.PROJECT.value, "The whole project"),
    (DecisionScope.PATHS.value, "These paths"),
    (DecisionScope.STEP.value, "One step"),
]


class DecisionForm(forms.Form):
    """What a decision says. After `is_valid()`, `content` is what the service takes."""

    statement = forms.CharField(max_length=MAX_STATEMENT, widget=forms.Textarea({"rows": 3}))
    reason = forms.CharField(max_length=MAX_REASON, required=False, widget=forms.Textarea({"rows": 3}))
    scope = forms.ChoiceField(choices=_SCOPES, initial=DecisionScope.PROJECT, widget=forms.RadioSelect)
    paths = forms.CharField(
        max_length=20_000,
        required=False,
        widget=forms.Textarea({"rows": 2, "placeholder": "src/billing/**", "spellcheck": "false"}),
    )
    step = forms.CharField(max_length=100, required=False, widget=forms.TextInput({"autocomplete": "off"}))
    review_after = forms.DateField(
        required=False,
        widget=forms.DateInput({"type": "date"}, format="%Y-%m-%d"),
        error_messages={"invalid": "Enter a day such as 2027-01-31."},
    )

    content: DecisionContent

    @classmethod
    def of(cls, decision: Decision) -> DecisionForm:
        """Return the form filled with what a decision says."""
        return cls(
            initial={
                "statement": decision.statement,
                "reason": decision.reason,
                "scope": decision.scope,
                "paths": "\n".join(decision.paths),
                "step": decision.step,
                "review_after": None if decision.is_due else decision.review_after,
            }
        )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            content = DecisionContent(**{**given, "paths": tuple(given["paths"].splitlines())})
            try:
                self.content = content.checked()
            except BadInput as error:
                self.add_refusal(error)
        return given

    def add_refusal(self, error: Exception) -> None:
        """Show what a service refuses, beside its field if it names one."""
        where, text = (error.where, error.message) if isinstance(error, BadInput) else ("", str(error))
        field = where if where in self.fields else None
        self.add_error(field, text[:1].upper() + text[1:])
