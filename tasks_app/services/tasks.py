"""Create, start, cancel and resume tasks, and change their threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.text import slugify

from tasks_app.config.faults import ConfigInvalid, Problem
from tasks_app.config.pipeline import Pipeline, ProjectConfig, StepConfig, choose_pipeline, step_to_json
from tasks_app.config.planning import clarifies, clarifying_step
from tasks_app.config.project_settings import effective
from tasks_app.config.repository_settings import publish_to_json, setup_to_json
from tasks_app.config.task_file import TaskDefinition, front_matter, parse_task
from tasks_app.config.threshold import resolve_threshold, threshold_fault
from tasks_app.core.errors import BadInput, IllegalMove
from tasks_app.core.labels import labels_as_stored
from tasks_app.core.phases import CANCELLABLE, ENDED, RESUMABLE, Phase
from tasks_app.core.text import storable_text
from tasks_app.core.types import JsonObject
from tasks_app.git import branch_name
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Outcome,
    Project,
    Question,
    QuestionState,
    Sequence,
    Step,
    StepKind,
    Task,
    User,
    paths,
)
from tasks_app.models.task import Priority
from tasks_app.models.transition import JUST_CANCELLED
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.projects.projects import fetch
from tasks_app.services.projects.settings import default_threshold, overrides_of, repository_settings
from tasks_app.services.questions.routing import require_people
from tasks_app.services.workers.worker_notifier import notify_on_commit

#: Characters of what a person writes to the agent when a task is resumed or retried.
MAX_MESSAGE = 10_000


@dataclass(frozen=True)
class TaskPlan:
    """A task with its settings resolved, before any row is written."""

    text: str
    definition: TaskDefinition
    config: ProjectConfig
    pipeline: Pipeline
    threshold: int
    base_commit: str
    publish: JsonObject | None  # as in `publish_to_json`

    @property
    def steps(self) -> list[tuple[StepKind, StepConfig]]:
        """Kind and settings of each step: the clarifying pass, if any, then the steps of the pipeline."""
        steps = [(StepKind.WORK, step) for step in self.pipeline.steps]
        if clarifies(self.pipeline, threshold=self.threshold):
            return [(StepKind.CLARIFY, clarifying_step(self.pipeline)), *steps]
        return steps


def create_task(
    project: Project,
    text: str,
    *,
    by: Principal,
    where: str,
    threshold: int | None = None,
    pipeline: str | None = None,
    ask: tuple[str, ...] = (),
    slug: str | None = None,
    file: str = "",
    form_key: str = "",
    start: bool = False,
) -> Task:
    """Create a task from Markdown with optional front matter, and start it if `start` is true.

    `where` names the text in messages. `ask` names whom its questions are put to, instead of those in the
    front matter. `file` is the file of the repository that the text is from. A form
    that is sent again, with the same `form_key` and text, gets the task that it created before. The task
    takes the newest commit of the repository and the settings in that commit. Creating and starting are one
    transaction. Raises BadInput, WorkspaceError or NotAllowed.
    """
    require_actor(by, project)
    require_people(project, ask)
    if made := _created_before(project, text, by=by.user, form_key=form_key):
        return made
    base = newest_commit(project)
    plan = plan_task(project, text, base=base, where=where, threshold=threshold, pipeline=pipeline, ask=ask)
    form_key = unused_key(Task, form_key, by=by.user)
    for candidate in free_names(project, slug or plan.definition.title):
        try:
            branch = branch_name(candidate)  # asks git, and so not in the transaction
            with transaction.atomic():
                task = store_task(
                    project, plan, by=by.user, slug=candidate, branch=branch, file=file, form_key=form_key
                )
                if start:
                    start_task(task, by=by)
            return task
        except IntegrityError:
            if made := _created_before(project, text, by=by.user, form_key=form_key):
                return made
    raise BadInput("there are too many tasks of that name", where=where)


def _created_before(project: Project, text: str, *, by: User, form_key: str) -> Task | None:
    if not form_key:
        return None
    return Task.objects.filter(project=project, created_by=by, form_key=form_key, text=text).first()


def unused_key(made: type[Task | Sequence], form_key: str, *, by: User) -> str:
    """Return the key of a form; "" if it was used before, by somebody who went back and changed the text."""
    if made._default_manager.filter(created_by=by, form_key=form_key).exists():
        return ""
    return form_key


def newest_commit(project: Project) -> str:
    """Fetch the source and return the newest commit of the project's branch. Raises WorkspaceError."""
    fetch(project)
    return paths.repository(project).head(project.branch)


