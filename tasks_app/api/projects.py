"""Operations on projects: settings, pipelines, task files, and members, whom only maintainers change."""

from __future__ import annotations

from typing import Annotated

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, ConfigDict, Field

from tasks_app import permissions
from tasks_app.absolute_urls import absolute_url, absolute_url_for
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import (
    Input,
    InvitationId,
    Name,
    Paging,
    ProjectName,
    Storable,
    Username,
    page_of,
    responses,
)
from tasks_app.api.idempotency import once
from tasks_app.api.problems import Kind, Refused
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import ProjectConfig, StepConfig, step_to_json
from tasks_app.config.project_settings import SETTINGS, Overrides, effective
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER, publish_to_json
from tasks_app.config.threshold import HIGHEST, LOWEST, NEW_PROJECT
from tasks_app.config.validation import validate_commit
from tasks_app.core.types import JsonObject, least_network
from tasks_app.engine.workers.machine import toolchains_of_machine
from tasks_app.git import committed_text, committed_tree
from tasks_app.models import Invitation, Membership, Project, Role, Scope, User, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.schemas.projects import (
    FileText,
    Folder,
    Folders,
    InvitationMade,
    InvitationOut,
    MemberOut,
    Pipeline,
    Pipelines,
    ProjectOut,
    TaskFiles,
    Validation,
)
from tasks_app.services.projects import members as member_actions
from tasks_app.services.projects import projects as actions
from tasks_app.services.projects import settings as settings_actions
from tasks_app.services.projects.projects import fetch_meanwhile
from tasks_app.services.projects.settings import repository_settings
from tasks_app.services.projects.task_files import RepositoryTaskFiles
from tasks_app.services.publishing.publications import with_publishing
from tasks_app.services.questions.routing import with_people


class ProjectPage(Schema):
    items: list[ProjectOut] = Field(description="Projects that you may see, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NewProject(Input):
    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="Lower-case letters, digits, dots, dashes and underscores.", examples=["shop"]
    )
    source: Annotated[Storable, Field(min_length=1, max_length=500)] = Field(
        description="A path on the portal's machine, or an https or ssh URL.", examples=["/srv/git/shop"]
    )
    default_threshold: int = Field(
        NEW_PROJECT, ge=LOWEST, le=HIGHEST, description=SETTINGS["default_threshold"].help
    )


class SettingsPatch(Overrides):
    """The changes. Fields that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid")


class ProjectPatch(Input):
    """The changes. Fields that are left out stay as they are."""

    source: Annotated[Storable, Field(min_length=1, max_length=500)] | None = Field(
        None,
        description="The new location of the repository: a folder, or an https or ssh URL. For site admins.",
    )
    branch: Annotated[Storable, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="The branch of the source that new tasks start from.",
        examples=["main"],
    )


router = Router(tags=["Projects"])


@router.get("/projects", response=responses(ProjectPage), auth=authenticators(Scope.READ))
def list_projects(request: HttpRequest, paging: Query[Paging]) -> ProjectPage:
    """List the projects that you may see."""
    principal = principal_of(request)
    rows, following = page_of(request, permissions.projects_visible_to(principal), paging, newest_first=False)
    roles = dict(
        Membership.objects.filter(user=principal.user, project__in=rows).values_list("project", "role")
    )
    items = [
        ProjectOut.from_row(project, role=_role(principal.user, roles.get(project.pk, "")))
        for project in rows
    ]
    return ProjectPage(items=items, next=following)


@router.post(
    "/projects", response=responses(ProjectOut, 409, 422, status=201), auth=authenticators(Scope.MANAGE)
)
@once
def add_project(request: HttpRequest, body: NewProject) -> Status[ProjectOut]:
    """Add a repository as a project. For site admins, because it may be anywhere on the portal's machine."""
    principal = principal_of(request)
    project = actions.add_project_as_admin(
        body.project, body.source, by=principal, threshold=body.default_threshold
    )
    return Status(201, ProjectOut.from_row(project, role=_role(principal.user, "")))


