"""Notices, and the pages of notifications of a person and of a project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.forms import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.core.errors import BadInput
from tasks_app.core.time_zones import time_zone_names
from tasks_app.models import (
    TASK_EVENT_TYPES,
    Delivery,
    DeliveryState,
    Digest,
    EventType,
    Medium,
    Notice,
    Preferences,
    Project,
    ProjectSelection,
    PushSubscription,
    Target,
    TaskSelection,
)
from tasks_app.notifications.preferences import (
    MEDIA,
    NotificationSettings,
    mark_read,
    preferences_of,
    save_preferences,
)
from tasks_app.notifications.targets import (
    MANAGE_NOTIFICATIONS,
    NewTarget,
    add_target,
    change_target,
    remove_target,
    renew_secret,
    send_again,
    try_target,
)
from tasks_app.notifications.web_push import application_server_key
from tasks_app.permissions import (
    Principal,
    may_maintain,
    notices_visible_to,
    projects_visible_to,
    require_maintainer,
)
from tasks_app.web.access import (
    ProjectsField,
    TimeInput,
    number_from,
    principal_of,
    project_or_404,
    render_part_or_page,
)

_MAX_URL_LENGTH = 1000


class PreferencesForm(forms.Form):
    """A user's preferences, with a field `subscription-EVENT_TYPE-MEDIUM` for each pair."""

    project_selection = forms.ChoiceField(choices=ProjectSelection, widget=forms.RadioSelect)
    projects = ProjectsField(Project.objects.none(), required=False, widget=forms.CheckboxSelectMultiple)
    quiet_from = forms.TimeField(required=False, widget=TimeInput())
    quiet_until = forms.TimeField(required=False, widget=TimeInput())
    time_zone = forms.ChoiceField()
    digest = forms.ChoiceField(choices=Digest, widget=forms.RadioSelect)
    digest_at = forms.TimeField(required=False, widget=TimeInput())
    chat = forms.CharField(
        required=False,
        max_length=_MAX_URL_LENGTH,
        widget=forms.TextInput({"autocomplete": "off", "data-secret": True}),
    )
    forget_chat = forms.BooleanField(required=False)

    def __init__(self, given: Any, *, principal: Principal, preferences: Preferences) -> None:
        names = ("project_selection", "quiet_from", "quiet_until", "time_zone", "digest", "digest_at")
        initial: dict[str, Any] = {name: getattr(preferences, name) for name in names}
        if preferences.pk:
            initial["projects"] = list(preferences.projects.values_list("pk", flat=True))
        super().__init__(given, initial=initial)
        projects = self.fields["projects"]
        assert isinstance(projects, forms.ModelMultipleChoiceField)  # noqa: S101 (for the type checker)
        projects.queryset = projects_visible_to(principal).distinct().order_by("name")
        # pages.js selects the browser's time zone for users who have not saved preferences or a zone yet.
        attributes: dict[str, str] = {}
        if given is None and preferences.pk is None and not preferences.user.time_zone:
            attributes["data-browser-time-zone"] = ""
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


class TargetForm(forms.Form):
    """The editable fields of a webhook or chat of a project."""

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
        max_length=_MAX_URL_LENGTH,
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false", "data-secret": True}),
    )
    active = None  # type: ignore[assignment]

    field_order = ["medium", "name", "url", "event_types"]

    def new_target(self) -> NewTarget:
        given = self.cleaned_data
        return NewTarget(given["medium"], given["name"], given["url"], given["event_types"])


LOGGED_OF_PERSON = 15


@require_http_methods(["GET", "POST"])
def me_notifications(request: HttpRequest) -> HttpResponse:
    principal = principal_of(request)
    given = request.POST if request.method == "POST" else None
    form = PreferencesForm(given, principal=principal, preferences=preferences_of(principal.user))
    if given is not None and form.is_valid():
        try:
            save_preferences(principal, form.choice())
        except BadInput as error:
            form.add_error(error.where if error.where in form.fields else "chat", error.message)
        else:
            messages.success(request, "Saved.")
            return redirect("me_notifications")
    user = principal.user
    deliveries = Delivery.objects.filter(Q(user=user) | Q(target__user=user) | Q(browser__user=user))
    deliveries = deliveries.select_related("target", "transition__task__project").order_by("-pk")
    context = {
        "form": form,
        "chat": Target.objects.filter(user=user).first(),
        "sends_email": settings.SENDS_EMAIL,
        "deliveries": deliveries[:LOGGED_OF_PERSON],
        "browsers": PushSubscription.objects.filter(user=user),
        "push_key": application_server_key(),
    }
    return render(request, "notifications/own_settings.html", context, status=400 if form.errors else 200)


