"""Tasks, their steps, runs and events."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, Figures, Flag, Input, Json, Storable, Threshold, Timed
from tasks_app.api.schemas.questions import QuestionFacts
from tasks_app.core.phases import Phase
from tasks_app.models import EventKind


class TaskFacts(Timed, Figures):
    """One goal, run through one pipeline on one branch."""

    task: int = Field(description="The task's number.")
    project: str = Field(description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    title: str = Field(description="Its title.")
    sequence: int | None = Field(description="The number of the sequence that it belongs to.")
    phase: Phase = Field(description="What it does or waits for.")
    failure: str = Field(description="Why it failed; else empty.")
    pipeline: str = Field(description="The pipeline that it runs through.")
    threshold: int = Field(description="How readily the agent asks, from 0 (never) to 5.")
    question: QuestionFacts | None = Field(description="The first open question.")
    questions: list[QuestionFacts] = Field(description="All open questions.")
    resets_at: str | None = Field(description=f"When the usage limit resets that it waits for. {AT}")
    fault: str = Field(description="What is in the way that passes by itself, like a full disk; else empty.")
    retry_at: str | None = Field(description=f"When it is tried again after such a fault. {AT}")
    branch: str = Field(description="The branch that it works on.")
    commit: str = Field(description="The newest commit of its work; empty before the first.")
    fetch: str | None = Field(
        description="The git command that brings its branch into a clone on that machine."
    )
    left_out: list[str] = Field(
        description="What is in its workspace and not in its commit, or was lost, one sentence each."
    )


class TaskPage(Schema):
    items: list[TaskFacts] = Field(description="Tasks, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class TaskWhole(TaskFacts):
    text: str = Field(description="The task as it was written, front matter included.")


class TaskDraft(Input):
    """A task's text, and what is to hold instead of its front matter and the project's settings."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name.", examples=["sample"]
    )
    text: Annotated[Storable, Field(min_length=1, max_length=1_000_000)] = Field(
        description="Markdown with optional front matter; the first heading is the title.",
        examples=["# Round invoice totals to the cent\n\nRound them where they are computed."],
    )
    threshold: Threshold | None = Field(None, description="How readily the agent asks, from 0 (never) to 5.")
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="One of the project's pipelines."
    )


class NewTask(TaskDraft):
    """A task that is to be created."""

    start: Flag = Field(False, description="Start it at once.")


class TaskPreview(Schema):
    """What a text would become, as the settings are at the newest commit that the portal has."""

    title: str = Field(description="Its title.")
    pipeline: str = Field(description="The pipeline that it would run through.")
    steps: list[str] = Field(description="The names of the steps.")
    threshold: int = Field(description="How readily the agent would ask, from 0 (never) to 5.")
    model: str = Field(description="The model of steps that name none; empty: Claude Code's own default.")
    resume: str = Field(description="`session` or `replay`: how it goes on after an answer.")
    body: str = Field(description="The Markdown below the front matter.")
    commit: str = Field(description="The commit whose settings were read.")


class TaskPatch(Input):
    """What is to be changed of a task."""

    threshold: Threshold = Field(
        description="How readily the agent asks, from 0 (never) to 5; holds from its next run on."
    )


class Retry(Input):
    """How a step is to be done again."""

    put_back: Flag = Field(
        False, description="Put the files back first, as they were before the step; else they stay."
    )


class RunFacts(Schema):
    """One process of the agent."""

    number: int = Field(description="Counts the runs of the step from 1.")
    reason: str = Field(description="Why it was started: first, answer, check_failed, limit, crash or retry.")
    outcome: str = Field(description="How it ended; empty while it goes on.")
    error: str = Field(description="What went wrong; else empty.")
    model: str = Field(description="The model; empty until it is known.")
    started_at: str = Field(description=f"When the process started. {AT}")
    ended_at: str | None = Field(description=f"When it ended. {AT}")
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


class StepFacts(Schema):
    """One stage of the pipeline, with its runs."""

    position: int = Field(description="Its place in the pipeline, from 1.")
    name: str = Field(description="Its name.")
    phase: Phase = Field(description="What it does or waits for.")
    failure: str = Field(description="Why it failed; else empty.")
    plan: str = Field(description="The plan that it wrote, or changed, as Markdown; else empty.")
    runs: list[RunFacts] = Field(description="Its runs in order.")


class Steps(Schema):
    items: list[StepFacts] = Field(description="The steps in order.")


class EventFacts(Schema):
    """One thing that happened in a run."""

    id: int = Field(description="The event's number: events of a task rise in time.")
    step: str = Field(description="The step in which it happened.")
    run: int = Field(description="The number of the step's run.")
    seq: int = Field(description="Counts the events of the run from 0.")
    kind: EventKind = Field(description="What it is.")
    at: str = Field(description=f"When it happened. {AT}")
    payload: Json = Field(description="What happened; the members depend on the kind.")


class EventPage(Schema):
    items: list[EventFacts] = Field(description="Events in the order in which they happened.")
    next: str = Field(description="The address of what comes after these, now or later.")
    more: bool = Field(description="Whether there is more already; else ask again when there is news.")


class Diff(Schema):
    base: str = Field(description="The commit before.")
    head: str = Field(description="The commit after.")
    diff: str = Field(description="The unified diff, cut after two million bytes; empty without changes.")
