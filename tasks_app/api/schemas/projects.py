"""What is taken about projects and their settings, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import ConfigDict, Field

from tasks_app.api.schemas.base import Input, Storable
from tasks_app.config.project_settings import Overrides
from tasks_app.reporting.schemas.projects import ProjectOut


class ProjectPage(Schema):
    items: list[ProjectOut] = Field(description="Projects that you may see, in the order in which they came.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class NewProject(Input):
    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="Lower-case letters, digits, dots, dashes and underscores.", examples=["shop"]
    )
    source: Annotated[Storable, Field(min_length=1, max_length=500)] = Field(
        description="A path on the portal's machine, or an https or ssh address.", examples=["/srv/git/shop"]
    )


class SettingsPatch(Overrides):
    """What is to be changed; what is not named stays as it is."""

    model_config = ConfigDict(extra="forbid")


class ProjectPatch(Input):
    """What is to be changed; what is not named stays as it is."""

    source: Annotated[Storable, Field(min_length=1, max_length=500)] | None = Field(
        None,
        description="Where the repository is now: a folder, or an https or ssh address. For site admins.",
    )
    branch: Annotated[Storable, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="The branch of the source from which tasks start from now on.",
        examples=["main"],
    )
