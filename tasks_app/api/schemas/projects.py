"""What is taken about projects and their settings, and pages of them."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable, Threshold
from tasks_app.reporting.schemas.projects import ProjectOut

#: Seconds, at most a week, as cat-herder.yaml takes them.
Bound = Annotated[int, Field(ge=1, le=7 * 24 * 3600, strict=True)]


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


class Overrides(Schema):
    """What the portal says instead of cat-herder.yaml; null and "" leave it to the file."""

    threshold: int | None = Field(description="How readily the agent asks, from 0 (never) to 5.")
    default_pipeline: str = Field(description="The pipeline of tasks that name none.")
    model: str = Field(description="The model of steps that name none.")
    wait_for_reset: bool | None = Field(description="Wait for a usage limit to reset instead of failing.")
    auto_commit: bool | None = Field(description="Make a checkpoint commit after each step.")
    publish_plan: bool | None = Field(description="Leave the plan (PLAN.md) in the result of a task.")
    manage_git_branch: bool | None = Field(description="Work on a branch of the task's own.")
    max_turns: int | None = Field(description="Turns of one run.")
    max_cost_usd: float | None = Field(description="Dollars that one task may cost.")
    step_timeout: int | None = Field(description="Seconds for a run whose step names none.")
    check_timeout: int | None = Field(description="Seconds for a check that names none.")
    ask_before: str = Field(description="Tool calls that a human must approve, one pattern a line.")
    network: str = Field(description="The most that a step may reach: full, model or none.")


class SettingsPatch(Input):
    """What is to be changed; what is not named stays as it is."""

    threshold: Threshold | None = Field(None, description="How readily the agent asks, from 0 (never) to 5.")
    default_pipeline: Annotated[Storable, Field(max_length=100)] = Field(
        "", description="The pipeline of tasks that name none."
    )
    model: Annotated[Storable, Field(max_length=100)] = Field(
        "", description="The model of steps that name none."
    )
    wait_for_reset: Flag | None = Field(
        None, description="Wait for a usage limit to reset instead of failing."
    )
    auto_commit: Flag | None = Field(None, description="Make a checkpoint commit after each step.")
    publish_plan: Flag | None = Field(None, description="Leave the plan (PLAN.md) in the result of a task.")
    manage_git_branch: Flag | None = Field(None, description="Work on a branch of the task's own.")
    max_turns: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        None, description="Turns of one run."
    )
    max_cost_usd: Annotated[float, Field(ge=0.01, le=1_000_000, allow_inf_nan=False, strict=True)] | None = (
        Field(None, description="Dollars that one task may cost.")
    )
    step_timeout: Bound | None = Field(None, description="Seconds for a run whose step names none.")
    check_timeout: Bound | None = Field(None, description="Seconds for a check that names none.")
    ask_before: Annotated[Storable, Field(max_length=10_000)] = Field(
        "", description="Tool calls that a human must approve, one pattern a line."
    )
    network: Literal["", "none", "model", "full"] = Field(
        "", description="The most that a step may reach: full, model (only the agent's model) or none."
    )


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
