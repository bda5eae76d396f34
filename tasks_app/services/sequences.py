"""Create, start, cancel and resume sequences, and find their next task (P10)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.agent.tools import USUAL
from tasks_app.config.pipeline import StepConfig, step_from_json
from tasks_app.core.amounts import dollars
from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove, WorkspaceError
from tasks_app.core.phases import CANCELLABLE, Phase
from tasks_app.core.text import storable_text
from tasks_app.core.types import NETWORKS
from tasks_app.git import branch_name, committed_names, committed_text, working_names, working_text
from tasks_app.history.audit import record
from tasks_app.history.transitions import move_between_tasks
from tasks_app.models import Action, Change, ChangeKind, Project, Sequence, StepKind, Task, User, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.difference import merged_into_sequence
from tasks_app.services.questions.routing import require_people
from tasks_app.services.tasks import (
    TaskPlan,
    cancel_task,
    free_names,
    newest_commit,
    plan_task,
    resume_task,
    start_task,
    store_task,
    unused_key,
)
from tasks_app.services.workers.hosts import is_outdated
from tasks_app.services.workers.worker_notifier import notify_on_commit

#: Number of faulty task files that an agent is told of at once.
_FAULTS = 10


@dataclass(frozen=True)
class NextTask:
    """The next task of a sequence, or why it has no next task: with an empty `failure`, all are done.

    `more_open` is what it may do beyond the first task: a person must allow that before it begins.
    """

    file: str = ""
    plan: TaskPlan | None = None
    failure: str = ""
    more_open: tuple[str, ...] = ()

    @property
    def allow_key(self) -> str:
        """Return what a person sends who allows this task, with this text; "" if nobody needs to."""
        if not self.more_open or self.plan is None:
            return ""
        said = "\0".join([self.file, self.plan.text, *self.more_open])
        return sha256(said.encode()).hexdigest()[:12]

    @property
    def why_it_waits(self) -> str:
        """Return the reason for people why the task waits for one of them, first in one line."""
        listed, *more = self.more_open
        if more:
            listed += f", and {len(more)} more"
        return (
            f"{self.file} waits for your permission: it may do more than the first task ({listed}).\n"
            + "\n".join(self.more_open)
        )


def create_sequence(
    project: Project,
    folder: str,
    *,
    by: Principal,
    threshold: int | None = None,
    pipeline: str | None = None,
    ask: tuple[str, ...] = (),
    form_key: str = "",
    start: bool = False,
) -> Sequence:
    """Create a sequence from a folder of task files, with its first task, and start it if `start` is true.

    `ask` names whom the questions of all its tasks are put to, instead of those in the tasks' front matter. A
    form that is sent again, with the same `form_key` and folder, gets the sequence that it created before.

    Raises BadInput for names that mean nobody who may answer, and for a folder that is missing or has no task
    file, or whose first task is faulty.
    """
    require_actor(by, project)
    require_people(project, ask)
    path = PurePosixPath(folder.strip())
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise BadInput(f"{folder!r} is not a folder within the repository", where="sequence")
    folder = str(path)  # as git names it
    if made := _created_before(project, folder, by=by.user, form_key=form_key):
        return made
    form_key = unused_key(Sequence, form_key, by=by.user)
    base = newest_commit(project)
    names = task_files(committed_names(paths.repository(project), commit=base, folder=folder))
    if not names:
        raise BadInput(
            f"the newest commit of {project.branch} has no such folder, or no task file (NN-name.md) in it",
            where=folder,
        )
    text = committed_text(paths.repository(project), commit=base, path=f"{folder}/{names[0]}") or ""
    where = f"{folder}/{names[0]}"
    plan = plan_task(project, text, base=base, where=where, threshold=threshold, pipeline=pipeline, ask=ask)
    for candidate in free_names(project, path.name):
        try:
            return _store_sequence(
                project, folder, names[0], plan, by=by, slug=candidate,
                threshold=threshold, pipeline=pipeline, ask=ask, form_key=form_key, start=start,
            )  # fmt: skip
        except IntegrityError:
            if made := _created_before(project, folder, by=by.user, form_key=form_key):
                return made
    raise BadInput("there are too many sequences of that name", where=folder)


def _created_before(project: Project, folder: str, *, by: User, form_key: str) -> Sequence | None:
    if not form_key:
        return None
    return Sequence.objects.filter(project=project, created_by=by, form_key=form_key, folder=folder).first()


def _store_sequence(
    project: Project, folder: str, file: str, plan: TaskPlan, *, by: Principal, slug: str,
    threshold: int | None, pipeline: str | None, ask: tuple[str, ...], form_key: str, start: bool,
) -> Sequence:  # fmt: skip
    branch = branch_name(slug)  # asks git, and so not in the transaction
    with transaction.atomic():
        sequence = Sequence.objects.create(
            project=project, slug=slug, folder=folder, branch=branch, pipeline=pipeline or "",
            threshold=threshold, ask=list(ask), base_commit=plan.base_commit, created_by=by.user,
            form_key=form_key,
        )  # fmt: skip
        record(Action.SEQUENCE_CREATED, by=by.user, project=project, subject=folder)
        _add_task(sequence, file, plan)
        if start:
            start_sequence(sequence, by=by)
    return sequence


def _add_task(sequence: Sequence, file: str, plan: TaskPlan) -> Task:
    if first := sequence.tasks.order_by("pk").first():
        # Later texts are read from the workspace: their agents must not choose whether their own work is
        # published. The first text was read from a commit.
        plan = replace(plan, publish=first.publish)
    # An agent may have chosen the name of the file.
    wanted = slugify(f"{sequence.slug}-{PurePosixPath(file).stem}")[:120].strip("-")
    for slug in (wanted, *(f"{wanted}-{attempt}" for attempt in range(2, 200))):
        try:
            return store_task(
                sequence.project, plan, by=sequence.created_by, slug=slug, branch=sequence.branch,
                sequence=sequence, file=file, head_commit=sequence.head_commit,
            )  # fmt: skip
        except IntegrityError:  # a task of its own has that name
            continue
    raise BadInput("there are too many tasks of that name", where=f"{sequence.folder}/{file}")


def task_files(names: list[str]) -> list[str]:
    """Return the task files among a folder's names, in the order in which they run."""
    return sorted(name for name in names if name.endswith(".md") and not name.startswith(("_", ".")))


