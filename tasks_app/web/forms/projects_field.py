"""The field in which one chooses among projects."""

from __future__ import annotations

from typing import Any

from django import forms

#: Digits of a number that every database can look up.
_LONGEST = 18


class ProjectsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """A number that no row can have is a project that there is not, where Django would fail."""

    def clean(self, value: Any) -> Any:
        for one in value or ():
            if len(str(one)) > _LONGEST:
                raise forms.ValidationError(
                    self.error_messages["invalid_choice"],
                    code="invalid_choice",
                    params={"value": str(one)[:40]},
                )
        return super().clean(value)
