"""JSON models of tasks, steps, runs and events."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.task_file import PriorityName
from tasks_app.core.phases import Phase
from tasks_app.git import STATUS_WORDS, ChangedFile
from tasks_app.models import (
    DecisionEvent,
    EventKind,
    Outcome,
    PullRequest,
    Question,
    Reason,
    Run,
    Setup,
    SetupCache,
    SetupOutcome,
    Step,
    StepKind,
    Task,
    User,
)
from tasks_app.models.task import priority_name
from tasks_app.schemas.base import (
    DateTime,
    HasMetrics,
    HasTimes,
    Json,
    Out,
    UserOut,
    metrics_fields,
)
from tasks_app.schemas.publishing import PullRequestOut
from tasks_app.schemas.questions import QuestionOut
from tasks_app.schemas.usage import BudgetsOut, ForecastOut, HasForecast
from tasks_app.services.commands import fetch_command_for
from tasks_app.services.results import accounts_of, building_account_first
from tasks_app.services.usage import statistics
from tasks_app.services.workers.queue import queue_sentence


class TaskOut(HasTimes, HasMetrics):
    """One goal, run through one pipeline on one branch."""

    task: int = Field(validation_alias="pk", description="The task's id.")
    project: str = Field(validation_alias="project.name", description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    title: str = Field(description="Its title.")
    sequence: int | None = Field(
        validation_alias="sequence_id", description="The id of the sequence that it belongs to."
    )
    phase: Phase = Field(validation_alias="shown_phase", description="What it does or waits for.")
    lost_its_worker: bool = Field(
        description="Whether it is `pending` because its worker died. The next free one goes on."
    )
    finished_early: bool = Field(
        validation_alias="ended_early",
        description="Whether it is `done` because a human had it finished early at its soft cost limit, in"
        " its last step or before it.",
    )
    only_rehearsed: bool = Field(
        description="Whether it is `done`, but only a script has played the model and nothing was changed."
    )
    failure: str = Field(description="Why it failed; else empty.")
    pipeline: str = Field(
        description="The pipeline that it runs through; empty for an export of decisions, which has no steps."
    )
    threshold: int = Field(description=SETTINGS["threshold"].help)
    priority: PriorityName = Field(description="How early it has its turn among the tasks that wait.")
    ask: list[str] = Field(
        description="Whom its questions are put to, as the task names them; empty: the project decides."
    )
    publish: Json | None = Field(
        description="How the pipeline publishes the result, as cat-herder.yaml has it; null: it does not."
    )
    question: QuestionOut | None = Field(description="The first open question.")
    questions: list[QuestionOut] = Field(description="All open questions.")
    resets_at: DateTime | None = Field(
        description="When the usage limit resets that it waits for, or the next month begins."
    )
    waits_for_budget: bool = Field(
        description="Whether it waits because its project, or the person who created it, has spent their"
        " budget for this month."
    )
    fault: str = Field(description="A problem that passes by itself, such as a full disk; else empty.")
    retry_at: DateTime | None = Field(description="When it is tried again after such a fault.")
    branch: str = Field(description="The branch that it works on.")
    commit: str = Field(
        validation_alias="head_commit", description="The newest commit of its work; empty before the first."
    )
    pull_request: PullRequestOut | None = Field(
        description="The newest pull request of its result, with how it ended there; null if there is none."
    )
    fetch: str | None = Field(
        description="The git command that brings its branch into a clone on that machine."
    )
    left_out: list[str] = Field(
        description="What is in its workspace and not in its commit, or was lost, one sentence each."
    )
    log_removed_at: DateTime | None = Field(
        description="When its events and logs up to then were removed, because they were old."
    )
    followed_decisions: list[int] = Field(
        description="The numbers of the project's decisions that its agents named as followed."
    )

    @classmethod
    def from_row(cls, task: Task, /, **more: Any) -> Self:
        (made,) = cls.of_each([task], **more)
        return made

    @classmethod
    def of_each(cls, tasks: Collection[Task], **more: Any) -> list[Self]:
        """Make models of many tasks, with as many queries as for one."""
        questions = Question.objects.open_by_task(tasks)
        metrics = statistics.of_tasks(tasks)
        pull_requests = PullRequest.objects.newest_of(tasks)
        followed = DecisionEvent.objects.followed_by(tasks)
        made = []
        for task in tasks:
            open_questions = [QuestionOut.from_row(question) for question in questions.get(task.pk, ())]
            facts = {
                **metrics_fields(metrics[task.pk]),
                "question": next(iter(open_questions), None),
                "questions": open_questions,
                "pull_request": pull_requests.get(task.pk),
                "followed_decisions": followed[task.pk],
            }
            made.append(super().from_row(task, **facts, **more))
        return made

    @staticmethod
    def resolve_name(task: Task) -> str:
        return f"{task.project.name}/{task.slug}"

    @staticmethod
    def resolve_priority(task: Task) -> PriorityName:
        return priority_name(task.priority)

    @staticmethod
    def resolve_waits_for_budget(task: Task) -> bool:
        return task.phase == Phase.WAITING_FOR_RESET and task.waits_for_budget

    @staticmethod
    def resolve_fault(task: Task) -> str:
        if not task.waits_for_retry:
            return ""
        return task.fault

    @staticmethod
    def resolve_retry_at(task: Task) -> datetime | None:
        if not task.waits_for_retry:
            return None
        return task.retry_at

    @staticmethod
    def resolve_fetch(task: Task) -> str | None:
        return fetch_command_for(task)


class MessageOut(Out):
    """What the agent of a finished run said at its end."""

    step: str = Field(description="The step of the run.")
    run: int = Field(validation_alias="run.number", description="The number of the step's run.")
    reason: Reason = Field(validation_alias="run.reason", description="Why the run was started.")
    text: str = Field(description="The message, as Markdown; the end is cut if it was very long.")
    changed_files: int = Field(description="How many files the step changed, apart from the plan.")
    lines_added: int = Field(description="How many lines the step added.")
    lines_removed: int = Field(description="How many lines the step removed.")


class HasMessages(Out):
    messages: list[MessageOut] = Field(
        description="What its agents said at the ends of their runs: first those of the step that built the"
        " result, then the others in order; of each step the newest run last."
    )

    @staticmethod
    def resolve_messages(task: Task) -> list[MessageOut]:
        return [
            MessageOut.from_row(
                message,
                step=account.step.name,
                changed_files=account.changes.files,
                lines_added=account.changes.added,
                lines_removed=account.changes.removed,
            )
            for account in building_account_first(accounts_of([task]))
            for message in account.messages
        ]


class SetupReportOut(Out):
    """A command of a setup that has ended."""

    command: str = Field(description="The command line.")
    output: str = Field(description="What it printed; the beginning is cut if it was long.")
    exit_code: int | None = Field(description="Its exit code; null if it did not end by itself.")
    problem: str = Field(description="Why it failed; empty if it succeeded.")
    seconds: float = Field(description="How long it ran.")


class SetupOut(Out):
    """One pass of the setup's commands in one new workspace."""

    number: int = Field(description="Counts the setups of the task from 1.")
    outcome: SetupOutcome | Literal[""] = Field(description="How it ended; empty while it goes on.")
    current: str = Field(description="The command that runs; empty when none does.")
    cache: SetupCache | Literal[""] = Field(
        description="What became of its cache: waits, used, filled or unused; empty if it has none."
    )
    reports: list[SetupReportOut] = Field(description="The commands that have ended, in order.")
    problem: str = Field(description="Why it failed; else empty.")
    started_at: DateTime = Field(description="When it began.")
    ended_at: DateTime | None = Field(description="When it ended.")


