"""The settings of a project in `cat-herder.yaml`: one descriptor each, for file, form, API, page and command.

A new setting is a key here with a `Setting`, and a column of `models.Project` with its name. The pages, the
API and the commands read both from `project_settings`. What a task needs of it is copied when it is created.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tasks_app.config import setting
from tasks_app.config.fields import (
    CallPattern,
    FileModel,
    Flag,
    InsidePath,
    ModelName,
    Name,
    Threshold,
    WorkerLabels,
    as_list,
)
from tasks_app.config.limits import Limits
from tasks_app.config.machine import ReadableFolders, Toolchains
from tasks_app.config.setting import Setting
from tasks_app.config.setup import Setup
from tasks_app.core.types import Network, least_network

DEFAULT_TASK_FOLDER = "cat-herder-tasks"


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
