"""JSON models of tasks, steps, runs and events."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Literal, Self

from pydantic import Field

from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.task_file import PriorityName
from tasks_app.core.phases import Phase
from tasks_app.history import statistics
from tasks_app.history.statistics import Metrics
from tasks_app.models import (
    DecisionEvent,
    Event,
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
)
from tasks_app.models.task import priority_name
from tasks_app.reporting.commands import fetch_command_for
from tasks_app.reporting.queue import queue_sentence
from tasks_app.reporting.schemas.base import (
    DateTime,
    HasMetrics,
    HasTimes,
    Json,
    Out,
    metrics_fields,
    user_or_none,
)
from tasks_app.reporting.schemas.costs import BudgetsOut, ForecastOut, HasForecast
from tasks_app.reporting.schemas.publications import PullRequestOut
from tasks_app.reporting.schemas.questions import QuestionOut


class TaskOut(HasTimes, HasMetrics):
    """One goal, run through one pipeline on one branch."""

    task: int = Field(description="The task's id.")
    project: str = Field(description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    title: str = Field(description="Its title.")
    sequence: int | None = Field(description="The id of the sequence that it belongs to.")
    phase: Phase = Field(description="What it does or waits for.")
    finished_early: bool = Field(
        description="Whether it is `done` without all of its steps, because a human had it finished early at"
        " its soft cost limit."
    )
    failure: str = Field(description="Why it failed; else empty.")
    pipeline: str = Field(
        description="The pipeline that it runs through; empty for an export of decisions, which has no steps."
    )
    threshold: int = Field(description=SETTINGS["threshold"].help)
    priority: PriorityName = Field(description="How early it has its turn among the tasks that wait.")
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
    fault: str = Field(description="What is in the way that passes by itself, like a full disk; else empty.")
    retry_at: DateTime | None = Field(description="When it is tried again after such a fault.")
    branch: str = Field(description="The branch that it works on.")
    commit: str = Field(description="The newest commit of its work; empty before the first.")
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
    def of(
        cls,
        task: Task,
        *,
        metrics: Metrics | None = None,
        open_questions: Collection[Question] | None = None,
        pull_requests: Mapping[int, PullRequest] | None = None,
        followed: Collection[int] | None = None,
        **more: Any,
    ) -> Self:
        """Make a model; callers with many tasks pass what is known of all of them, to save queries."""
        if open_questions is None:
            open_questions = Question.objects.open_of(task)
        if pull_requests is None:
            pull_requests = PullRequest.objects.newest_of([task])
        if followed is None:
            followed = DecisionEvent.objects.followed_by([task])[task.pk]
        questions = [QuestionOut.of(question) for question in open_questions]
        pull_request = pull_requests.get(task.pk)
        return cls(
            task=task.pk,
            project=task.project.name,
            name=f"{task.project.name}/{task.slug}",
            title=task.title,
            sequence=task.sequence_id,
            phase=Phase(task.phase),
            finished_early=task.finished_early,
            failure=task.failure,
            pipeline=task.pipeline,
            threshold=task.threshold,
            priority=priority_name(task.priority),
            publish=task.publish,
            question=questions[0] if questions else None,
            questions=questions,
            created_by=user_or_none(task.created_by),
            created_at=task.created_at,
            started_at=task.started_at,
            ended_at=task.ended_at,
            resets_at=task.resets_at,
            waits_for_budget=task.phase == Phase.WAITING_FOR_RESET and task.waits_for_budget,
            fault=task.fault if task.waits_for_retry else "",
            retry_at=task.retry_at if task.waits_for_retry else None,
            **metrics_fields(metrics or statistics.of_task(task)),
            branch=task.branch,
            commit=task.head_commit,
            pull_request=PullRequestOut.of(pull_request) if pull_request else None,
            fetch=fetch_command_for(task),
            left_out=task.left_out,
            log_removed_at=task.log_removed_at,
            followed_decisions=list(followed),
            **more,
        )


def tasks_out(tasks: Collection[Task]) -> list[TaskOut]:
    """Make models of many tasks, with as many queries as for one."""
    metrics, questions = statistics.of_tasks(tasks), Question.objects.open_by_task(tasks)
    pull_requests = PullRequest.objects.newest_of(tasks)
    followed = DecisionEvent.objects.followed_by(tasks)
    return [
        TaskOut.of(
            task,
            metrics=metrics[task.pk],
            open_questions=questions.get(task.pk, ()),
            pull_requests=pull_requests,
            followed=followed[task.pk],
        )
        for task in tasks
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

    @classmethod
    def of(cls, setup: Setup) -> Self:
        return cls(
            number=setup.number,
            outcome=SetupOutcome(setup.outcome) if setup.outcome else "",
            current=setup.current,
            cache=SetupCache(setup.cache) if setup.cache else "",
            reports=[SetupReportOut(**report) for report in setup.reports],
            problem=setup.problem,
            started_at=setup.started_at,
            ended_at=setup.ended_at,
        )


class OneTask(TaskOut):
    """A task with what lists leave out."""

    queue: str = Field(
        description="Where it stands in the queue and what it waits for; empty if it does not wait there."
    )
    setup: Json | None = Field(
        description="How its workspace is made ready, as cat-herder.yaml has it; null: it is not."
    )
    setups: list[SetupOut] = Field(description="How its workspace was made ready, in order.")

    @classmethod
    def of(cls, task: Task, **more: Any) -> Self:
        setups = [] if task.setup is None else [SetupOut.of(one) for one in task.setups.all()]
        return super().of(task, queue=queue_sentence(task), setup=task.setup, setups=setups, **more)


class TaskDetail(OneTask):
    text: str = Field(description="The task as it was written, front matter included.")


class CreatedTask(TaskDetail, HasForecast):
    """A task that was just created, with what is known of its cost."""


class RunOut(Out):
    """One process of the agent."""

    number: int = Field(description="Counts the runs of the step from 1.")
    reason: Reason = Field(
        description="Why it was started: first, answer, check_failed, limit, crash, retry or review."
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
    reported_cost_usd: float | None = Field(description="US dollars as the agent reported them, if it did.")
    input_tokens: int = Field(description="Tokens read, neither from the cache nor written to it.")
    output_tokens: int = Field(description="Tokens written by the model.")
    cache_write_tokens: int = Field(description="Tokens read and written to the cache.")
    cache_read_tokens: int = Field(description="Tokens read from the cache.")
    cost_usd: float = Field(description="US dollars.")

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(
            number=run.number,
            reason=Reason(run.reason),
            outcome=Outcome(run.outcome) if run.outcome else "",
            error=run.error,
            model=run.model,
            started_at=run.started_at,
            ended_at=run.ended_at,
            exit_code=run.exit_code,
            network=run.network,
            metered=run.metered,
            reported_cost_usd=run.reported_cost_usd,
            **asdict(run.usage),
        )


class StepOut(Out):
    """One stage of the pipeline, with its runs."""

    position: int = Field(description="Its place in the pipeline, from 1.")
    name: str = Field(description="Its name.")
    kind: StepKind = Field(
        description="`work` for a step of the pipeline; `clarify` for the questions before them."
    )
    phase: Phase = Field(description="What it does or waits for.")
    failure: str = Field(description="Why it failed; else empty.")
    plan: str = Field(description="The plan that it wrote, or changed, as Markdown; else empty.")
    runs: list[RunOut] = Field(description="Its runs in order.")

    @classmethod
    def of(cls, step: Step) -> Self:
        """Make a model, with one query for the runs unless they were prefetched."""
        return cls(
            position=step.position,
            name=step.name,
            kind=StepKind(step.kind),
            phase=Phase(step.phase),
            failure=step.failure,
            plan=step.plan or "",
            runs=[RunOut.of(run) for run in step.runs.all()],
        )


class TaskWithSteps(OneTask):
    """Output of `manage.py status TASK --json`."""

    steps: list[StepOut] = Field(description="Its steps in order.")


class TaskOutcome(TaskOut):
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

    id: int = Field(description="The event's id: events of a task rise in time.")
    step: str = Field(description="The step in which it happened.")
    run: int = Field(description="The number of the step's run.")
    seq: int = Field(description="Counts the events of the run from 0.")
    kind: EventKind = Field(description="What it is.")
    at: DateTime = Field(description="When it happened.")
    payload: Json = Field(description="What happened; the members depend on the kind.")

    @classmethod
    def of(cls, event: Event) -> Self:
        return cls(
            id=event.pk,
            step=event.run.step.name,
            run=event.run.number,
            seq=event.seq,
            kind=EventKind(event.kind),
            at=event.at,
            payload=event.payload,
        )


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
    body: str = Field(description="The Markdown below the front matter.")
    commit: str = Field(description="The commit whose settings were read.")


class Diff(Out):
    base: str = Field(description="The commit before.")
    head: str = Field(description="The commit after.")
    diff: str = Field(description="The unified diff, cut after two million bytes; empty without changes.")
