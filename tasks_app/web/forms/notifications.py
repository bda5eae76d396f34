"""The forms for personal notifications and for a project's webhooks and chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.forms import BoundField

from tasks_app.models import (
    TASK_EVENT_TYPES,
    Digest,
    Medium,
    Preferences,
    Project,
    ProjectSelection,
    TaskSelection,
)
from tasks_app.notifications.preferences import MEDIA, NotificationSettings
from tasks_app.notifications.targets import NewTarget
from tasks_app.notifications.timing import time_zone_names
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.web.forms.projects_field import ProjectsField

_MAX_URL_LENGTH = 1000


class _TimeInput(forms.TimeInput):
    input_type = "time"

    def __init__(self) -> None:
        super().__init__(format="%H:%M")


class PreferencesForm(forms.Form):
    """A user's preferences, with a field `subscription-EVENT_TYPE-MEDIUM` for each pair."""

    project_selection = forms.ChoiceField(choices=ProjectSelection, widget=forms.RadioSelect)
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
        # pages.js selects the browser's time zone for users who have not saved preferences or a zone yet.
        is_new = given is None and preferences.pk is None and not preferences.user.time_zone
        attributes: dict[str, str] = {"data-browser-time-zone": ""} if is_new else {}
        self.fields["time_zone"] = forms.ChoiceField(
            choices=[(name, name) for name in time_zone_names()], widget=forms.Select(attributes)
        )
        for event_type in TASK_EVENT_TYPES:
            for medium in MEDIA:
                self.fields[_subscription_field(event_type, medium)] = forms.ChoiceField(
                    choices=TaskSelection,
                    initial=preferences.selected_tasks(event_type, medium),
                    label=f"{medium.label}, when {event_type.label}",
                    widget=forms.Select({"aria-label": f"{medium.label}, when {event_type.label}"}),
                )

    def rows(self) -> Iterator[tuple[str, list[tuple[str, BoundField]]]]:
        """The rows of the table: the label of an event, and for each medium its label and field."""
        for event_type in TASK_EVENT_TYPES:
            yield (
                str(event_type.label),
                [(str(medium.label), self[_subscription_field(event_type, medium)]) for medium in MEDIA],
            )

    def choice(self) -> NotificationSettings:
        given = self.cleaned_data
        return NotificationSettings(
            subscriptions={
                one: {medium: given[_subscription_field(one, medium)] for medium in MEDIA}
                for one in TASK_EVENT_TYPES
            },
            project_selection=given["project_selection"],
            projects=given["projects"],
            time_zone=given["time_zone"],
            quiet_from=given["quiet_from"],
            quiet_until=given["quiet_until"],
            digest=given["digest"],
            digest_at=given["digest_at"],
            chat=given["chat"],
            forget_chat=given["forget_chat"],
        )


def _subscription_field(event_type: str, medium: str) -> str:
    return f"subscription-{event_type}-{medium}"


def _initial_values(preferences: Preferences) -> dict[str, Any]:
    names = ("project_selection", "quiet_from", "quiet_until", "time_zone", "digest", "digest_at")
    chosen = list(preferences.projects.values_list("pk", flat=True)) if preferences.pk else []
    return {**{name: getattr(preferences, name) for name in names}, "projects": chosen}


class TargetForm(forms.Form):
    """What can be changed of a webhook or chat of a project."""

    name = forms.CharField(max_length=60)
    event_types = forms.MultipleChoiceField(
        choices=[(one.value, one.label) for one in TASK_EVENT_TYPES],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Select at least one."},
    )
    active = forms.BooleanField(required=False)


class NewTargetForm(TargetForm):
    medium = forms.ChoiceField(
        choices=[(Medium.WEBHOOK, "webhook"), (Medium.CHAT, "chat")], widget=forms.RadioSelect
    )
    url = forms.CharField(
        max_length=_MAX_URL_LENGTH, widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"})
    )
    active = None  # type: ignore[assignment]

    field_order = ["medium", "name", "url", "event_types"]

    def new_target(self) -> NewTarget:
        given = self.cleaned_data
        return NewTarget(given["medium"], given["name"], given["url"], given["event_types"])
