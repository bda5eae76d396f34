"""Pipelines, steps and checks, as `cat-herder.yaml` holds them (SPEC P1 to P3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Strict, ValidationError

from tasks_app.config.faults import Location, describe, did_you_mean, key_path, shown
from tasks_app.config.fields import (
    CallPattern,
    FileModel,
    Flag,
    Glob,
    InsidePath,
    Line,
    ModelName,
    Name,
    Seconds,
    ShellCommand,
    WorkerLabels,
)
from tasks_app.config.pipeline_faults import pipeline_problems
from tasks_app.config.repository_settings import (
    CacheConfig,
    Limits,
    Publish,
    PublishConfig,
    RepositorySettings,
    SetupConfig,
)
from tasks_app.config.routing import AskRule
from tasks_app.config.tool_names import tool_problems
from tasks_app.config.yaml_text import read_model, read_yaml
from tasks_app.core.errors import BadInput
from tasks_app.core.types import PLAN_FILE, JsonObject, Network, least_network


class NoCheck(FileModel):
    """The step is done when its agent ends."""

    type: Literal["none"]


class FileExistsCheck(FileModel):
    """The step is done when the file is there, in the task's workspace."""

    type: Literal["fileExists"]
    path: InsidePath = Field(description="A file, relative to the repository.")


class ShellCheck(FileModel):
    """The step is done when the command ends as expected, in the task's workspace."""

    type: Literal["shell"]
    command: ShellCommand = Field(description="A command line for the shell.")
    expect: Literal["pass", "fail"] = Field(
        default="pass", description="Whether the command must end with 0 or not."
    )
    timeout: Seconds | None = Field(default=None, description='Seconds, or words such as "90s", "15m".')


Check: TypeAlias = Annotated[NoCheck | FileExistsCheck | ShellCheck, Discriminator("type")]


def _as_list(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, (Mapping, FileModel)) else value


Checks: TypeAlias = Annotated[
    tuple[Check, ...], BeforeValidator(_as_list, json_schema_input_type=Check | list[Check])
]


# Pipelines, steps and checks, and the `cat-herder.yaml` that holds them (SPEC P1 to P3).


class FileAccess(FileModel):
    """The files that a step may write."""

    allow_write: tuple[Glob, ...] = Field(description="Globs of the files that the step may write.")


class StepConfig(FileModel):
    """One stage of a pipeline."""

    name: Name = Field(description="Unique in its pipeline.")
    command: Name = Field(
        description="The prompt: .claude/commands/NAME.md, else the shipped one; or self: the task's body."
    )
    checks: Checks = Field(
        default=(),
        validation_alias="check",
        serialization_alias="check",
        description="One check or a list; they run in order and the first failure counts.",
    )
    retry: Annotated[int, Strict(), Field(ge=0, le=20)] = Field(
        default=0, description="How often the agent is sent back after a failed check."
    )
    model: ModelName | None = Field(default=None, description="The model of this step alone.")
    file_access: FileAccess | None = Field(default=None, description="Absent: the step may write anywhere.")
    allowed_tools: tuple[Line, ...] | None = Field(
        default=None, description="Tools that need no permission, such as Bash(npm test:*)."
    )
    timeout: Seconds | None = Field(
        default=None, description='Time for one run: seconds, or "90s", "15m", "2h".'
    )
    ask_before: tuple[CallPattern, ...] = Field(
        default=(), description="Tool calls that a human must approve in this step, besides the project's."
    )
    plan_approval: Flag = Field(
        default=False, description="The agent plans first and writes only once a human approved its plan."
    )
    network: Network | None = Field(
        default=None, description="What this step's agent and checks may reach: full, model or none."
    )

    runs_on: WorkerLabels | None = Field(
        default=None, description="Labels that a worker must have to run this step; absent: the project's."
    )

    def within(self, limits: Limits, *, network: Network) -> StepConfig:
        """Return the step with the project's times where it names none, and with the network that it gets."""
        checks = tuple(
            check.model_copy(update={"timeout": limits.check_timeout})
            if isinstance(check, ShellCheck) and check.timeout is None
            else check
            for check in self.checks
        )
        timeout = self.timeout or limits.step_timeout
        return self.model_copy(update={"checks": checks, "timeout": timeout, "network": network})

    @property
    def allow_write(self) -> tuple[str, ...] | None:
        """Return the globs that the step may write to; None: anywhere."""
        return self.file_access.allow_write if self.file_access else None


class PipelineConfig(FileModel):
    """A pipeline that says more than its steps."""

    steps: tuple[StepConfig, ...] = Field(description="Its steps, in order.")
    publish: Publish = Field(
        default=None,
        description="Publish the result when a task is done: true pushes the branch; a mapping says more.",
    )
    clarify: Flag | None = Field(
        default=None,
        description="Begin with a short pass that only reads and asks what is unclear about the goal. "
        "Absent: from a threshold of 3 on, if a step writes the plan.",
    )


def _as_pipeline(value: object) -> object:
    if isinstance(value, (Mapping, PipelineConfig)):
        return value
    return {"steps": value}


PipelineValue: TypeAlias = Annotated[
    PipelineConfig,
    BeforeValidator(_as_pipeline, json_schema_input_type=tuple[StepConfig, ...] | PipelineConfig),
]