def sequence_files(sequence: Sequence) -> list[str]:
    """Return the task files in order: of existing tasks, and in the folder now."""
    begun = sequence.tasks.values_list("file", flat=True)
    return sorted({*begun, *_files_now(sequence)})


def upcoming_files(sequence: Sequence) -> tuple[list[str], str]:
    """Return the task files without a task; or none, and why they are not known."""
    try:
        names = sequence_files(sequence)
    except (CatHerderError, OSError) as error:
        return [], str(error)
    begun = set(sequence.tasks.values_list("file", flat=True))
    return [name for name in names if name not in begun], ""


def look_for_next(sequence: Sequence) -> NextTask:
    """Return the first task file of the folder, as it is in the workspace now, that did not run yet.

    A sequence into whose result the project's branch was merged was done before. It ends again if there is no
    file, because that branch may have removed the folder.
    """
    try:
        names = _files_now(sequence)
    except OSError as error:
        return NextTask(failure=f"The folder {sequence.folder} cannot be read: {error.strerror}")
    if not names and not merged_into_sequence(sequence):
        return NextTask(failure=f"The folder {sequence.folder} is gone, or has no task file any more.")
    known = set(sequence.tasks.values_list("file", flat=True))
    file = next((name for name in names if name not in known), "")
    if not file:
        return NextTask()
    return _planned(sequence, file, _surplus_file(sequence, names))


def task_waiting_for_permission(sequence: Sequence) -> NextTask | None:
    """Return the next task if it waits until a person allows what it may do beyond the first one."""
    if sequence.phase != Phase.FAILED or current_task(sequence) is not None:
        return None
    with suppress(OSError, CatHerderError):
        upcoming = look_for_next(sequence)
        if upcoming.more_open:
            return upcoming
    return None


