"""The page of an invitation's link: join with an existing or a new account."""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from allauth.account.internal.userkit import filter_users_by_email
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Invitation, User
from tasks_app.services.projects.invitations import (
    accept_as_newcomer,
    accept_invitation,
    address_is_taken,
    find_invitation,
    state_of,
)
from tasks_app.web.forms.members import SignUpForm


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@login_not_required
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    found = find_invitation(token)
    state = state_of(found) if found else "unknown"
    if found is None or state != "open":
        context = {"state": state}
        return render(request, "account/invitation_over.html", context, status=410 if found else 404)
    if isinstance(request.user, User):
        return _with_login(request, found, request.user)
    return _newcomer(request, found)


def _with_login(request: HttpRequest, found: Invitation, user: User) -> HttpResponse:
    if request.method == "GET":
        role = found.project.memberships.filter(user=user).values_list("role", flat=True).first()
        return render(request, "account/invitation.html", {"invitation": found, "has_role": role})
    try:
        accept_invitation(found, by=user)
    except BadInput as error:
        messages.error(request, str(error))
        return redirect(request.path)
    return _welcome(request, found)


def _newcomer(request: HttpRequest, found: Invitation) -> HttpResponse:
    form = SignUpForm(request.POST if request.method == "POST" else None, invitation=found)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            user = accept_as_newcomer(
                found, username=given["username"], name=given["name"], password=given["password"]
            )
        except BadInput as error:
            form.add_error(None, str(error))
        else:
            get_adapter(request).login(request, user)
            record(Action.LOGGED_IN, by=user, through="invitation")
            return _welcome(request, found)
    context = {
        "invitation": found,
        "form": form,
        "taken": address_is_taken(found),
        "claimed": bool(filter_users_by_email(found.email)),
        "here": request.path,
    }
    return render(request, "account/invitation.html", context, status=400 if form.errors else 200)


def _welcome(request: HttpRequest, found: Invitation) -> HttpResponse:
    messages.success(request, f"Welcome to {found.project}. You are a {found.role} there.")
    return redirect("dashboard")
