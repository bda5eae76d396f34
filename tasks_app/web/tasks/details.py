"""Values of a task's page, computed from its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import Prefetch, prefetch_related_objects
from django.utils import timezone

from tasks_app.config.pipeline import step_from_json
from tasks_app.config.planning import writes_plan
from tasks_app.core.amounts import counted, whole_seconds
from tasks_app.core.phases import CANCELLABLE, RETRYABLE, Phase
from tasks_app.core.types import Usage
from tasks_app.history.events.logs import ending_of
from tasks_app.history.transitions import PAUSES, Pause, cancellation_of, pauses_of
from tasks_app.models import (
    Outcome,
    PullRequest,
    Question,
    QuestionKind,
    Reason,
    Run,
    Setup,
    SetupOutcome,
    Step,
    Task,
    Transition,
    User,
    prefetch_answerers,
)
from tasks_app.permissions import Principal
from tasks_app.prompting.feedback import NOT_DONE
from tasks_app.services.commands import fetch_command
from tasks_app.services.publishing.pull_requests import newest_pull_request
from tasks_app.services.tasks import has_successor, why_not_resume
from tasks_app.services.usage import statistics
from tasks_app.services.usage.cost_limits import budgets_of_task
from tasks_app.services.usage.statistics import Duration
from tasks_app.services.wait_sentences import fault_words, phase_sentence, reset_words
from tasks_app.services.workers.queue import queue_sentence

#: Outcomes after which nothing runs until somebody, or a limit, lets it go on.
_WAITS = {Outcome.LIMIT: "at a limit", Outcome.INTERRUPTED: ""}
#: What a run that asked waits for, by the kind of its question.
_ASKED: dict[str, str] = {
    QuestionKind.CLARIFICATION: "for an answer",
    QuestionKind.APPROVAL: "for an approval",
    QuestionKind.PLAN: "for a review of the plan",
}
_ICONS = {
    Outcome.FINISHED: "check",
    Outcome.ASKED: "ask",
    Outcome.FAILED: "cross",
    Outcome.LIMIT: "clock",
    Outcome.INTERRUPTED: "pause",
    Outcome.CRASHED: "cross",
    Outcome.LOST: "cross",
    Outcome.UNDELIVERED: "cross",
}
_TONES = {"cross": "bad", "check": "good", "play": "active"}
_TAIL_LINES = 12
_TAIL_LENGTH = 2_000


@dataclass(frozen=True)
class RunDetails:
    """A run. `reason` and `ending`: why it began, and how it ended.

    `waited`: seconds for which the task paused before the next run; `waits_for` says for what. `waits_since`:
    when a task that still waits would have begun to wait without a break.
    `failed_check` is the check that its work did not pass.
    """

    run: Run
    spent: Usage
    reason: str
    ending: str
    waited: float | None = None
    waits_for: str = ""
    waits_since: datetime | None = None

    @property
    def runs_now(self) -> bool:
        return self.run.ended_at is None

    @property
    def failed_check(self) -> dict[str, Any] | None:
        return next((report for report in self.run.checks or [] if not report.get("passed")), None)

    @property
    def tail(self) -> str:
        """The last lines of the failed check's output."""
        return _tail(self.failed_check or {})

    @property
    def icon(self) -> str:
        if self.failed_check:
            return "cross"
        return _ICONS[Outcome(self.run.outcome)] if self.run.outcome else "play"

    @property
    def tone(self) -> str:
        return _TONES.get(self.icon, "quiet")


@dataclass(frozen=True)
class StepDetails:
    """A step. `history`: runs before the last retry; `current`: whether it is the current step.

    `note` says of the clarifying pass what came of it.
    """

    step: Step
    runs: list[RunDetails]
    history: list[RunDetails]
    spent: Usage
    duration: Duration
    current: bool = False
    can_retry: bool = False
    note: str = ""

    @property
    def only_run(self) -> RunDetails | None:
        """The only run, if there is no more to say of it than of the step itself."""
        if self.step.phase != Phase.DONE or self.history or len(self.runs) != 1:
            return None
        one = self.runs[0]
        run = one.run
        if run.reason != Reason.FIRST or run.outcome != Outcome.FINISHED or one.failed_check or one.waited:
            return None
        if run.error or run.rehearsed or run.agent_reports_other_cost or run.network in ("model", "none"):
            return None
        return one


