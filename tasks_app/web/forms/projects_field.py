"""A form field to select projects."""

from __future__ import annotations

from typing import Any

from django import forms

#: Digits of a number that every database can look up.
_MAX_DIGITS = 18


class ProjectsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Rejects ids that are too large for the database, for which Django would fail."""

    def clean(self, value: Any) -> Any:
        for one in value or ():
            if len(str(one)) > _MAX_DIGITS:
                raise forms.ValidationError(
                    self.error_messages["invalid_choice"],
                    code="invalid_choice",
                    params={"value": str(one)[:40]},
                )
        return super().clean(value)