def plan_task(
    project: Project,
    text: str,
    *,
    base: str,
    where: str,
    threshold: int | None,
    pipeline: str | None,
    ask: tuple[str, ...] = (),
) -> TaskPlan:
    """Resolve the settings of a task. Raises BadInput for a text or settings that are not usable."""
    config = effective(repository_settings(project, commit=base), overrides_of(project))
    try:
        definition = parse_task(text, where=where)
    except ConfigInvalid as error:
        raise _with_unknown_pipeline(error, config, text, where=where) from None
    chosen = _pipeline_of(config, definition, text, where=where, explicit=pipeline)
    return TaskPlan(
        text,
        replace(definition, ask=ask or definition.ask),
        config,
        chosen,
        resolve_threshold(
            explicit=threshold,
            task=definition.threshold,
            project=config.interaction_threshold,
            installation=default_threshold(project),
        ),
        base,
        publish_to_json(chosen.publish),
    )


def _with_unknown_pipeline(
    error: ConfigInvalid, config: ProjectConfig, text: str, *, where: str
) -> ConfigInvalid:
    """Add a pipeline that the project does not have to the other faults, so that all are reported at once."""
    try:
        document = front_matter(text, where=where)
        name = document.value.get("pipeline") if isinstance(document.value, dict) else None
        choose_pipeline(config, explicit=None, task=name if isinstance(name, str) else None)
    except ConfigInvalid:
        return error
    except BadInput as unknown:
        problem = Problem(document.line_of(("pipeline",)), "", unknown.message)
        return ConfigInvalid([*error.problems, problem], where=error.file)
    return error


def _pipeline_of(
    config: ProjectConfig, definition: TaskDefinition, text: str, *, where: str, explicit: str | None
) -> Pipeline:
    """Return the pipeline. Raises BadInput, with the line if the text names the pipeline."""
    try:
        return choose_pipeline(config, explicit=explicit, task=definition.pipeline)
    except BadInput as error:
        if explicit or not definition.pipeline:
            raise
        line = front_matter(text, where=where).line_of(("pipeline",))
        raise BadInput(error.message, where=f"{where}:{line}") from error


def free_names(project: Project, wanted: str) -> Iterator[str]:
    """Yield slugs whose branch does not exist yet, here or in the source.

    One git process finds all names that are taken: a task of a weekly routine is the hundredth of its title.
    """
    slug = slugify(wanted)[:60].strip("-") or "task"
    branch = branch_name(slug)
    taken = paths.repository(project).branches_like(branch)
    for attempt in range(1, 200):
        suffix = "" if attempt == 1 else f"-{attempt}"
        if f"{branch}{suffix}" not in taken:
            yield f"{slug}{suffix}"


def store_task(
    project: Project, plan: TaskPlan, *, by: User | None, slug: str, branch: str, **fields: Any
) -> Task:
    """Create the rows of a task and its steps. Raises IntegrityError if the slug exists."""
    with transaction.atomic():
        task = Task.objects.create(
            project=project,
            slug=slug,
            title=plan.definition.title,
            text=plan.text,
            body=plan.definition.body,
            pipeline=plan.pipeline.name,
            threshold=plan.threshold,
            resume=plan.definition.resume,
            priority=priority_of(plan.definition.priority),
            model=plan.definition.model or plan.config.model or "",
            wait_for_reset=plan.config.wait_for_rate_limit_reset,
            auto_commit=plan.config.auto_commit,
            publish_plan=plan.config.publish_plan,
            publish=plan.publish,
            setup=setup_to_json(plan.config.setup_in_effect),
            toolchains=",".join(dict.fromkeys((*plan.config.toolchains, *plan.config.readable))),
            submodules=plan.config.submodules,
            lfs=plan.config.lfs,
            ask_before=list(plan.config.ask_before),
            ask=list(plan.definition.ask),
            max_turns=plan.config.limits.max_turns,
            max_cost_usd=plan.config.limits.max_cost_usd,
            soft_cost_usd=plan.config.limits.asks_at_cost_usd,
            branch=branch,
            checkout="" if plan.config.manage_git_branch else project.branch,
            base_commit=plan.base_commit,
            created_by=by,
            **fields,
        )
        Step.objects.bulk_create(
            Step(
                task=task,
                position=position,
                name=step.name,
                kind=kind,
                runs_on=labels_as_stored(plan.config.labels_of(step)),
                config=step_to_json(step.within(plan.config.limits, network=plan.config.network_of(step))),
            )
            for position, (kind, step) in enumerate(plan.steps, start=1)
        )
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_CREATED, by=by, task=task, pipeline=task.pipeline, threshold=task.threshold)
    return task