@dataclass(frozen=True)
class SetupDetails:
    """A setup of the task's workspace."""

    setup: Setup

    @property
    def title(self) -> str:
        return "Workspace made ready" if self.setup.outcome == SetupOutcome.DONE else "Setup of the workspace"

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The commands that have ended, each with the last lines of its output."""
        return [{**report, "tail": _tail(report)} for report in self.setup.reports]

    @property
    def note(self) -> str:
        """Why it ended without success, such as a cancellation, unless one of the commands says that."""
        said = any(report.get("problem") for report in self.setup.reports)
        return "" if said else self.setup.problem

    @property
    def icon(self) -> str:
        icons = {"": "play", SetupOutcome.DONE: "check", SetupOutcome.STOPPED: "pause"}
        return icons.get(self.setup.outcome, "cross")

    @property
    def tone(self) -> str:
        return _TONES.get(self.icon, "quiet")


@dataclass(frozen=True)
class TaskDetails:
    """A task, for a viewer. Each value is computed when a part of the page first needs it."""

    task: Task
    viewer: Principal

    @cached_property
    def step_rows(self) -> list[Step]:
        return list(self.task.steps.all())

    @cached_property
    def watchers(self) -> list[User]:
        return list(self.task.watchers.order_by("username"))

    @property
    def is_watched(self) -> bool:
        """Return whether the viewer watches the task."""
        return self.viewer.user in self.watchers

    @cached_property
    def steps(self) -> list[StepDetails]:
        return _step_details(self.task, self.step_rows, self.current_step)

    @cached_property
    def setups(self) -> list[SetupDetails]:
        """The setups of the workspace; none are looked up for a project without."""
        if self.task.setup is None:
            return []
        return [SetupDetails(one) for one in self.task.setups.all()]

    @property
    def setup_failed(self) -> bool:
        """Return whether the last setup failed, so that no agent has worked since."""
        return bool(self.setups) and self.setups[-1].setup.outcome == SetupOutcome.FAILED

    @property
    def step_began(self) -> bool:
        """Return whether an agent has worked on the current step; a workspace may fail before that."""
        return self.current_step is not None and self.current_step.current_runs.exists()

    @cached_property
    def _metrics(self) -> statistics.Metrics:
        return statistics.of_task(self.task)

    @property
    def spent(self) -> Usage:
        return self._metrics.usage

    @property
    def duration(self) -> Duration:
        return self._metrics.duration

    @property
    def seconds_beside_steps(self) -> int:
        """Whole seconds of work outside of the steps and the setup, such as for the clone and for recording.

        0 while the task works on that, as it is not known yet.
        """
        now = timezone.now()
        at_work = [one.duration for one in self.steps if one.step.phase == Phase.RUNNING]
        if self.phase is Phase.RUNNING and not at_work:
            return 0
        steps = sum(_seconds_shown(one.step, one.duration, now) for one in self.steps)
        setups = sum(whole_seconds(one.setup.seconds or 0.0) for one in self.setups)
        return max(0, _seconds_shown(self.task, self.duration, now) - steps - setups)

    @property
    def fetch(self) -> str:
        return fetch_command(self.task.project, self.task.branch)

    @property
    def phase(self) -> Phase:
        return Phase(self.task.phase)

    @property
    def can_cancel(self) -> bool:
        return self.phase in CANCELLABLE and not self.task.not_started

    @property
    def can_resume(self) -> bool:
        """Return whether it is offered. What waits for a budget goes on by itself once there is enough."""
        waits_for_budget = self.phase is Phase.WAITING_FOR_RESET and self.task.waits_for_budget
        return why_not_resume(self.task) is None and not (waits_for_budget and self.limit)

    @cached_property
    def was_rehearsed(self) -> bool:
        """Return whether a script played the model in one of its runs."""
        return any(one.run.rehearsed for step in self.steps for one in step.runs)

    @cached_property
    def cancelled(self) -> Transition | None:
        """Return who cancelled the task and when, or None."""
        return cancellation_of(self.task)

    @cached_property
    def ended_pull_request(self) -> PullRequest | None:
        """Return the pull request with which the result was merged or turned down, or None."""
        if self.phase is not Phase.DONE:
            return None
        newest = newest_pull_request(self.task)
        return newest if newest and not newest.is_open else None

    @cached_property
    def sentence(self) -> str:
        """Return what the phase means; of a task that waits for people, what kind of question is open."""
        return phase_sentence(self.task)

    @cached_property
    def is_continued(self) -> bool:
        """Return whether a later task of its sequence works on the same branch, and publishes it."""
        return has_successor(self.task)

    @cached_property
    def limit(self) -> str:
        """Return the usage limit, budget or temporary fault that the task waits for."""
        if fault := fault_words(self.task):
            return fault
        if self.phase is not Phase.WAITING_FOR_RESET:
            return ""
        if self.task.waits_for_budget:
            return budgets_of_task(self.task).problem(self.viewer)
        return reset_words(self.task.resets_at, now=timezone.now())

    @cached_property
    def queue(self) -> str:
        """Return where the task stands in the queue and what it waits for; "" if it does not wait there."""
        waits = (self.phase is Phase.PENDING and not self.task.waits_for_retry) or self.task.lost_its_worker
        return queue_sentence(self.task, self.viewer) if waits else ""

    @property
    def planned(self) -> Step | None:
        """Return the step with the current plan: the last that wrote or changed it."""
        return next((step for step in reversed(self.step_rows) if step.plan), None)

    @property
    def has_worked(self) -> bool:
        """Return whether a step was recorded that may change files; the questions before work do not."""
        return any(step.head_commit and not step.is_clarifying for step in self.step_rows)

    @property
    def awaits_plan(self) -> bool:
        """Return whether a step of the task may still write a plan."""
        if self.task.is_ended:
            return False
        return any(writes_plan(step_from_json(step.config)) for step in self.step_rows)

    @cached_property
    def open_plan(self) -> Question | None:
        """Return the plan that waits for a review."""
        return self.task.questions.open().filter(kind=QuestionKind.PLAN).first()

    @property
    def steps_not_done(self) -> list[Step]:
        return [step for step in self.step_rows if step.phase != Phase.DONE]

    @property
    def current_step(self) -> Step | None:
        if self.task.finished_early:
            return None
        return next(iter(self.steps_not_done), None)


def _seconds_shown(thing: Task | Step, duration: Duration, now: datetime) -> int:
    """Return the whole seconds of work that the page shows at this moment."""
    if thing.phase == Phase.RUNNING and duration.working_since:
        return whole_seconds((now - duration.working_since.replace(microsecond=0)).total_seconds())
    return whole_seconds(duration.working or 0.0)


def _tail(report: Mapping[str, Any]) -> str:
    """Return the last lines of a command's output."""
    output = str(report.get("output", "")).strip()
    return "\n".join(output[-_TAIL_LENGTH:].split("\n")[-_TAIL_LINES:])