def faults_of_new_files(sequence: Sequence) -> list[str]:
    """Return what is wrong with upcoming task files that agents have written or changed, with their lines.

    Only the first faults are returned, and of too many files just this fault: an agent may write thousands.
    """
    known = set(sequence.tasks.values_list("file", flat=True))
    faults: dict[str, None] = {}
    with suppress(OSError, WorkspaceError):  # then the next task is not found, which says why
        names = _files_now(sequence)
        if surplus := _surplus_file(sequence, names):
            return [_surplus_fault(sequence, surplus)]
        for name in names:
            if name in known or _is_as_begun(sequence, name, _text_now(sequence, name)):
                continue
            if failure := _planned(sequence, name).failure:
                faults[failure] = None
            if len(faults) == _FAULTS:
                break
    return list(faults)


def _is_as_begun(sequence: Sequence, file: str, text: str) -> bool:
    """Return whether the file's text is still as it was when a person created the sequence."""
    path, repository = f"{sequence.folder}/{file}", paths.repository(sequence.project)
    return text == committed_text(repository, commit=sequence.base_commit, path=path)


def _planned(sequence: Sequence, file: str, surplus: str = "") -> NextTask:
    """Return the task of a file. `surplus` is the first file that is one too many."""
    where = f"{sequence.folder}/{file}"
    if storable_text(file) != file:
        return NextTask(failure=f"{storable_text(where)}: the name of this file is not UTF-8.")
    try:
        text = _text_now(sequence, file)
        plan = plan_task(
            sequence.project, text, base=sequence.base_commit, where=where,
            threshold=sequence.threshold, pipeline=sequence.pipeline or None, ask=tuple(sequence.ask),
        )  # fmt: skip
        if _is_as_begun(sequence, file, text):  # a person started the sequence with this file
            return NextTask(file, plan)
    except CatHerderError as error:
        message = str(error)
        if where not in message:
            message = f"{where}: {message}"
        return NextTask(file, failure=message)
    if file == surplus:
        return NextTask(file, failure=_surplus_fault(sequence, file))
    if first := sequence.tasks.order_by("pk").first():
        return NextTask(file, plan, more_open=tuple(more_open(plan, first)))
    return NextTask(file, plan)


def _surplus_file(sequence: Sequence, names: list[str]) -> str:
    """Return the first of the files that agents have added which is one too many, or ""."""
    repository = paths.repository(sequence.project)
    at_first = set(committed_names(repository, commit=sequence.base_commit, folder=sequence.folder))
    begun = set(sequence.tasks.values_list("file", flat=True)) - at_first
    upcoming = [name for name in names if name not in begun and name not in at_first]
    return next(iter(upcoming[max(settings.ENVIRONMENT.added_tasks - len(begun), 0) :]), "")


def _surplus_fault(sequence: Sequence, file: str) -> str:
    where, most = f"{sequence.folder}/{storable_text(file)}", settings.ENVIRONMENT.added_tasks
    return (
        f"{where}: agents may add {most} tasks to one sequence (CATHERDER_ADDED_TASKS), and this is one more."
        " Put the work into fewer files."
    )


def _files_now(sequence: Sequence) -> list[str]:
    """Return the task files in the folder. Files that came in by a merge are excluded."""
    repository, merged = paths.repository(sequence.project), merged_into_sequence(sequence)
    if workspace := _workspace(sequence):
        names = working_names(workspace, sequence.folder)
    else:
        names = committed_names(repository, commit=_newest(sequence), folder=sequence.folder)
    if merged:
        others = committed_names(repository, commit=merged, folder=sequence.folder)
        names = [name for name in names if storable_text(name) not in others]
    return task_files(names)


def _text_now(sequence: Sequence, file: str) -> str:
    path, repository = f"{sequence.folder}/{file}", paths.repository(sequence.project)
    if workspace := _workspace(sequence):
        return working_text(workspace, path) or ""
    return committed_text(repository, commit=_newest(sequence), path=path) or ""


def _workspace(sequence: Sequence) -> Path | None:
    """Return the clone if it exists here and is not outdated.

    The first task creates it, and it is removed long after the last.
    """
    task = sequence.tasks.select_related("project").first()
    if task is None or not paths.workspace(task).path.exists() or is_outdated(task):
        return None
    return paths.workspace(task).path