@router.get("/projects/{project}", response=responses(ProjectOut, 404), auth=authenticators(Scope.READ))
def get_project(request: HttpRequest, project: ProjectName) -> ProjectOut:
    """Return a project and your role in it."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    membership = found.memberships.filter(user=principal.user).first()
    return ProjectOut.from_row(found, role=_role(principal.user, membership.role if membership else ""))


@router.patch(
    "/projects/{project}", response=responses(ProjectOut, 404, 409), auth=authenticators(Scope.MANAGE)
)
def change_project(request: HttpRequest, project: ProjectName, body: ProjectPatch) -> ProjectOut:
    """Change the branch that tasks start from, or the URL of the repository."""
    found = permissions.project_named_or_404(principal_of(request), project)
    if body.source is not None:
        actions.change_source(found, body.source, by=principal_of(request))
    if body.branch is not None:
        settings_actions.change_branch(found, body.branch, by=principal_of(request))
    return get_project(request, project)


@router.delete(
    "/projects/{project}", response=responses(None, 404, 409, status=204), auth=authenticators(Scope.MANAGE)
)
def remove_project(request: HttpRequest, project: ProjectName) -> Status[None]:
    """Remove a project with its tasks, their history and branches. Its source is not touched.

    This cannot be undone. It is refused while an agent works in the project.
    """
    principal = principal_of(request)
    actions.remove_project(permissions.project_named_or_404(principal, project), by=principal)
    return Status(204, None)


@router.post(
    "/projects/{project}/fetch", response=responses(ProjectOut, 404), auth=authenticators(Scope.WRITE)
)
def fetch_project(request: HttpRequest, project: ProjectName) -> ProjectOut:
    """Fetch the newest commits of the source. A long fetch continues after the response: see `fetching`."""
    fetch_meanwhile(
        permissions.project_named_or_404(principal_of(request), project), by=principal_of(request)
    )
    return get_project(request, project)


@router.get(
    "/projects/{project}/settings", response=responses(Overrides, 404), auth=authenticators(Scope.READ)
)
def get_settings(request: HttpRequest, project: ProjectName) -> Overrides:
    """Return the overrides of the repository's cat-herder.yaml."""
    return settings_actions.overrides_of(permissions.project_named_or_404(principal_of(request), project))


@router.patch(
    "/projects/{project}/settings", response=responses(Overrides, 404, 409), auth=authenticators(Scope.MANAGE)
)
def change_settings(request: HttpRequest, project: ProjectName, body: SettingsPatch) -> Overrides:
    """Change overrides of the repository's cat-herder.yaml. They apply to new tasks."""
    found = permissions.project_named_or_404(principal_of(request), project)
    overrides = settings_actions.overrides_of(found).model_copy(update=body.model_dump(exclude_unset=True))
    commit = paths.repository(found).head(found.branch)
    settings_actions.change_settings(found, overrides, by=principal_of(request), commit=commit)
    return settings_actions.overrides_of(found)


def _step_with_network(step: StepConfig, config: ProjectConfig) -> JsonObject:
    """Return a step under the keys of cat-herder.yaml, with the network in effect."""
    network = least_network(config.network_of(step), settings.ENVIRONMENT.network)
    return step_to_json(step.model_copy(update={"network": network}))


@router.get(
    "/projects/{project}/pipelines", response=responses(Pipelines, 404, 409), auth=authenticators(Scope.READ)
)
def list_pipelines(request: HttpRequest, project: ProjectName) -> Pipelines:
    """List the pipelines for new tasks, as of the last fetch."""
    found = permissions.project_named_or_404(principal_of(request), project)
    commit = paths.repository(found).head(found.branch)
    in_file = settings_actions.repository_settings(found, commit=commit)
    config = effective(in_file, settings_actions.overrides_of(found))
    pipelines = [
        Pipeline(
            name=one.name,
            steps=[_step_with_network(step, config) for step in one.steps],
            publish=publish_to_json(one.publish),
            clarify=one.clarify,
        )
        for one in config.pipelines
    ]
    return Pipelines(default=config.default_pipeline or config.pipelines[0].name, items=pipelines)


