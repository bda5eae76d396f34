"""The installation: its workers, people and settings. The audit log has a module of its own."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Prefetch, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from tasks_app.core.environment import Environment
from tasks_app.core.environment_values import MailServer
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import CANCELLABLE
from tasks_app.models import Invitation, Membership, User
from tasks_app.permissions import projects_visible_to, require_site_admin
from tasks_app.services.accounts import set_active, set_budget
from tasks_app.services.usage.cost_limits import budgets_of_people
from tasks_app.services.workers.queue import Queue
from tasks_app.web.access import principal_of, render_part_or_page

PER_PAGE = 50
_SECRETS = ("password", "secret", "token", "key", "database_url", "redis_url", "headers")
#: A user and a password in an address.
_LOGIN = re.compile(r"//[^/@\s]*@")


@require_GET
def workers(request: HttpRequest) -> HttpResponse:
    """List the workers that were heard of lately. HTMX gets only the list."""
    part, page = "installation/_workers.html", "installation/workers.html"
    return render_part_or_page(request, part, page, {"queue": Queue()})


class PersonForm(forms.Form):
    """What a site admin changes of one person; `active` is a button."""

    user = forms.ModelChoiceField(User.objects.all())
    budget = forms.FloatField(required=False, min_value=0)
    active = forms.ChoiceField(choices=[("yes", "yes"), ("no", "no")], required=False)


@require_http_methods(["GET", "POST"])
def people(request: HttpRequest) -> HttpResponse:
    """List people with their roles and budgets, and who was invited; a POST changes one of them."""
    principal = principal_of(request)
    require_site_admin(principal, "see all people")
    if request.method == "POST":
        return _change_person(request)
    shown = User.objects.order_by("-is_active", "username")
    if words := request.GET.get("q", "").strip()[:100]:
        named = Q(username__icontains=words) | Q(email__icontains=words)
        shown = shown.filter(named | Q(first_name__icontains=words) | Q(last_name__icontains=words))
    roles = Membership.objects.select_related("project").order_by("project__name")
    of_each = shown.prefetch_related(Prefetch("memberships", roles)).annotate(
        unfinished=Count("tasks", filter=Q(tasks__phase__in=CANCELLABLE))
    )
    page = Paginator(of_each, PER_PAGE).get_page(request.GET.get("page"))
    context: dict[str, Any] = {
        "page": page,
        "q": words,
        "budgets": budgets_of_people(list(page)),
        "invitations": Invitation.objects.pending().select_related("project", "invited_by"),
        "projects": projects_visible_to(principal).order_by("name")[:PER_PAGE],
    }
    return render(request, "installation/people.html", context)


def _change_person(request: HttpRequest) -> HttpResponse:
    form = PersonForm(request.POST)
    by = principal_of(request)
    user = get_object_or_404(User, pk=form["user"].value() if str(form["user"].value()).isdigit() else 0)
    try:
        if not form.is_valid():
            raise BadInput("Enter an amount of dollars, or nothing for no limit.")
        if active := form.cleaned_data["active"]:
            set_active(user, active == "yes", by=by)
            said = "can log in again" if active == "yes" else "cannot log in any more"
            messages.success(request, f"{user.shown_name} {said}.")
        else:
            set_budget(user, form.cleaned_data["budget"], by=by)
            messages.success(request, f"The budget of {user.shown_name} is changed.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("people")


@require_GET
def installation_settings(request: HttpRequest) -> HttpResponse:
    """List the variables with which the portal was started. Secrets are only said to be set."""
    require_site_admin(principal_of(request), "see the settings of the installation")
    rows = []
    for name, field in Environment.model_fields.items():
        value, default = getattr(settings.ENVIRONMENT, name), field.get_default()
        rows.append((str(field.alias), _shown(name, value), field.description or "", value != default))
    changed = [row for row in rows if row[3]]
    rest = [row for row in rows if not row[3]]
    return render(request, "installation/settings.html", {"changed": changed, "rest": rest})


def _shown(name: str, value: object) -> str:
    """Return the value of a setting without what nobody is to read from a screen."""
    if value in (None, "", ()):
        return ""
    if any(word in name for word in _SECRETS):
        return "set"
    if isinstance(value, MailServer):
        return f"{value.host}:{value.port}"
    return _LOGIN.sub("//…@", str(getattr(value, "address", value)))