class OneTask(HasMessages, TaskOut):
    """A task with what lists leave out."""

    queue: str = Field(
        description="Where it stands in the queue and what it waits for; empty if it does not wait there."
    )
    setup: Json | None = Field(
        description="How its workspace is made ready, as cat-herder.yaml has it; null: it is not."
    )
    setups: list[SetupOut] = Field(description="How its workspace was made ready, in order.")
    watchers: list[UserOut] = Field(description="Who watches it, and is notified as if it were theirs.")

    @staticmethod
    def resolve_queue(task: Task) -> str:
        return queue_sentence(task)

    @staticmethod
    def resolve_watchers(task: Task) -> list[User]:
        return list(task.watchers.order_by("username"))

    @staticmethod
    def resolve_setups(task: Task) -> Iterable[Setup]:
        return [] if task.setup is None else task.setups.all()


class TaskDetail(OneTask):
    text: str = Field(description="The task as it was written, front matter included.")


class CreatedTask(TaskDetail, HasForecast):
    """A task that was just created, with what is known of its cost."""


class RunOut(Out):
    """One process of the agent."""

    number: int = Field(description="Counts the runs of the step from 1.")
    reason: Reason = Field(
        description=f"Why it was started: {', '.join(Reason.values[:-1])} or {Reason.values[-1]}."
    )
    outcome: Outcome | Literal[""] = Field(description="How it ended; empty while it goes on.")
    error: str = Field(description="What went wrong; else empty.")
    model: str = Field(description="The model; empty until it is known.")
    started_at: DateTime = Field(description="When the process started.")
    ended_at: DateTime | None = Field(description="When it ended.")
    exit_code: int | None = Field(description="The exit code of the process.")
    network: str = Field(
        description="What its processes could reach: full, model or none; empty if not known."
    )
    metered: bool = Field(description="Whether the portal counted tokens and dollars, not the agent.")
    rehearsed: bool | None = Field(
        description="Whether a script played the model, which costs nothing; null if not known."
    )
    needed_usd: float | None = Field(
        description="US dollars that its next request needed of a budget of the month, which left less and "
        "so ended the run."
    )
    reported_cost_usd: float | None = Field(description="US dollars as the agent reported them, if it did.")
    input_tokens: int = Field(description="Tokens read, neither from the cache nor written to it.")
    output_tokens: int = Field(description="Tokens written by the model.")
    cache_write_tokens: int = Field(description="Tokens read and written to the cache.")
    cache_read_tokens: int = Field(description="Tokens read from the cache.")
    cost_usd: float = Field(description="US dollars.")


