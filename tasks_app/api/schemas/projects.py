"""Input schemas about projects and their settings, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import ConfigDict, Field

from tasks_app.api.schemas.base import Input, Storable
from tasks_app.config.project_settings import Overrides
from tasks_app.reporting.schemas.projects import ProjectOut


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
