"""The forms for personal notifications and for a project's webhooks and chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.forms import BoundField

from tasks_app.models import OCCASIONS, Digest, Medium, Preferences, Project, ProjectSelection, TaskSelection
from tasks_app.notifications.personal_channels import MEDIA, NotificationSettings
from tasks_app.notifications.project_channels import NewTarget
from tasks_app.notifications.timing import time_zone_names
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.web.forms.projects_field import ProjectsField

_MAX_URL_LENGTH = 1000


class _TimeInput(forms.TimeInput):
    input_type = "time"

    def __init__(self) -> None:
        super().__init__(format="%H:%M")


class PreferencesForm(forms.Form):
    """A user's preferences, with a field `wish-OCCASION-MEDIUM` for each pair."""

    reach = forms.ChoiceField(choices=ProjectSelection, widget=forms.RadioSelect)
    projects = ProjectsField(Project.objects.none(), required=False, widget=forms.CheckboxSelectMultiple)
    quiet_from = forms.TimeField(required=False, widget=_TimeInput())
    quiet_until = forms.TimeField(required=False, widget=_TimeInput())
    time_zone = forms.ChoiceField()
    digest = forms.ChoiceField(choices=Digest, widget=forms.RadioSelect)
    digest_at = forms.TimeField(required=False, widget=_TimeInput())
    chat = forms.CharField(
        required=False, max_length=_MAX_URL_LENGTH, widget=forms.TextInput({"autocomplete": "off"})
    )
    forget_chat = forms.BooleanField(required=False)

    def __init__(self, given: Any, *, principal: Principal, preferences: Preferences) -> None:
        super().__init__(given, initial=_initial_values(preferences))
        projects = self.fields["projects"]
        assert isinstance(projects, forms.ModelMultipleChoiceField)  # noqa: S101 (for the type checker)
        projects.queryset = projects_visible_to(principal).distinct().order_by("name")
        # pages.js selects the browser's time zone for users who have not saved preferences yet.
        attributes: dict[str, str] = (
            {"data-browser-time-zone": ""} if given is None and preferences.pk is None else {}
        )
        self.fields["time_zone"] = forms.ChoiceField(
            choices=[(name, name) for name in time_zone_names()], widget=forms.Select(attributes)
        )
        for occasion in OCCASIONS:
            for medium in MEDIA:
                self.fields[_wish_field(occasion, medium)] = forms.ChoiceField(
                    choices=TaskSelection,
                    initial=preferences.extent(occasion, medium),
                    label=f"{medium.label}, when {occasion.label}",
                    widget=forms.Select({"aria-label": f"{medium.label}, when {occasion.label}"}),
                )

    def rows(self) -> Iterator[tuple[str, list[tuple[str, BoundField]]]]:
        """The rows of the table: the label of an event, and for each medium its label and field."""
        for occasion in OCCASIONS:
            yield (
                str(occasion.label),
                [(str(medium.label), self[_wish_field(occasion, medium)]) for medium in MEDIA],
            )

    def choice(self) -> NotificationSettings:
        given = self.cleaned_data
        return NotificationSettings(
            wishes={one: {medium: given[_wish_field(one, medium)] for medium in MEDIA} for one in OCCASIONS},
            reach=given["reach"],
            projects=given["projects"],
            time_zone=given["time_zone"],
            quiet_from=given["quiet_from"],
            quiet_until=given["quiet_until"],
            digest=given["digest"],
            digest_at=given["digest_at"],
            chat=given["chat"],
            forget_chat=given["forget_chat"],
        )


def _wish_field(occasion: str, medium: str) -> str:
    return f"wish-{occasion}-{medium}"


def _initial_values(preferences: Preferences) -> dict[str, Any]:
    names = ("reach", "quiet_from", "quiet_until", "time_zone", "digest", "digest_at")
    chosen = list(preferences.projects.values_list("pk", flat=True)) if preferences.pk else []
    return {**{name: getattr(preferences, name) for name in names}, "projects": chosen}


class TargetForm(forms.Form):
    """What can be changed of a webhook or chat of a project."""

    name = forms.CharField(max_length=60)
    occasions = forms.MultipleChoiceField(
        choices=[(one.value, one.label) for one in OCCASIONS],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Select at least one."},
    )
    active = forms.BooleanField(required=False)


class NewTargetForm(TargetForm):
    medium = forms.ChoiceField(
        choices=[(Medium.WEBHOOK, "webhook"), (Medium.CHAT, "chat")], widget=forms.RadioSelect
    )
    address = forms.CharField(
        max_length=_MAX_URL_LENGTH, widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"})
    )
    active = None  # type: ignore[assignment]

    field_order = ["medium", "name", "address", "occasions"]

    def new_target(self) -> NewTarget:
        given = self.cleaned_data
        return NewTarget(given["medium"], given["name"], given["address"], given["occasions"])
