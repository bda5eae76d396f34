"""Operations on groups of a project's members, which only maintainers change."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Path, Query, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import Input, Paging, ProjectName, Storable, page_of, responses
from tasks_app.models import Scope
from tasks_app.schemas.projects import GroupOut
from tasks_app.services.projects.groups import remove_group, save_group
from tasks_app.services.projects.members import MANAGE_MEMBERS


class GroupPage(Schema):
    items: list[GroupOut] = Field(description="Groups, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class GroupIn(Input):
    members: Annotated[list[Storable], Field(max_length=500)] = Field(
        description="The user names of its members, who must be members of the project.", examples=[["ann"]]
    )


GroupName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$", description="The name of the group.")
]

router = Router(tags=["Members"])


@router.get("/projects/{project}/groups", response=responses(GroupPage, 404), auth=authenticators(Scope.READ))
def list_groups(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> GroupPage:
    """List the groups of a project's members, who can be asked together."""
    rows = permissions.project_named_or_404(principal_of(request), project).groups.prefetch_related("members")
    found, following = page_of(request, rows, paging, newest_first=False)
    return GroupPage(items=[GroupOut.from_row(row) for row in found], next=following)


@router.put(
    "/projects/{project}/groups/{group}",
    response=responses(GroupOut, 404, 422),
    auth=authenticators(Scope.MANAGE),
)
def put_group(request: HttpRequest, project: ProjectName, group: GroupName, body: GroupIn) -> GroupOut:
    """Create a group of members, or replace the members of the group."""
    found = permissions.project_named_or_404(principal_of(request), project)
    return GroupOut.from_row(save_group(found, group, body.members, by=principal_of(request)))


@router.delete(
    "/projects/{project}/groups/{group}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def delete_group(request: HttpRequest, project: ProjectName, group: GroupName) -> Status[None]:
    """Remove a group. Its members stay in the project."""
    found = permissions.project_named_or_404(principal_of(request), project)
    permissions.require_maintainer(principal_of(request), found, MANAGE_MEMBERS)
    remove_group(get_object_or_404(found.groups, name=group), by=principal_of(request))
    return Status(204, None)