@router.get(
    "/projects/{project}/validation",
    response=responses(Validation, 404, 409),
    auth=authenticators(Scope.READ),
)
def get_validation(request: HttpRequest, project: ProjectName) -> Validation:
    """Validate the newest fetched commit: settings, task files, prompts, programs."""
    found = permissions.project_named_or_404(principal_of(request), project)
    repository = paths.repository(found)
    commit = repository.head(found.branch)
    threshold = settings_actions.default_threshold(found)
    report = validate_commit(
        repository,
        commit,
        prompts=SHIPPED_PROMPTS,
        threshold=threshold,
        toolchains=toolchains_of_machine(),
    )
    text = committed_text(repository, commit=commit, path=settings_actions.CONFIG_FILE)
    report = with_people(with_publishing(report, found, text), found, text)
    return Validation.from_row(report, commit=commit)


def _role(user: User, role: str) -> str:
    if user.is_superuser:
        return "admin"
    return role


files_router = Router(tags=["Projects"])


class NameSearch(Schema):
    q: Name = Field("", description="Only paths that contain all these words.")
    limit: int = Field(200, ge=1, le=1000, description="Maximum number of items, up to 1000.")


class FileChoice(Schema):
    path: Annotated[Storable, Field(min_length=1, max_length=1000)] = Field(
        description="The path of the file in the repository.", examples=["tasks/round-prices.md"]
    )


@files_router.get(
    "/projects/{project}/files", response=responses(TaskFiles, 404, 409), auth=authenticators(Scope.READ)
)
def list_files(request: HttpRequest, project: ProjectName, which: Query[NameSearch]) -> TaskFiles:
    """List the Markdown files at the newest commit, those of the task folder first."""
    commit, pickable = _pickable(request, project)
    paths = pickable.paths(which.q)
    return TaskFiles(commit=commit, items=paths[: which.limit], more=max(0, len(paths) - which.limit))


@files_router.get(
    "/projects/{project}/files/text", response=responses(FileText, 404, 409), auth=authenticators(Scope.READ)
)
def get_file(request: HttpRequest, project: ProjectName, which: Query[FileChoice]) -> FileText:
    """Return the text of a Markdown file at the newest commit."""
    commit, pickable = _pickable(request, project)
    if which.path not in pickable.paths():
        raise Refused(Kind.NOT_FOUND, f"There is no Markdown file “{which.path[:200]}” at the newest commit.")
    return FileText(commit=commit, path=which.path, text=pickable.read_text(which.path))


@files_router.get(
    "/projects/{project}/folders", response=responses(Folders, 404, 409), auth=authenticators(Scope.READ)
)
def list_folders(request: HttpRequest, project: ProjectName, which: Query[NameSearch]) -> Folders:
    """List the folders of task files at the newest commit. Each can become a sequence."""
    commit, pickable = _pickable(request, project)
    names = pickable.folders(which.q)
    items = [Folder(folder=name, tasks=pickable.tasks_in_order(name)) for name in names[: which.limit]]
    return Folders(commit=commit, items=items, more=max(0, len(names) - which.limit))


