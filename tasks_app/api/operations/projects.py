"""Operations on projects, their settings and pipelines."""

from __future__ import annotations

from typing import Annotated

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import ConfigDict, Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import Input, ProjectName, Storable
from tasks_app.config.pipeline import ProjectConfig, StepConfig, step_to_json
from tasks_app.config.project_settings import Overrides, effective
from tasks_app.config.publish import publish_to_json
from tasks_app.config.validation import validate_commit
from tasks_app.core.types import JsonObject, least_network
from tasks_app.engine.workers.toolchains import toolchains_of_machine
from tasks_app.git import committed_text
from tasks_app.models import Membership, Project, Scope, User, paths
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.reporting.schemas.projects import Pipeline, Pipelines, ProjectOut, Validation
from tasks_app.services.projects import projects as actions
from tasks_app.services.projects import settings as settings_actions
from tasks_app.services.projects.fetching import fetch_meanwhile
from tasks_app.services.publishing.pipeline_publishing import with_publishing


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
        ProjectOut.of(project, role=_role(principal.user, roles.get(project.pk, ""))) for project in rows
    ]
    return ProjectPage(items=items, next=following)


@router.post(
    "/projects", response=responses(ProjectOut, 409, 422, status=201), auth=authenticators(Scope.MANAGE)
)
@once
def add_project(request: HttpRequest, body: NewProject) -> Status[ProjectOut]:
    """Add a repository as a project. For site admins, because it may be anywhere on the portal's machine."""
    principal = principal_of(request)
    project = actions.add_project_as_admin(body.project, body.source, by=principal)
    return Status(201, ProjectOut.of(project, role=_role(principal.user, "")))


@router.get("/projects/{project}", response=responses(ProjectOut, 404), auth=authenticators(Scope.READ))
def get_project(request: HttpRequest, project: ProjectName) -> ProjectOut:
    """Return a project and your role in it."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    membership = found.memberships.filter(user=principal.user).first()
    return ProjectOut.of(found, role=_role(principal.user, membership.role if membership else ""))


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
    config = _effective_config(permissions.project_named_or_404(principal_of(request), project))
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
    threshold = settings.ENVIRONMENT.threshold
    report = validate_commit(
        repository,
        commit,
        prompts=SHIPPED_PROMPTS,
        threshold=threshold,
        toolchains=toolchains_of_machine(),
    )
    text = committed_text(repository, commit=commit, path=settings_actions.CONFIG_FILE)
    report = with_publishing(report, found, text)
    return Validation.of(report, commit=commit)


def _role(user: User, role: str) -> str:
    return "admin" if user.is_superuser else role


def _effective_config(project: Project) -> ProjectConfig:
    commit = paths.repository(project).head(project.branch)
    config = settings_actions.repository_settings(project, commit=commit)
    return effective(config, settings_actions.overrides_of(project))
