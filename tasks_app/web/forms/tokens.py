"""The form for a new API token."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from tasks_app.models import Project, Scope
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.web.forms.projects_field import ProjectsField

NEVER = "never"
LIFETIMES = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "one year", NEVER: "never"}


class NewTokenForm(forms.Form):
    """The name, scopes, projects and lifetime of a token."""

    name = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "nightly build"})
    )
    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=[Scope.READ],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Select at least one scope."},
    )
    expires = forms.ChoiceField(choices=list(LIFETIMES.items()), initial="90")
    projects = ProjectsField(
        Project.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "There is no such project, or you cannot see it."},
    )

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["projects"]
        assert isinstance(field, forms.ModelMultipleChoiceField)  # noqa: S101 (for the type checker)
        field.queryset = projects_visible_to(principal)

    @property
    def chosen_scopes(self) -> list[Scope]:
        return [Scope(value) for value in self.cleaned_data["scopes"]]

    @property
    def chosen_projects(self) -> Collection[Project] | None:
        """The selected projects; None for all projects, including future ones."""
        return list(self.cleaned_data["projects"]) or None

    @property
    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["expires"]
        return None if days == NEVER else timezone.now() + timedelta(days=int(days))
