"""Projects, their settings, pipelines and members."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, Flag, Input, Json, Storable, Threshold

#: Seconds, at most a week, as cat-herder.yaml takes them.
Bound = Annotated[int, Field(ge=1, le=7 * 24 * 3600, strict=True)]


class ProjectFacts(Schema):
    """A git repository that tasks work on."""

    project: str = Field(description="Its name.")
    source: str = Field(description="Where the repository is: a path, or an https or ssh address.")
    branch: str = Field(description="The branch that tasks start from.")
    role: str = Field(description="Your role there: viewer, member or maintainer; `admin` for site admins.")
    created_at: str = Field(description=f"When it was added. {AT}")
    fetched_at: str | None = Field(description=f"When the portal last fetched its source. {AT}")
    fetching: bool = Field(description="Whether it is fetching now.")
    fetch_fault: str = Field(description="Why the last fetch failed; empty if it did not.")


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


class Pipeline(Schema):
    """A named list of steps."""

    name: str = Field(description="Its name.")
    steps: list[Json] = Field(description="Its steps, as cat-herder.yaml has them.")


class Pipelines(Schema):
    default: str = Field(description="The pipeline of tasks that name none.")
    items: list[Pipeline] = Field(description="The project's pipelines.")


class FindingFacts(Schema):
    """Something that is wrong in a repository, in the words of `manage.py validate --json`."""

    file: str = Field(description="The file; empty for the repository as a whole.")
    line: int | None = Field(description="The line; null if it is about the whole file.")
    key: str = Field(description="The key in cat-herder.yaml or in front matter; may be empty.")
    message: str = Field(description="What is wrong there.")
    fixable: bool = Field(description="Whether `manage.py validate --fix` can mend it.")


class Validation(Schema):
    commit: str = Field(description="The commit that was looked at.")
    ok: bool = Field(description="Whether there are no errors.")
    errors: list[FindingFacts] = Field(description="What stops tasks or lets them go wrong.")
    warnings: list[FindingFacts] = Field(description="What may be meant.")
    hints: list[FindingFacts] = Field(description="Advice; nothing of it keeps tasks from running.")