def _step_details(task: Task, steps: list[Step], current: Step | None) -> list[StepDetails]:
    asked = Prefetch("runs__questions", Question.objects.of_agents().only("run", "kind"))
    prefetch_related_objects(steps, "runs", asked)
    prefetch_answerers([run for step in steps for run in step.runs.all()])
    metrics = statistics.of_steps(steps)
    retryable = task.phase in RETRYABLE and not has_successor(task)
    pauses = pauses_of(task)
    found = []
    for step in steps:
        rows = list(step.runs.all())
        pairs = zip(rows, [*rows[1:], None], strict=False)
        runs = [_run_details(step, run, after, pauses) for run, after in pairs]
        found.append(
            StepDetails(
                step,
                [one for one in runs if one.run.number >= step.first_run],
                [one for one in runs if one.run.number < step.first_run],
                metrics[step.pk].usage,
                metrics[step.pk].duration,
                current=step == current,
                can_retry=retryable and bool(runs),
                note=_note_on_pass(step) if step.is_clarifying else "",
            )
        )
        retryable = retryable and step.phase == Phase.DONE
    return found


def _note_on_pass(step: Step) -> str:
    """Return what the clarifying pass is for, or what came of it."""
    asked = sum(len(items) for items in step.questions.of_agents().values_list("items", flat=True))
    if asked:
        return f"{counted(asked, 'question')} about the goal, before the work."
    if step.phase != Phase.DONE:
        return "Asks what is unclear about the goal, before the work."
    if not step.runs.all():
        return "Skipped: the threshold was 0, so nobody could be asked."
    return "Ended without a question." if step.runs.all()[0].error else "Nothing was unclear."


def _run_details(step: Step, run: Run, after: Run | None, pauses: list[Pause]) -> RunDetails:
    reason, ending, waits_for = run.reason_label, run.get_outcome_display(), ""
    if run.outcome == Outcome.ASKED:
        kind = _kind_asked(run)
        ending, waits_for = ending_of(run, kind), _ASKED.get(kind, "")
    elif run.error.startswith(NOT_DONE):
        ending = "the agent says that the task is not done"
    elif run.outcome:
        waits_for = _WAITS.get(Outcome(run.outcome), "")
    waits = _pauses_after(step, run, after, pauses)
    waited = sum(one.seconds for one in waits) or None
    since = None
    if waits and waits[-1].ended is None:
        since = waits[-1].began - timedelta(seconds=sum(one.seconds for one in waits[:-1]))
    return RunDetails(run, run.usage, reason, ending, waited, waits_for, since)


def _kind_asked(run: Run) -> str:
    """Return the kind of what the agent asked in a run fetched with its questions; "" for nothing."""
    return next((question.kind for question in run.questions.all()), "")


def _pauses_after(step: Step, run: Run, after: Run | None, pauses: list[Pause]) -> list[Pause]:
    """Return the pauses of the task between the run and the next one, or until now."""
    goes_on = after is None and Phase(step.phase) in PAUSES
    if run.outcome not in (Outcome.ASKED, *_WAITS) or run.ended_at is None or not (after or goes_on):
        return []
    if after and run.outcome == Outcome.ASKED and not _kind_asked(run):  # nobody was asked
        return []
    until = after.started_at if after else timezone.now()
    return [one for one in pauses if run.started_at <= one.began <= until]