def _pickable(request: HttpRequest, name: str) -> tuple[str, RepositoryTaskFiles]:
    """Return the newest commit and its files to users who may create tasks. Raise NotAllowed."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_actor(principal_of(request), project)
    repository = paths.repository(project)
    commit = repository.head(project.branch)
    try:
        folder = repository_settings(project, commit=commit).task_folder
    except ConfigInvalid:
        folder = DEFAULT_TASK_FOLDER  # an error there must not hide files
    return commit, RepositoryTaskFiles(repository, committed_tree(repository, commit=commit), folder)


def _address(text: str) -> str:
    try:
        validate_email(text)
    except ValidationError as error:
        raise ValueError("must be an e-mail address") from error
    return text


class MemberPage(Schema):
    items: list[MemberOut] = Field(description="The project's members, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class RoleIn(Input):
    role: Role = Field(
        description="`viewer` can look, `member` can act, `maintainer` can also change settings and members."
    )


class NewInvitation(RoleIn):
    """An e-mail address and a role."""

    email: Annotated[Storable, Field(max_length=254), AfterValidator(_address)] = Field(
        description="The e-mail address; if it has an invitation, a new link replaces the old one.",
        examples=["ann@example.org"],
    )


class InvitationPage(Schema):
    items: list[InvitationOut] = Field(description="Pending invitations, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


members_router = Router(tags=["Members"])


@members_router.get(
    "/projects/{project}/members", response=responses(MemberPage, 404), auth=authenticators(Scope.READ)
)
def list_members(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> MemberPage:
    """List the members of a project with their roles. Site admins need no role."""
    rows = permissions.project_named_or_404(principal_of(request), project).memberships.select_related("user")
    found, following = page_of(request, rows, paging, newest_first=False)
    return MemberPage(items=[MemberOut.from_row(row.user, role=row.role) for row in found], next=following)


@members_router.put(
    "/projects/{project}/members/{username}",
    response=responses(MemberOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def put_member(request: HttpRequest, project: ProjectName, username: Username, body: RoleIn) -> MemberOut:
    """Give a user a role in the project, or change it."""
    found = _managed(request, project)
    user = get_object_or_404(User, username=username)
    membership = member_actions.give_role(found, user, body.role, by=principal_of(request))
    return MemberOut.from_row(user, role=membership.role)


@members_router.delete(
    "/projects/{project}/members/{username}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def remove_member(request: HttpRequest, project: ProjectName, username: Username) -> Status[None]:
    """Remove a member. What the user did stays. The last maintainer cannot be removed."""
    rows = _managed(request, project).memberships.select_related("user", "project")
    member_actions.remove_member(get_object_or_404(rows, user__username=username), by=principal_of(request))
    return Status(204, None)


@members_router.get(
    "/projects/{project}/invitations",
    response=responses(InvitationPage, 404),
    auth=authenticators(Scope.MANAGE),
)
def list_invitations(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> InvitationPage:
    """List the pending invitations. For maintainers."""
    rows = _managed(request, project).invitations.pending().select_related("invited_by")
    found, following = page_of(request, rows, paging)
    return InvitationPage(items=[InvitationOut.from_row(row) for row in found], next=following)


@members_router.post(
    "/projects/{project}/invitations",
    response=responses(InvitationMade, 404, 409, 422, status=201),
    auth=authenticators(Scope.MANAGE),
)
@once
def create_invitation(
    request: HttpRequest, project: ProjectName, body: NewInvitation
) -> Status[InvitationMade]:
    """Invite an e-mail address. The link is mailed or, without e-mail, returned in this response only."""
    found = permissions.project_named_or_404(principal_of(request), project)
    made, token = member_actions.invite(found, body.email, body.role, by=principal_of(request))
    return Status(201, _invitation_made(request, made, token))


@members_router.post(
    "/projects/{project}/invitations/{invitation_id}/again",
    response=responses(InvitationMade, 404, 409, 422),
    auth=authenticators(Scope.MANAGE),
)
@once
def renew_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[InvitationMade]:
    """Renew an invitation: a new link for another week. The old one stops working."""
    invitation = _pending_invitation(request, project, invitation_id)
    token = member_actions.invite_again(invitation, by=principal_of(request))
    invitation.refresh_from_db()
    return Status(200, _invitation_made(request, invitation, token))


@members_router.delete(
    "/projects/{project}/invitations/{invitation_id}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def withdraw_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[None]:
    """Withdraw an invitation. Its link stops working."""
    invitation = _pending_invitation(request, project, invitation_id)
    member_actions.withdraw_invitation(invitation, by=principal_of(request))
    return Status(204, None)


def _managed(request: HttpRequest, name: str) -> Project:
    """Return the project. Raise NotAllowed to others than maintainers before anything else is looked up."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_maintainer(principal_of(request), project, member_actions.MANAGE_MEMBERS)
    return project


def _pending_invitation(request: HttpRequest, project: str, invitation_id: int) -> Invitation:
    rows = _managed(request, project).invitations.pending().select_related("project", "invited_by")
    return get_object_or_404(rows, pk=invitation_id)


def _invitation_made(request: HttpRequest, invitation: Invitation, token: str) -> InvitationMade:
    """Mail the link, or return it once if the portal sends no e-mail."""
    path = reverse("invitation", args=[token])
    mailed = member_actions.mail_invitation(invitation, absolute_url(path))
    return InvitationMade.from_row(
        invitation, mailed=mailed, link=None if mailed else absolute_url_for(request, path)
    )
