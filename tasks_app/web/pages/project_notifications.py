"""A project's notifications: webhooks, chats and the delivery log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.core.errors import BadInput
from tasks_app.models import TASK_EVENT_TYPES, Delivery, DeliveryState, EventType, Project, Target
from tasks_app.notifications.targets import (
    MANAGE_NOTIFICATIONS,
    add_target,
    change_target,
    remove_target,
    renew_secret,
    send_again,
    try_target,
)
from tasks_app.permissions import may_maintain, require_maintainer
from tasks_app.web.forms.notifications import NewTargetForm, TargetForm
from tasks_app.web.pages.access import is_htmx, principal_of, project_or_404
from tasks_app.web.pages.actions import run_if_allowed

LOGGED = 25
#: What the form for another target begins with.
_FIRST = {"event_types": [EventType.QUESTION, EventType.FAILED], "medium": "webhook"}


@require_http_methods(["GET", "POST"])
def project_notifications(request: HttpRequest, project_id: int) -> HttpResponse:
    """The list of targets and the log; a POST adds a target."""
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project, NewTargetForm(initial=_FIRST))
    run_if_allowed(lambda: require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS))
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
    page = Paginator(related, LOGGED).get_page(request.GET.get("page"))
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
    template = "projects/_deliveries.html" if is_htmx(request) else "projects/notifications.html"
    return render(request, template, context, status=status)


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

    def change() -> None:
        change_target(
            target,
            name=given["name"],
            event_types=given["event_types"],
            active=given["active"],
            by=principal_of(request),
        )

    return _act_and_return(request, target, change, f"Saved: {given['name']}.")


@require_POST
def target_secret(request: HttpRequest, project_id: int, target_id: int) -> HttpResponse:
    """Replace the secret and show it on this page: a redirect would have to store it."""
    target = _target_or_404(request, project_id, target_id)
    try:
        secret = renew_secret(target, by=principal_of(request))
    except BadInput as error:
        return _act_and_return(request, target, lambda: None, str(error), failed=True)
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
    run_if_allowed(lambda: require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS))
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
    run_if_allowed(lambda: require_maintainer(principal_of(request), project, MANAGE_NOTIFICATIONS))
    return get_object_or_404(Target.objects.select_related("project"), project=project, pk=target_id)


def _act_and_return(
    request: HttpRequest, target: Target, act: Callable[[], object], said: str, *, failed: bool = False
) -> HttpResponse:
    """Do it and go back to the list, with a sentence."""
    try:
        run_if_allowed(act)
        (messages.error if failed else messages.success)(request, said)
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_notifications", target.project_id)
