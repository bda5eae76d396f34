"""The members of a project, and invitations."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from allauth.account.utils import filter_users_by_email, filter_users_by_username
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.absolute_urls import absolute_url, absolute_url_for
from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Invitation, Membership, Project, Role, User
from tasks_app.permissions import may_maintain, may_see, require_maintainer
from tasks_app.services.projects.groups import remove_group, save_group
from tasks_app.services.projects.members import (
    MANAGE_MEMBERS,
    accept_as_newcomer,
    accept_invitation,
    add_member,
    address_is_taken,
    change_role,
    find_invitation,
    invite,
    invite_again,
    mail_invitation,
    remove_member,
    state_of,
    withdraw_invitation,
)
from tasks_app.web.access import principal_of, project_or_404

ROLES = [(Role.VIEWER.value, "viewer"), (Role.MEMBER.value, "member"), (Role.MAINTAINER.value, "maintainer")]


class NewMemberForm(forms.Form):
    """A user name or e-mail address: existing users become members, other addresses are invited."""

    user = forms.CharField(
        max_length=254, widget=forms.TextInput({"autocomplete": "off", "autocapitalize": "none"})
    )
    role = forms.ChoiceField(choices=ROLES, initial=Role.MEMBER)

    def clean_user(self) -> str:
        """Set `existing_user`; None for an address to invite."""
        given: str = self.cleaned_data["user"]
        # A user name may look like another user's address, and must not get that user's invitation.
        if _is_email(given):
            # Only a confirmed address: anybody can claim one where no e-mail is sent.
            confirmed = EmailAddress.objects.filter(email=given.lower(), verified=True)
            address = confirmed.select_related("user").first()
            self.existing_user: User | None = address and address.user
        else:
            self.existing_user = filter_users_by_username(given).first()
            if self.existing_user is None:
                raise ValidationError(
                    "There is no user with this name. Enter an e-mail address to invite somebody."
                )
        return given


def _is_email(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=ROLES)


class SignUpForm(forms.Form):
    """The account of somebody who was invited and has none yet."""

    username = forms.CharField(
        max_length=150,
        validators=[User.username_validator],
        widget=forms.TextInput({"autocomplete": "username", "autocapitalize": "none"}),
    )
    name = forms.CharField(required=False, max_length=150, widget=forms.TextInput({"autocomplete": "name"}))
    password = forms.CharField(
        max_length=4096,
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False),
    )

    def __init__(self, *args: Any, invitation: Invitation, **kwargs: Any) -> None:
        kwargs["initial"] = {"username": invitation.email.split("@")[0]}
        super().__init__(*args, **kwargs)
        self._invitation = invitation

    def clean_username(self) -> str:
        username: str = self.cleaned_data["username"]
        if filter_users_by_username(username).exists():
            raise ValidationError("This user name is taken. Choose another.")
        if _is_email(username) and username.lower() != self._invitation.email:
            raise ValidationError("Your user name must not be another e-mail address than your own.")
        return username

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if address_is_taken(self._invitation):
            raise ValidationError("There is already an account with this e-mail address. Log in instead.")
        if "password" in given:
            self._validate_password(given)
        return given

    def _validate_password(self, given: dict[str, Any]) -> None:
        user = User(username=given.get("username", ""), first_name=given.get("name", ""))
        user.email = self._invitation.email
        try:
            validate_password(given["password"], user)
        except ValidationError as error:
            self.add_error("password", error)


#: A link that could not be mailed, kept in the session until the next page shows it.
_LINK = "invitation_link"


@require_http_methods(["GET", "POST"])
def project_members(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project, NewMemberForm())
    require_maintainer(principal_of(request), project, MANAGE_MEMBERS)
    form = NewMemberForm(request.POST)
    if not form.is_valid():
        return _render_page(request, project, form, status=400)
    try:
        role = Role(form.cleaned_data["role"])
        if user := form.existing_user:
            add_member(project, user, role, by=principal_of(request))
            messages.success(request, f"{user.shown_name} ({user.get_username()}) is now a {role.value}.")
        else:
            made = invite(project, form.cleaned_data["user"], role, by=principal_of(request))
            _deliver_link(request, *made)
    except BadInput as error:
        form.add_error("user", str(error))
        return _render_page(request, project, form, status=400)
    return redirect("project_members", project.pk)


@require_POST
def project_groups(request: HttpRequest, project_id: int) -> HttpResponse:
    """Create a group of members, change its members, or remove it with `remove=yes`."""
    project = project_or_404(request, project_id)
    require_maintainer(principal_of(request), project, MANAGE_MEMBERS)
    name = request.POST.get("name", "").strip().removeprefix("@")
    try:
        if request.POST.get("remove") == "yes":
            group = get_object_or_404(project.groups, name=name)
            remove_group(group, by=principal_of(request))
            messages.success(request, f"The group {name} was removed.")
        else:
            usernames = request.POST.get("members", "").replace(",", " ").split()
            save_group(project, name, usernames, by=principal_of(request))
            messages.success(request, f"The group {name} was saved.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_members", project.pk)


@require_POST
def member_role(request: HttpRequest, project_id: int, member_id: int) -> HttpResponse:
    membership = _member_or_404(request, project_id, member_id)
    form = RoleForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Choose a role.")
        return redirect("project_members", project_id)
    role = Role(form.cleaned_data["role"])
    try:
        change_role(membership, role, by=principal_of(request))
        messages.success(request, f"{membership.user.shown_name} is now a {role.value}.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_members", project_id)


@require_POST
def member_remove(request: HttpRequest, project_id: int, member_id: int) -> HttpResponse:
    membership = _member_or_404(request, project_id, member_id)
    try:
        remove_member(membership, by=principal_of(request))
        messages.success(request, f"{membership.user.shown_name} is no longer a member.")
    except BadInput as error:
        messages.error(request, str(error))
    if may_see(principal_of(request), membership.project):
        return redirect("project_members", project_id)
    return redirect("tasks")


@require_POST
def invitation_again(request: HttpRequest, project_id: int, invitation_id: int) -> HttpResponse:
    invitation = _invitation_or_404(request, project_id, invitation_id)
    try:
        _deliver_link(request, invitation, invite_again(invitation, by=principal_of(request)))
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_members", project_id)


@require_POST
def invitation_withdraw(request: HttpRequest, project_id: int, invitation_id: int) -> HttpResponse:
    invitation = _invitation_or_404(request, project_id, invitation_id)
    try:
        withdraw_invitation(invitation, by=principal_of(request))
        messages.success(request, f"Invitation of {invitation.email} withdrawn. Its link no longer works.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("project_members", project_id)


def _deliver_link(request: HttpRequest, invitation: Invitation, token: str) -> None:
    """Send the link to the invited address, or show it once to the inviter."""
    path = reverse("invitation", args=[token])
    if mail_invitation(invitation, absolute_url(path)):
        messages.success(request, f"A link was sent to {invitation.email}. It works for seven days.")
    else:
        link = absolute_url_for(request, path)
        request.session[_LINK] = {"link": link, "email": invitation.email, "project": invitation.project_id}


def _member_or_404(request: HttpRequest, project_id: int, member_id: int) -> Membership:
    project = project_or_404(request, project_id)
    require_maintainer(principal_of(request), project, MANAGE_MEMBERS)
    return get_object_or_404(project.memberships.select_related("user", "project"), pk=member_id)


def _invitation_or_404(request: HttpRequest, project_id: int, invitation_id: int) -> Invitation:
    project = project_or_404(request, project_id)
    require_maintainer(principal_of(request), project, MANAGE_MEMBERS)
    return get_object_or_404(project.invitations.select_related("project"), pk=invitation_id)


def _render_page(
    request: HttpRequest, project: Project, form: NewMemberForm, *, status: int = 200
) -> HttpResponse:
    may_change = may_maintain(principal_of(request), project)
    fresh = request.session.get(_LINK)
    if fresh and fresh["project"] != project.pk:
        fresh = None
    if fresh:
        del request.session[_LINK]
    context = {
        "project": project,
        "form": form,
        "may_change": may_change,
        "roles": ROLES,
        "members": project.memberships.select_related("user").order_by("user__username"),
        "groups": project.groups.prefetch_related("members"),
        "invitations": project.invitations.pending().select_related("invited_by") if may_change else [],
        "fresh": fresh,
        "sends_email": settings.SENDS_EMAIL,
    }
    return render(request, "projects/members.html", context, status=status)


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@login_not_required
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    found = find_invitation(token)
    if found is None:
        return render(request, "projects/invitation_over.html", {"state": "unknown"}, status=404)
    if (state := state_of(found)) != "open":
        return render(request, "projects/invitation_over.html", {"state": state}, status=410)
    if isinstance(request.user, User):
        return _with_login(request, found, request.user)
    return _newcomer(request, found)


def _with_login(request: HttpRequest, found: Invitation, user: User) -> HttpResponse:
    if request.method == "GET":
        role = found.project.memberships.filter(user=user).values_list("role", flat=True).first()
        return render(request, "projects/invitation.html", {"invitation": found, "has_role": role})
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
    return render(request, "projects/invitation.html", context, status=400 if form.errors else 200)


def _welcome(request: HttpRequest, found: Invitation) -> HttpResponse:
    messages.success(request, f"Welcome to {found.project}. You are a {found.role} there.")
    return redirect("tasks")