def _newest(sequence: Sequence) -> str:
    return sequence.head_commit or sequence.base_commit


def proceed(sequence: Sequence, upcoming: NextTask, *, notify: bool = True, by: User | None = None) -> None:
    """Queue the next task, or end the sequence. Called in the transaction that ended the previous task."""
    if upcoming.more_open:
        move_between_tasks(sequence, Phase.FAILED, failure=upcoming.why_it_waits, by=by)
    elif upcoming.plan is not None:
        task = _add_task(sequence, upcoming.file, upcoming.plan)
        Task.objects.filter(pk=task.pk).update(queued_at=timezone.now())
        move_between_tasks(sequence, Phase.PENDING, by=by)
        if notify:
            notify_on_commit(task.pk)
    elif upcoming.failure:
        move_between_tasks(sequence, Phase.FAILED, failure=upcoming.failure, by=by)
    else:
        move_between_tasks(sequence, Phase.DONE, by=by)


def current_task(sequence: Sequence) -> Task | None:
    """Return the current task: the only one that is not done."""
    return sequence.tasks.select_related("project").exclude(phase=Phase.DONE).order_by("-pk").first()


def start_sequence(sequence: Sequence, *, by: Principal, notify: bool = True) -> None:
    """Queue the first task. Starting the sequence twice changes nothing."""
    require_actor(by, sequence.project)
    task = current_task(sequence)
    if task is not None:
        start_task(task, by=by, notify=notify)


def cancel_sequence(sequence: Sequence, *, by: Principal) -> None:
    """Cancel the current task and with it the sequence. Raises IllegalMove if it has ended."""
    require_actor(by, sequence.project)
    task = current_task(sequence)
    if task is None or task.phase not in CANCELLABLE:
        raise IllegalMove(f"Sequence “{sequence}”", sequence.phase, Phase.CANCELLED)
    cancel_task(task, by=by)


def task_to_publish(sequence: Sequence) -> Task:
    """Return the task that holds the result of the sequence: the newest, because all share one branch.

    Raises IllegalMove if the sequence has no task.
    """
    task = sequence.tasks.select_related("project", "sequence").order_by("-pk").first()
    if task is None:
        raise IllegalMove(f"Sequence “{sequence}”", "empty", "published")
    return task


def resume_sequence(
    sequence: Sequence, *, by: Principal, notify: bool = True, allow: str = "", message: str = ""
) -> None:
    """Resume the current task; or, after an error in the folder, read the folder again.

    `allow` is the key of a next task (`NextTask.allow_key`) that may do more than the first one. `message` is
    for the agent of the current task. Raises IllegalMove if there is nothing to resume, BadInput if the next
    task needs to be allowed, or if no agent is there to read the message.
    """
    require_actor(by, sequence.project)
    task = current_task(sequence)
    if task is not None and task.can_resume:
        resume_task(task, by=by, notify=notify, message=message)
    elif message.strip():
        raise BadInput("no task of the sequence can be resumed, so no agent reads a message", where="message")
    elif task is None and sequence.phase == Phase.FAILED:
        _read_folder_again(sequence, by=by, notify=notify, allow=allow)
    else:
        raise IllegalMove(f"Sequence “{sequence}”", sequence.phase, Phase.PENDING)


def _read_folder_again(sequence: Sequence, *, by: Principal, notify: bool, allow: str) -> None:
    upcoming = look_for_next(sequence)
    allowed = upcoming.more_open
    if allowed and allow != upcoming.allow_key:
        changed = "The task has changed since. " if allow else ""
        command = f"`cat-herder run_sequence {sequence.pk} --continue --allow {upcoming.allow_key}`"
        how = f"Allow it to go on: on its page, or with {command}."
        raise BadInput(f"{changed}{upcoming.why_it_waits}\n{how}", where="allow")
    upcoming = replace(upcoming, more_open=())
    with transaction.atomic():
        now = Sequence.objects.select_for_update(of=("self",)).select_related("project").get(pk=sequence.pk)
        if now.phase != Phase.FAILED:  # somebody was first
            raise IllegalMove(f"Sequence “{sequence}”", now.phase, Phase.PENDING)
        proceed(now, upcoming, notify=notify, by=by.user)
        more: dict[str, Any] = {}
        if allowed:
            more = {"file": upcoming.file, "allowed": list(allowed)}
        record(Action.SEQUENCE_WENT_ON, by=by.user, project=now.project, subject=now.folder, **more)
        for task in now.tasks.order_by("-pk")[:1]:
            Change.objects.create(task=task, kind=ChangeKind.TASK)