class StepOut(Out):
    """One stage of the pipeline, with its runs."""

    position: int = Field(description="Its place in the pipeline, from 1.")
    name: str = Field(description="Its name.")
    kind: StepKind = Field(
        description="`work` for a step of the pipeline; `clarify` for the questions before them."
    )
    phase: Phase = Field(validation_alias="shown_phase", description="What it does or waits for.")
    failure: str = Field(description="Why it failed; else empty.")
    plan: str = Field(description="The plan that it wrote, or changed, as Markdown; else empty.")
    runs: list[RunOut] = Field(description="Its runs in order.")

    @staticmethod
    def resolve_plan(step: Step) -> str:
        return step.plan or ""

    @staticmethod
    def resolve_runs(step: Step) -> Iterable[Run]:
        return step.runs.all()  # no query if they were prefetched


class TaskWithSteps(OneTask):
    """Output of `cat-herder status TASK --json`."""

    steps: list[StepOut] = Field(description="Its steps in order.")


class TaskOutcome(HasMessages, TaskOut):
    """Output of commands that run a task."""

    exit_code: int = Field(description="The exit code of the command.")
    forecast: ForecastOut | None = Field(
        None,
        description="What done tasks of the same pipeline had cost and taken when the command created the"
        " task; null if it existed.",
    )
    budgets: BudgetsOut | None = Field(
        None, description="The budgets that limited it then; null if it existed."
    )


class EventOut(Out):
    """One thing that happened in a run."""

    id: int = Field(validation_alias="pk", description="The event's id: events of a task rise in time.")
    step: str = Field(validation_alias="run.step.name", description="The step in which it happened.")
    run: int = Field(validation_alias="run.number", description="The number of the step's run.")
    seq: int = Field(description="Counts the events of the run from 0.")
    kind: EventKind = Field(description="What it is.")
    at: DateTime = Field(description="When it happened.")
    payload: Json = Field(description="What happened; the members depend on the kind.")


class TaskPreview(HasForecast):
    """The task that a text would become, with the settings of the newest commit."""

    title: str = Field(description="Its title.")
    pipeline: str = Field(description="The pipeline that it would run through.")
    steps: list[str] = Field(description="The names of the steps.")
    threshold: int = Field(
        description="The threshold in effect: from 0 (never asks) to 5 (asks about any ambiguity)."
    )
    model: str = Field(description="The model of steps that name none; empty: Claude Code's own default.")
    resume: Literal["session", "replay"] = Field(
        description="`session` or `replay`: how it goes on after an answer."
    )
    ask: list[str] = Field(description="Whom its questions would be put to; empty: the project decides.")
    body: str = Field(description="The Markdown below the front matter.")
    commit: str = Field(description="The commit whose settings were read.")


class ChangedFileOut(Out):
    path: str
    old_path: str = Field(description="The former path of a renamed file; else empty.")
    status: Literal["new", "deleted", "renamed", "changed"]
    added: int = Field(description="Lines; 0 for what is not text, like a link.")
    removed: int
    is_binary: bool
    note: str = Field(
        description="What was changed beside lines: executable bit, type, target of a link, commit of a"
        " submodule; else empty."
    )

    @staticmethod
    def resolve_status(file: ChangedFile) -> str:
        return STATUS_WORDS[file.status]


class Diff(Out):
    base: str = Field(description="The commit before.")
    head: str = Field(description="The commit after.")
    diff: str = Field(description="The unified diff, cut after two million bytes; empty without changes.")
    files: list[ChangedFileOut] = Field(description="The changed files.")