def start_task(task: Task, *, by: Principal, notify: bool = True) -> None:
    """Queue a task that was not started. Starting it twice changes nothing.

    `notify` is false for a caller that works on the task in its own process.
    """
    require_actor(by, task.project)
    with transaction.atomic():
        now = timezone.now()
        if not Task.objects.filter(pk=task.pk, phase=Phase.PENDING, queued_at=None).update(queued_at=now):
            return
        task.queued_at = now
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_STARTED, by=by.user, task=task)
        if notify:
            notify_on_commit(task.pk)


def cancel_task(task: Task, *, by: Principal) -> None:
    """Cancel a task. A running agent is stopped within seconds. Raises IllegalMove if the task has ended."""
    require_actor(by, task.project)
    reason = f"{by.user.shown_name}{JUST_CANCELLED}"
    with transaction.atomic():
        task = locked(task)
        if task.phase not in CANCELLABLE:
            raise IllegalMove(f"Task “{task}”", task.phase, Phase.CANCELLED)
        cancel_locked(task, reason=reason, by=by.user)


def cancel_locked(task: Task, *, reason: str, by: User | None = None, actor_name: str = "") -> None:
    """Cancel a task whose row the transaction has locked: by a user, or by somebody outside of the portal."""
    for step in task.steps.exclude(phase__in=[*ENDED, Phase.PENDING]):
        move(step, Phase.CANCELLED, reason=reason, by=by)
    if task.questions.open().update(state=QuestionState.WITHDRAWN):
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    task.questions.forget_ends()
    move(task, Phase.CANCELLED, reason=reason, by=by)
    record(Action.TASK_CANCELLED, by=by, actor_name=actor_name, task=task)


def resume_task(task: Task, *, by: Principal, notify: bool = True, message: str = "") -> None:
    """Resume a task that failed, was interrupted, cancelled or finished early, or waits for a limit to reset.

    Its agent reads `message` with its next prompt, or beside the answer that it waits for. A question that
    the cancellation withdrew is opened again; a worker asks about the soft cost limit anew. Raises
    IllegalMove in any other phase, BadInput for a message that is too long.
    """
    require_actor(by, task.project)
    message = checked_message(message)
    reason = f"{by.user.shown_name} resumed it"
    with transaction.atomic():
        task = locked(task)
        if why := why_not_resume(task):
            raise why
        withdrawn = _withdrawn_ids(task)
        target = Phase.WAITING_FOR_INPUT if withdrawn else Phase.PENDING
        for step in task.steps.filter(phase__in=RESUMABLE):
            move(step, target, reason=reason, by=by.user, failures=0, failure="")
        move(
            task, target, reason=reason, by=by.user, message=message,
            failure="", resets_at=None, retry_at=None,
            queued_at=task.queued_at or timezone.now(),
        )  # fmt: skip
        record(Action.TASK_WENT_ON, by=by.user, task=task)
        if withdrawn:
            Question.objects.filter(pk__in=withdrawn).update(state=QuestionState.OPEN)
            Change.objects.create(task=task, kind=ChangeKind.QUESTION)
        elif notify:
            notify_on_commit(task.pk)


def watch_task(task: Task, *, by: Principal, undo: bool = False) -> None:
    """Notify the user as if the task were theirs and its questions were asked of them; `undo` ends that.

    Whoever sees a task may watch it. Doing it twice changes nothing.
    """
    with transaction.atomic():
        locked(task)
        if task.watchers.filter(pk=by.user.pk).exists() != undo:
            return
        if undo:
            task.watchers.remove(by.user)
        else:
            task.watchers.add(by.user)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_UNWATCHED if undo else Action.TASK_WATCHED, by=by.user, task=task)


