"""Projects, their settings, pipelines and members."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, Input, Json, Person, Storable, Threshold


class ProjectFacts(Schema):
    """A git repository that tasks work on."""

    project: str = Field(description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh address.")
    branch: str = Field(description="The branch that tasks start from.")
    role: str = Field(description="Your role there: viewer, member or maintainer; `admin` for site admins.")
    created_at: str = Field(description=f"When it was added. {AT}")


class ProjectPage(Schema):
    items: list[ProjectFacts] = Field(
        description="Projects that you may see, in the order in which they came."
    )
    next: str | None = Field(description="The address of the next page; null on the last.")


class NewProject(Input):
    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="Lower-case letters, digits, dots, dashes and underscores.", examples=["shop"]
    )
    source: Annotated[Storable, Field(min_length=1, max_length=500)] = Field(
        description="A path on the portal's machine, or an https or ssh address.", examples=["/srv/git/shop"]
    )


class Overrides(Schema):
    """What the portal says instead of cat-herder.yaml; null and "" leave it to the file."""

    threshold: int | None = Field(description="How readily the agent asks, from 0 (never) to 5.")
    default_pipeline: str = Field(description="The pipeline of tasks that name none.")
    model: str = Field(description="The model of steps that name none.")
    wait_for_reset: bool | None = Field(description="Wait for a usage limit to reset instead of failing.")
    auto_commit: bool | None = Field(description="Make a checkpoint commit after each step.")


class SettingsPatch(Input):
    """What is to be changed; what is not named stays as it is."""

    threshold: Threshold | None = Field(None, description="How readily the agent asks, from 0 (never) to 5.")
    default_pipeline: Annotated[Storable, Field(max_length=100)] = Field(
        "", description="The pipeline of tasks that name none."
    )
    model: Annotated[Storable, Field(max_length=100)] = Field(
        "", description="The model of steps that name none."
    )
    wait_for_reset: bool | None = Field(
        None, description="Wait for a usage limit to reset instead of failing."
    )
    auto_commit: bool | None = Field(None, description="Make a checkpoint commit after each step.")


class Pipeline(Schema):
    """A named list of steps."""

    name: str = Field(description="Its name.")
    steps: list[Json] = Field(description="Its steps, as cat-herder.yaml has them.")


class Pipelines(Schema):
    default: str = Field(description="The pipeline of tasks that name none.")
    items: list[Pipeline] = Field(description="The project's pipelines.")


class Me(Person):
    email: str = Field(description="Your e-mail address.")
    is_admin: bool = Field(description="Whether you are a site admin.")
    token: TokenFacts | None = Field(description="The token that was used; null with a browser's login.")


class TokenFacts(Schema):
    """A personal API token. Its secret is not known to anybody but its holder."""

    name: str = Field(description="What it is for.")
    scopes: list[str] = Field(description="What it may be used for: read, answer, write, manage.")
    projects: list[str] | None = Field(description="The projects that it is restricted to; null for all.")
    expires_at: str | None = Field(description=f"When it expires; null for never. {AT}")


Me.model_rebuild()