class ProjectFile(RepositorySettings):
    """Settings of a repository for Cat Herder."""

    pipelines: dict[Name, PipelineValue] | None = Field(
        default=None,
        description="Pipelines by name, each a list of steps, or a mapping with steps, publish and clarify.",
    )


@dataclass(frozen=True)
class Pipeline:
    """A named, ordered list of steps, at least one, and how results are published by itself, if at all.

    `clarify`: whether tasks begin with the clarifying pass; None: see `config/planning.py`.
    """

    name: str
    steps: tuple[StepConfig, ...]
    publish: PublishConfig | None = None
    clarify: bool | None = None


class ProjectConfig(RepositorySettings):
    """The settings of a project. None stands for what the file does not say and has no default.

    `network_limit` is not in the file: the portal sets it, and no step gets more.
    """

    pipelines: tuple[Pipeline, ...]
    network_limit: Network | None = None

    def network_of(self, step: StepConfig) -> Network:
        """Return what the step may reach: its own setting, else the file's, else all, up to the limit."""
        return least_network(step.network or self.network or "full", self.network_limit or "full")

    @property
    def setup_in_effect(self) -> SetupConfig | None:
        """Return the setup with the network that it gets."""
        if self.setup:
            return self.setup.within(network=self.network, limit=self.network_limit)
        return None

    def labels_of(self, step: StepConfig) -> tuple[str, ...]:
        """Return the labels that a worker must have to run the step."""
        return self.runs_on if step.runs_on is None else step.runs_on


BUILT_IN_PIPELINE = Pipeline(
    name="default",
    steps=(
        StepConfig(
            name="plan", command="plan-task", checks=(FileExistsCheck(type="fileExists", path=PLAN_FILE),)
        ),
        StepConfig(name="implement", command="implement"),
    ),
)


def load_project_config(text: str | None, *, where: str = "cat-herder.yaml") -> ProjectConfig:
    """Return the settings in the text of a `cat-herder.yaml`; the defaults when there is no file (None).

    Raises `ConfigInvalid` that holds every fault of the file with its line and key.
    """
    if text is None:
        return ProjectConfig(pipelines=(BUILT_IN_PIPELINE,))
    document = read_yaml(text, where=where)
    together = [*pipeline_problems(document, built_in=BUILT_IN_PIPELINE.name), *tool_problems(document)]
    file = read_model(ProjectFile, document, where=where, keys_at=_model_at, also=together)
    pipelines = tuple(
        Pipeline(name=name, steps=one.steps, publish=one.publish, clarify=one.clarify)
        for name, one in (file.pipelines or {}).items()
    )
    values = {name: getattr(file, name) for name in RepositorySettings.model_fields}
    return ProjectConfig(pipelines=pipelines or (BUILT_IN_PIPELINE,), **values)


def _model_at(location: Location) -> type[FileModel]:
    """Return the model that holds the key at `location` (a check's type is part of the location)."""
    inner: dict[str | int, type[FileModel]] = {
        "fileAccess": FileAccess,
        "limits": Limits,
        "publish": PublishConfig,
        "setup": SetupConfig,
        "cache": CacheConfig,
        "none": NoCheck,
        "fileExists": FileExistsCheck,
        "shell": ShellCheck,
    }
    if len(location) == 1:
        return ProjectFile
    if location[0] == "ask":
        return AskRule
    if location[0] == "pipelines" and len(location) == 3:
        return PipelineConfig
    return inner.get(location[-2], StepConfig)


def choose_pipeline(config: ProjectConfig, *, explicit: str | None, task: str | None) -> Pipeline:
    """The pipeline of a task: of flag or form, else of its front matter, else the default, else the first.

    Raises `BadInput` that names who asked for an unknown pipeline and lists the known ones.
    """
    sources = (("the request", explicit), ("the task", task), ("defaultPipeline", config.default_pipeline))
    for source, name in sources:
        if name:
            return _named(config, name, source=source)
    return config.pipelines[0]


def _named(config: ProjectConfig, name: str, *, source: str) -> Pipeline:
    known = {pipeline.name: pipeline for pipeline in config.pipelines}
    if name not in known:
        listed = f"known are: {', '.join(known)}{did_you_mean(name, known)}"
        raise BadInput(f"there is no pipeline {shown(name)}, which {source} names; {listed}")
    return known[name]


def step_to_json(step: StepConfig) -> JsonObject:
    """A step as plain JSON in the words of `cat-herder.yaml`, for the snapshot that a task keeps."""
    return step.model_dump(mode="json", by_alias=True)


def step_from_json(snapshot: Mapping[str, object], *, where: str = "step snapshot") -> StepConfig:
    """Return the step that `step_to_json` wrote. Raises `BadInput` that names `where` and the key."""
    try:
        return StepConfig.model_validate(snapshot, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{key_path(first['loc'])} {describe(first)}", where=where) from error


# The JSON Schema of `cat-herder.yaml`, for editors.


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> JsonObject:
    """Return the schema of the file as people write it; every key has a description."""
    schema: JsonObject = ProjectFile.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, **schema, "title": "cat-herder.yaml"}