def dismiss_failure(task: Task, *, by: Principal, undo: bool = False) -> None:
    """Take a failed or interrupted task off the lists of failures, until it moves; `undo` puts it back.

    Raises NotAllowed, or BadInput for a task in another phase.
    """
    require_actor(by, task.project)
    with transaction.atomic():
        task = locked(task)
        if task.phase not in (Phase.FAILED, Phase.INTERRUPTED):
            raise BadInput(f"Task “{task}” is {task.phase_display.label}: there is no failure to dismiss.")
        if task.failure_dismissed is not undo:
            return
        task.failure_dismissed = not undo
        task.save(update_fields=["failure_dismissed"])
        Change.objects.create(task=task, kind=ChangeKind.PHASE)
        change = ["listed", "dismissed"]
        if undo:
            change.reverse()
        record(Action.TASK_CHANGED, by=by.user, task=task, failure=change)


def checked_message(text: str) -> str:
    """Return what a person writes to the agent, as it is stored. Raises BadInput if it is too long."""
    message = storable_text(text.replace("\r\n", "\n")).strip()
    if len(message) > MAX_MESSAGE:
        raise BadInput(f"the message is too long: at most {MAX_MESSAGE:,} characters", where="message")
    return message


def why_not_resume(task: Task) -> IllegalMove | None:
    """Return why the task cannot be resumed; None if it can."""
    what = f"Task “{task}”"
    if not task.can_resume:
        return IllegalMove(what, task.phase, Phase.PENDING)
    if task.finished_early and has_successor(task):
        return IllegalMove(what, "followed by another task of its sequence, which builds on it,", "resumed")
    return None


def has_successor(task: Task) -> bool:
    """Return whether a later task of the sequence exists."""
    later = Task.objects.filter(sequence=task.sequence_id, pk__gt=task.pk)
    return task.sequence_id is not None and later.exists()


def change_threshold(task: Task, value: int, *, by: Principal) -> None:
    """Set the task's threshold, in any phase. It applies from the next run on.

    A session that continues learns it with its next prompt or answer. Raises NotAllowed, or BadInput unless
    the value is a whole number from 0 to 5.
    """
    require_actor(by, task.project)
    if fault := threshold_fault(value):
        raise BadInput(f"the threshold {fault}", where="threshold")
    with transaction.atomic():
        task = locked(task)
        if task.threshold == value:
            return
        before, task.threshold = task.threshold, value
        task.save(update_fields=["threshold"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_CHANGED, by=by.user, task=task, threshold=[before, value])


def change_priority(task: Task, name: str, *, by: Principal) -> None:
    """Set the priority of a task that has not ended: low, normal or high.

    Raises NotAllowed, or BadInput for another word and for a task that has ended.
    """
    require_actor(by, task.project)
    value = priority_of(name)
    with transaction.atomic():
        task = locked(task)
        if task.is_ended:
            raise BadInput("the task has ended, so its priority means nothing", where="priority")
        if task.priority == value:
            return
        before, task.priority = task.priority, value
        task.save(update_fields=["priority"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        named = [Priority(number).label for number in (before, value)]
        record(Action.TASK_CHANGED, by=by.user, task=task, priority=named)


def priority_of(name: str) -> Priority:
    """Return the priority of this name. Raises BadInput."""
    for priority in Priority:
        if priority.label == name.strip().lower():
            return priority
    raise BadInput(f"must be low, normal or high, not “{name[:40]}”", where="priority")


def locked(task: Task) -> Task:
    """Lock the task's row until the transaction ends, and return it as it is now."""
    return Task.objects.select_for_update(of=("self",)).select_related("project").get(pk=task.pk)


def _withdrawn_ids(task: Task) -> list[int]:
    """Return the ids of withdrawn questions that the task's last run waits for."""
    if task.phase != Phase.CANCELLED:
        return []
    of_last_run = Q(run__outcome=Outcome.ASKED, run__number__gte=F("step__first_run"))
    rows = task.questions.of_agents().filter(
        of_last_run | Q(reopens__isnull=False), state=QuestionState.WITHDRAWN
    )
    return list(rows.values_list("pk", flat=True))
