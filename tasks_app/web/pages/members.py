"""Members of a project, and invitations to it."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.absolute_urls import absolute_url, absolute_url_for
from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.models import Invitation, Membership, Project, Role
from tasks_app.permissions import may_maintain, may_see, require_maintainer
from tasks_app.services.projects.invitations import invite, invite_again, mail_invitation, withdraw_invitation
from tasks_app.services.projects.members import MANAGE_MEMBERS, add_member, change_role, remove_member
from tasks_app.web.forms.members import ROLES, NewMemberForm, RoleForm
from tasks_app.web.pages.access import principal_of, project_or_404

#: A link that could not be mailed, kept in the session until the next page shows it.
_LINK = "invitation_link"


@require_http_methods(["GET", "POST"])
def project_members(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_or_404(request, project_id)
    if request.method == "GET":
        return _render_page(request, project, NewMemberForm())
    _require_maintainer(request, project)
    form = NewMemberForm(request.POST)
    if not form.is_valid():
        return _render_page(request, project, form, status=400)
    try:
        _let_in(request, project, form)
    except BadInput as error:
        form.add_error("user", str(error))
        return _render_page(request, project, form, status=400)
    return redirect("project_members", project.pk)


def _let_in(request: HttpRequest, project: Project, form: NewMemberForm) -> None:
    role = Role(form.cleaned_data["role"])
    if form.existing_user is not None:
        add_member(project, form.existing_user, role, by=principal_of(request))
        name = f"{form.existing_user.shown_name} ({form.existing_user.get_username()})"
        messages.success(request, f"{name} is now a {role.value}.")
    else:
        _deliver_link(request, *invite(project, form.cleaned_data["user"], role, by=principal_of(request)))


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
    return redirect("dashboard")


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


def _require_maintainer(request: HttpRequest, project: Project) -> None:
    try:
        require_maintainer(principal_of(request), project, MANAGE_MEMBERS)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error


def _member_or_404(request: HttpRequest, project_id: int, member_id: int) -> Membership:
    project = project_or_404(request, project_id)
    _require_maintainer(request, project)
    return get_object_or_404(project.memberships.select_related("user", "project"), pk=member_id)


def _invitation_or_404(request: HttpRequest, project_id: int, invitation_id: int) -> Invitation:
    project = project_or_404(request, project_id)
    _require_maintainer(request, project)
    return get_object_or_404(project.invitations.select_related("project"), pk=invitation_id)


def _render_page(
    request: HttpRequest, project: Project, form: NewMemberForm, *, status: int = 200
) -> HttpResponse:
    may_change = may_maintain(principal_of(request), project)
    fresh = request.session.get(_LINK)
    if fresh and fresh["project"] == project.pk:
        del request.session[_LINK]
    context = {
        "project": project,
        "form": form,
        "may_change": may_change,
        "roles": ROLES,
        "members": project.memberships.select_related("user").order_by("user__username"),
        "invitations": project.invitations.pending().select_related("invited_by") if may_change else [],
        "fresh": fresh if fresh and fresh["project"] == project.pk else None,
        "sends_email": settings.SENDS_EMAIL,
    }
    return render(request, "projects/members.html", context, status=status)
