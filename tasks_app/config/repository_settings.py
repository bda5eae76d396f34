"""The settings of `cat-herder.yaml` beside its pipelines: limits, publishing, setup (SPEC P1, M5, M8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from tasks_app.config import setting
from tasks_app.config.faults import fault, shown
from tasks_app.config.fields import (
    MOST_REVIEWERS,
    CalendarSource,
    CallPattern,
    FileModel,
    Flag,
    InsidePath,
    Ladder,
    ModelName,
    Name,
    ReadableFolders,
    Reviewer,
    Seconds,
    ShellCommand,
    Text,
    Threshold,
    Toolchains,
    WorkerLabels,
    as_list,
    check_path,
)
from tasks_app.config.routing import AskRules
from tasks_app.config.setting import Setting
from tasks_app.core.amounts import duration_in_words
from tasks_app.core.ladder import DEFAULT
from tasks_app.core.types import JsonObject, Network, least_network

#: The time limits of a run and of a shell check if neither they nor the project name one.
STEP_SECONDS = 2 * 3600
CHECK_SECONDS = 600


def _time_limit(seconds: int) -> Callable[[object, object], str]:
    return lambda config, environment: f"{duration_in_words(seconds)} (default)"


class Limits(FileModel):
    """Bounds on one run or one task. Absent: no bound, except for STEP_SECONDS and CHECK_SECONDS."""

    max_turns: Annotated[
        Annotated[int, Strict(), Field(ge=1)] | None,
        Setting(kind=setting.COUNT, label="Turns", help="Maximum number of turns of one run."),
    ] = None
    max_cost_usd: Annotated[
        Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None,
        Setting(kind=setting.DOLLARS, label="Dollars", help="Maximum cost of one task."),
    ] = None
    soft_cost_usd: Annotated[
        Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)] | None,
        Setting(
            kind=setting.DOLLARS_OR_NONE,
            label="Ask after spending",
            help="Once a task has cost so many dollars, it asks: allow more, finish early or end. 0: never.",
            default=lambda config, environment: "none",
        ),
    ] = None
    step_timeout: Annotated[
        Seconds | None,
        Setting(
            kind=setting.DURATION,
            label="Time limit of a run",
            help="For steps that name none.",
            default=_time_limit(STEP_SECONDS),
        ),
    ] = None
    check_timeout: Annotated[
        Seconds | None,
        Setting(
            kind=setting.DURATION,
            label="Time limit of a check",
            help="For checks that name none.",
            default=_time_limit(CHECK_SECONDS),
        ),
    ] = None

    @property
    def asks_at_cost_usd(self) -> float | None:
        """Return the soft cost limit; None without one, or if the hard limit is reached first."""
        soft = self.soft_cost_usd
        if soft and soft_limit_fault(soft, hard=self.max_cost_usd) is None:
            return soft
        return None


def soft_limit_fault(soft: float | None, *, hard: float | None) -> str | None:
    """Return why the soft cost limit cannot hold beside the hard one, as the rest of a sentence, or None."""
    if not soft or hard is None or soft < hard:
        return None
    return f"is {soft:g}, but must be less than {hard:g} (maxCostUsd), at which the task fails"


# The key `publish` of a pipeline: how results are published by themselves.


class PublishConfig(FileModel):
    """Automatic publishing of the result when the task is done."""

    squash: Flag = Field(default=False, description="Publish one commit instead of the checkpoints.")
    update: Flag = Field(
        default=False, description="First merge the newest commit of the branch that tasks start from."
    )
    pull_request: Flag = Field(
        default=False, description="Open a pull request, or update the one that is open."
    )
    draft: Flag = Field(default=False, description="Open the pull request as a draft.")
    reviewers: Annotated[tuple[Reviewer, ...], Field(max_length=MOST_REVIEWERS)] = Field(
        default=(), description="Users of the forge who are asked for a review of the pull request."
    )


def _as_publish(value: object) -> object:
    """Return a mapping for `true`, and nothing for `false`."""
    if isinstance(value, bool):
        return {} if value else None
    if value is not None and not isinstance(value, (Mapping, PublishConfig)):
        raise fault(f"must be true, false or a mapping, not {shown(value)}")
    return value


Publish: TypeAlias = Annotated[
    PublishConfig | None, BeforeValidator(_as_publish, json_schema_input_type=bool | PublishConfig)
]


def publish_to_json(publish: PublishConfig | None) -> JsonObject | None:
    """Return how results are published, in the words of `cat-herder.yaml`; None if they are not."""
    if publish:
        return publish.model_dump(mode="json", by_alias=True)
    return None


def publish_from_json(snapshot: Mapping[str, object]) -> PublishConfig:
    """Return what `publish_to_json` wrote."""
    return PublishConfig.model_validate(snapshot, by_alias=True, by_name=False)


# The key `setup`: how a new workspace is made ready before the first agent works in it (M5).


#: The time limit of a command of the setup if the file names none.
SETUP_SECONDS = 1800
MOST_ENTRIES = 50


def _one_or_more(values: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MOST_ENTRIES:
        raise fault(f"must have from 1 to {MOST_ENTRIES} entries, not {len(values)}")
    return values


def _check_cached_path(text: str) -> str:
    """Return a path in the workspace, or after `~/` in the home of the setup."""
    if text.startswith("~/"):
        return f"~/{check_path(text[2:])}"
    return check_path(text)


CachedPath = Annotated[Text, AfterValidator(_check_cached_path)]
T = TypeVar("T")
OneOrMore = Annotated[
    tuple[T, ...],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    AfterValidator(_one_or_more),
]


class CacheConfig(FileModel):
    """Results of a setup that other tasks begin with."""

    key: OneOrMore[InsidePath] = Field(
        description="Files on whose content it depends, such as package-lock.json."
    )
    paths: OneOrMore[CachedPath] = Field(
        description="Folders that it keeps: of the workspace, or after ~/ of the setup's home."
    )


class SetupConfig(FileModel):
    """Commands that make a new workspace ready, such as `npm ci`."""

    run: OneOrMore[ShellCommand] = Field(
        description="Command lines for the shell; they run in order, up to the first that fails."
    )
    timeout: Seconds = Field(
        default=SETUP_SECONDS, description='Time for each command: seconds, or "90s", "15m"; default: 30m.'
    )
    network: Literal["full", "none"] | None = Field(
        default=None, description="What the commands may reach: full or none; absent: as the file's network."
    )
    cache: CacheConfig | None = Field(
        default=None, description="What other tasks with the same lock files begin with."
    )

    def within(self, *, network: Network | None, limit: Network | None) -> SetupConfig:
        """Return the setup with the network that it gets: at most `limit`; `network` is that of the file."""
        allowed = least_network(self.network or network or "full", limit or "full")
        return self.model_copy(update={"network": "full" if allowed == "full" else "none"})


def _as_setup(value: object) -> object:
    return {"run": value} if isinstance(value, str | list) else value


Setup: TypeAlias = Annotated[
    SetupConfig | None,
    BeforeValidator(_as_setup, json_schema_input_type=str | list[str] | SetupConfig | None),
]


def setup_to_json(setup: SetupConfig | None) -> JsonObject | None:
    """Return the setup in the words of `cat-herder.yaml`, for the snapshot that a task keeps."""
    return setup.model_dump(mode="json", by_alias=True) if setup else None


def setup_from_json(snapshot: Mapping[str, object]) -> SetupConfig:
    """Return what `setup_to_json` wrote."""
    return SetupConfig.model_validate(snapshot, by_alias=True, by_name=False)


# The settings of a project in `cat-herder.yaml`: one descriptor each, for file, form, API, page and command.
#
# A new setting is a key here with a `Setting`; `Project.overrides` has what people set. The pages,
# the API and the commands read both from `project_settings`. What a task needs of it is copied when it is
# created.


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
    ask: Annotated[
        AskRules,
        Setting(
            kind=setting.ASK_RULES,
            label="Whom questions are put to",
            help="Rules in YAML; the first rule that fits a question and names somebody counts. An override"
            " replaces those of the file, also for existing tasks.",
            file_help="Whom questions are put to: rules, of which the first that fits a question and names "
            "somebody counts. Without one: CODEOWNERS, who is on call, then who started the task.",
            default=lambda config, environment: "CODEOWNERS, who is on call, then who started the task",
        ),
    ] = ()
    on_call: Annotated[
        CalendarSource | None,
        Setting(
            kind=setting.CALENDAR,
            label="On-call calendar",
            help="Who is asked if no rule and no owner fits: the https URL of a calendar (.ics), or its path "
            "in the repository. All who see the settings see the URL. A change applies at once, also to "
            "existing tasks.",
            file_help="Who is asked if no rule and no owner fits: the https URL of a calendar (.ics), or its "
            "path in the repository, as of the newest commit.",
            default=lambda config, environment: "none",
        ),
    ] = None
    ladder: Annotated[
        Ladder,
        as_list,
        Setting(
            kind=setting.LADDER,
            label="If nobody answers",
            help="What happens after hours in which those asked work: “remind after 4h”, “everybody after "
            "8h”. Or a name: patient, brisk, overnight (also at night) or wait (nothing happens). A change "
            "applies to questions that are asked from then on.",
            file_help="What happens to a question that nobody answers: patient, brisk, overnight, wait, or "
            "rungs such as “remind after 4h” and “everybody after 8h”.",
            default=lambda config, environment: "\n".join(DEFAULT),
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
