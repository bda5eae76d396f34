"""Pipelines, steps and checks, and the `cat-herder.yaml` that holds them (SPEC P1–P3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, Strict, ValidationError

from tasks_app.config import setting
from tasks_app.config.check import Checks, FileExistsCheck, NoCheck, ShellCheck
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
    Threshold,
    WorkerLabels,
    as_list,
)
from tasks_app.config.limits import Limits
from tasks_app.config.machine import ReadableFolders, Toolchains
from tasks_app.config.pipeline_faults import pipeline_problems
from tasks_app.config.publish import Publish, PublishConfig
from tasks_app.config.reading import read_model
from tasks_app.config.setting import Setting
from tasks_app.config.setup import CacheConfig, Setup, SetupConfig
from tasks_app.config.tool_names import tool_problems
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.errors import BadInput
from tasks_app.core.types import JsonObject, Network, least_network

DEFAULT_TASK_FOLDER = "cat-herder-tasks"


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
    return value if isinstance(value, (Mapping, PipelineConfig)) else {"steps": value}


PipelineValue: TypeAlias = Annotated[
    PipelineConfig,
    BeforeValidator(_as_pipeline, json_schema_input_type=tuple[StepConfig, ...] | PipelineConfig),
]


class RepositorySettings(FileModel):
    """The keys of `cat-herder.yaml` except the pipelines; the portal can override those with a Setting."""

    task_folder: InsidePath = Field(default=DEFAULT_TASK_FOLDER, description="Where the task files are.")
    interaction_threshold: Annotated[
        Threshold | None,
        Setting(
            name="threshold",
            kind=setting.THRESHOLD,
            label="Threshold",
            help="How readily the agent asks: from 0 (never) to 5 (about any ambiguity).",
            default=lambda config, environment: f"{environment.threshold} (installation default)",
        ),
    ] = None
    default_pipeline: Annotated[
        Name | None,
        Setting(
            kind=setting.PIPELINE,
            label="Pipeline",
            help="The pipeline of tasks that name none.",
            default=lambda config, environment: f"{config.pipelines[0].name} (first pipeline)",
        ),
    ] = None
    model: Annotated[
        ModelName | None,
        Setting(
            kind=setting.MODEL,
            label="Model",
            help="The model of steps and tasks that name none.",
            default=lambda config, environment: "Claude Code’s default",
        ),
    ] = None
    wait_for_rate_limit_reset: Annotated[
        Flag,
        Setting(
            name="wait_for_reset",
            kind=setting.FLAG,
            label="Wait for usage limits",
            help="Wait for a usage limit to reset instead of failing.",
        ),
    ] = False
    auto_commit: Annotated[
        Flag,
        Setting(kind=setting.FLAG, label="Checkpoints", help="Commit a checkpoint after each step."),
    ] = False
    publish_plan: Annotated[
        Flag,
        Setting(
            kind=setting.FLAG,
            label="Plan in the result",
            help="Keep PLAN.md in the result. Otherwise it is removed when the task ends; the task’s page "
            "still shows it.",
        ),
    ] = False
    manage_git_branch: Annotated[
        Flag,
        Setting(
            kind=setting.FLAG,
            label="A branch for each task",
            help="Work on a new branch for each task. Otherwise tasks work on the project’s own branch.",
        ),
    ] = True
    ask_before: Annotated[
        tuple[CallPattern, ...],
        Setting(
            kind=setting.CALL_PATTERNS,
            label="Ask before",
            help="Tool calls that a human must approve, such as Bash(git push*) or Write(migrations/**).",
            default=lambda config, environment: "none",
        ),
    ] = ()
    network: Annotated[
        Network | None,
        Setting(
            kind=setting.NETWORK,
            label="Network, at most",
            help="What agents and checks may reach. full: the machine’s network; model: only the model; "
            "none: not even web pages that the model would fetch. A step may get less.",
            file_help="What agents and checks may reach: full (the machine's network), model (only the "
            "agent's own model), none (not even what the model would fetch). For steps that name none; "
            "default: full.",
            overrides="network_limit",
            in_effect=lambda override, in_file, environment: least_network(
                override or "full", in_file or "full", environment.network
            ),
        ),
    ] = None
    runs_on: Annotated[
        WorkerLabels,
        as_list,
        Setting(
            kind=setting.LABELS,
            label="Runs on",
            help="Labels that a worker must have for steps that name none, such as gpu.",
            default=lambda config, environment: "any worker",
        ),
    ] = ()
    limits: Limits = Field(default_factory=Limits, description="Bounds on turns, cost and time.")
    setup: Setup = Field(
        default=None,
        description="Commands that make a new workspace ready, such as npm ci: one, a list, or a mapping.",
    )
    toolchains: Toolchains = Field(
        default=(),
        description="Toolchains of the machine that tasks use: rust, node, python, java, or a listed one.",
    )
    readable: ReadableFolders = Field(
        default=(),
        description="Folders of the machine that tasks may read, if the installation lists them.",
    )
    submodules: Flag = Field(
        default=False, description="Fetch the submodules of the repository into a new workspace."
    )
    lfs: Flag = Field(
        default=False, description="Fetch the contents of Git LFS into a new workspace, instead of pointers."
    )


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
        return self.setup.within(network=self.network, limit=self.network_limit) if self.setup else None

    def labels_of(self, step: StepConfig) -> tuple[str, ...]:
        """Return the labels that a worker must have to run the step."""
        return self.runs_on if step.runs_on is None else step.runs_on


BUILT_IN_PIPELINE = Pipeline(
    name="default",
    steps=(
        StepConfig(
            name="plan", command="plan-task", checks=(FileExistsCheck(type="fileExists", path="PLAN.md"),)
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
    return _project_config(read_model(ProjectFile, document, where=where, keys_at=_model_at, also=together))


def _project_config(file: ProjectFile) -> ProjectConfig:
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