@require_POST
def me_notifications_test(request: HttpRequest) -> HttpResponse:
    """Queue a test, which the worker sends; the log shows its outcome."""
    principal = principal_of(request)
    try:
        try_target(get_object_or_404(Target, user=principal.user), by=principal)
        messages.success(request, "A test is being sent. The delivery log below shows the result.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("me_notifications")


LOGGED_OF_PROJECT = 25
#: What the form for another target begins with.
_FIRST = {"event_types": [EventType.QUESTION, EventType.FAILED], "medium": "webhook"}


@require_http_methods(["GET", "POST"])
def project_notifications(request: HttpRequest, project_id: int) -> HttpResponse:
    """The list of targets and the log; a POST adds a target."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project, NewTargetForm(initial=_FIRST))
    require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS)
    form = NewTargetForm(request.POST)
    if not form.is_valid():
        return _render_page(request, project, form, status=400)
    try:
        target, secret = add_target(project, form.new_target(), by=principal_of(request))
    except BadInput as error:
        form.add_error("url", error.message)
        return _render_page(request, project, form, status=400)
    messages.success(request, f"Added: {target}.")
    if not secret:
        return redirect("project_notifications", project.pk)
    return _render_page(request, project, NewTargetForm(initial=_FIRST), secret=secret, added=target)


def _render_page(
    request: HttpRequest,
    project: Project,
    form: NewTargetForm,
    *,
    status: int = 200,
    secret: str = "",
    added: Target | None = None,
    edited: Mapping[Target, TargetForm] = MappingProxyType({}),
) -> HttpResponse:
    """Render the page; `edited` is a form with errors."""
    deliveries = Delivery.objects.filter(target__project=project).order_by("-pk")
    related = deliveries.with_events("task").select_related("target")
    page = Paginator(related, LOGGED_OF_PROJECT).get_page(request.GET.get("page"))
    context = {
        "project": project,
        "form": form,
        "secret": secret,
        "added": added,
        "rows": [(one, edited.get(one) or _form_of(one)) for one in Target.objects.filter(project=project)],
        "event_types": TASK_EVENT_TYPES,
        "page": page,
        "something_waits": any(delivery.state == DeliveryState.WAITING for delivery in page),
        "may_change": may_maintain(principal_of(request), project),
    }
    part, page_template = "notifications/_deliveries.html", "notifications/project_settings.html"
    return render_part_or_page(request, part, page_template, context, status=status)


def _form_of(target: Target) -> TargetForm:
    holds = {"name": target.name, "event_types": target.event_types, "active": target.active}
    return TargetForm(initial=holds, auto_id=_ids_of(target))


def _ids_of(target: Target) -> str:
    """Return a unique prefix for the form of each target."""
    return f"target-{target.pk}-%s"


@require_POST
def target_change(request: HttpRequest, project_id: int, target_id: int) -> HttpResponse:
    target = _target_or_404(request, project_id, target_id)
    form = TargetForm(request.POST, auto_id=_ids_of(target))
    if not form.is_valid():
        project = project_or_404(request, project_id)
        return _render_page(
            request, project, NewTargetForm(initial=_FIRST), edited={target: form}, status=400
        )
    given = form.cleaned_data

    change = partial(change_target, target, **given, by=principal_of(request))
    return _act_and_return(request, target, change, f"Saved: {given['name']}.")


@require_POST
def target_secret(request: HttpRequest, project_id: int, target_id: int) -> HttpResponse:
    """Replace the secret and show it on this page: a redirect would have to store it."""
    target = _target_or_404(request, project_id, target_id)
    try:
        secret = renew_secret(target, by=principal_of(request))
    except BadInput as error:
        messages.error(request, str(error))
        return redirect("project_notifications", target.project_id)
    return _render_page(request, target.project, NewTargetForm(initial=_FIRST), secret=secret, added=target)  # type: ignore[arg-type]


@require_POST
def target_remove(request: HttpRequest, project_id: int, target_id: int) -> HttpResponse:
    target = _target_or_404(request, project_id, target_id)
    return _act_and_return(
        request, target, lambda: remove_target(target, by=principal_of(request)), f"Removed: {target}."
    )


@require_POST
def target_test(request: HttpRequest, project_id: int, target_id: int) -> HttpResponse:
    target = _target_or_404(request, project_id, target_id)
    said = f"A test to {target} is being sent. The delivery log shows the result."
    return _act_and_return(request, target, lambda: try_target(target, by=principal_of(request)), said)


@require_POST
def delivery_retry(request: HttpRequest, project_id: int, delivery_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS)
    deliveries = Delivery.objects.filter(target__project=project).select_related("target__project")
    delivery = get_object_or_404(deliveries, pk=delivery_id)
    assert delivery.target  # noqa: S101 (the filter)
    again = f"Sending to {delivery.target} again."
    return _act_and_return(
        request, delivery.target, lambda: send_again(delivery, by=principal_of(request)), again
    )


def _target_or_404(request: HttpRequest, project_id: int, target_id: int) -> Target:
    """Return the target. Checks for maintainers first."""
    project = project_or_404(request, project_id)
    require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS)
    return get_object_or_404(Target.objects.select_related("project"), project=project, pk=target_id)


def _act_and_return(
    request: HttpRequest, target: Target, act: Callable[[], object], said: str
) -> HttpResponse:
    """Do it and go back to the list, with a sentence."""
    try:
        act()
        messages.success(request, said)
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_notifications", target.project_id)


PER_PAGE = 50
#: A page that was away for long gets no more toasts than that; the bell counts them all.
MOST_TOASTS = 3


def notices(request: HttpRequest) -> HttpResponse:
    """List the notices, with those first that the bell counts. HTMX gets the list alone."""
    shown = notices_visible_to(principal_of(request)).counted_first()
    rows = shown.select_related("task__project").defer("task__text")
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {"page": page, "has_unread": any(notice.is_unread for notice in page)}
    return render_part_or_page(request, "notifications/_list.html", "notifications/page.html", context)


@require_POST
def notices_read(request: HttpRequest) -> HttpResponse:
    """Mark one notice (`notice=N`) or all as read."""
    given = request.POST.get("notice", "")
    number = number_from(given)
    if given and number is None:
        return redirect("notices")
    mark_read(principal_of(request), number)
    return HttpResponse(status=204) if request.POST.get("quietly") else redirect("notices")


def fresh(request: HttpRequest) -> QuerySet[Notice] | list[Notice]:
    """Return urgent notices after the one that the page knows, for toasts."""
    after = number_from(request.GET.get("after", ""))
    if after is None:
        return []
    news = notices_visible_to(principal_of(request)).urgent().filter(pk__gt=after)
    return news.select_related("task__project").order_by("-pk")[:MOST_TOASTS]