# What a later task of a sequence may do that its first task may not (R4). Agents write task files, and each
# names a pipeline: otherwise an agent without a network would give itself one.


def more_open(plan: TaskPlan, first: Task) -> list[str]:
    """Return what the planned task may do beyond the first one, each as a phrase for people.

    The first task may do what one of its steps may. Approvals are those that all of its steps ask for.
    """
    before = [step_from_json(step.config) for step in first.steps.filter(kind=StepKind.WORK)]
    after = [
        step.within(plan.config.limits, network=plan.config.network_of(step)) for step in plan.pipeline.steps
    ]
    return [*_of_task(plan, first), *_of_steps(after, before, plan=plan, first=first)]


def _of_task(plan: TaskPlan, first: Task) -> Iterator[str]:
    if plan.threshold < first.threshold:
        yield f"interaction threshold {plan.threshold} instead of {first.threshold}"
    limits, costs = plan.config.limits, (first.max_cost_usd, first.soft_cost_usd)
    for name, after, before in zip(
        ("maxCostUsd", "softCostUsd"), (limits.max_cost_usd, limits.asks_at_cost_usd), costs, strict=True
    ):
        if before is not None and (after is None or after > before):
            more = "without a limit" if after is None else dollars(after)
            yield f"{name} {more} instead of {dollars(before)}"
    if first.max_turns is not None and (limits.max_turns is None or limits.max_turns > first.max_turns):
        yield f"maxTurns {limits.max_turns or 'without a limit'} instead of {first.max_turns}"


def _of_steps(
    after: Collection[StepConfig], before: Collection[StepConfig], *, plan: TaskPlan, first: Task
) -> Iterator[str]:
    reach = max((NETWORKS.index(step.network or "full") for step in before), default=0)
    models = {step.model or first.model for step in before}
    globs = None
    if all(step.allow_write is not None for step in before):
        globs = [glob for step in before for glob in step.allow_write or ()]
    tools = {rule for step in before for rule in _rules(step)}
    approvals: set[str] = set()
    if asked := [{*first.ask_before, *step.ask_before} for step in before]:
        approvals = set.intersection(*asked)
    for step in after:
        where = f"in step “{step.name}”"
        network = step.network or "full"
        if NETWORKS.index(network) > reach:
            yield f"network {network} instead of {NETWORKS[reach]} {where}"
        model = step.model or plan.definition.model or plan.config.model or ""
        if model not in models:
            yield f"model {model or 'of the installation'} {where}"
        if globs is not None:
            # A pattern is new unless it certainly matches nothing beyond the known ones.
            more = ["any file"]
            if step.allow_write is not None:
                more = [one for one in step.allow_write if one not in globs and not _is_covered(one, globs)]
            if more:
                yield f"may write {', '.join(more)} {where}"
        if more := [
            rule for rule in _rules(step) if rule not in tools and rule.partition("(")[0] not in tools
        ]:
            yield f"may use {', '.join(more)} {where}"
        if missing := approvals - {*plan.config.ask_before, *step.ask_before}:
            yield f"does not ask before {', '.join(sorted(missing))} {where}"
    if any(step.plan_approval for step in before) and not any(step.plan_approval for step in after):
        yield "no plan that needs approval"


def _is_covered(glob: str, known: list[str]) -> bool:
    return not any(char in glob for char in "*?[") and not glob.endswith("/") and allowed(glob, known)


def _rules(step: StepConfig) -> tuple[str, ...]:
    if step.allowed_tools is None:
        return USUAL
    return step.allowed_tools
