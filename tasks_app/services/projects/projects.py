"""Projects: adding, fetching and removing them."""

from __future__ import annotations

import logging
import threading
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from tasks_app.config.threshold import NEW_PROJECT
from tasks_app.core.errors import BadInput, BranchMissing, CatHerderError, IllegalMove, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.git import Fetched, has_branch, inspect_source
from tasks_app.git.program import NETWORK_SECONDS
from tasks_app.history.audit import record, record_once_an_hour
from tasks_app.models import Action, Membership, Project, Role, Run, SessionEntry, Task, User, paths
from tasks_app.models.project import MAX_FETCH_TIME
from tasks_app.permissions import Principal, require_actor, require_maintainer, require_site_admin
from tasks_app.services.decisions.citing import mark_stale

logger = logging.getLogger(__name__)

#: Seconds that a page waits for the first fetch of a source.
ADDING_PATIENCE = 10.0


def add_project(
    name: str, source: str, *, by: User | None = None, is_sample: bool = False, threshold: int | None = None
) -> Project:
    """Add the repository at `source` (a path, or an https or ssh URL) under `name`.

    For the terminal: a user with a shell on the portal's machine needs no permission. `threshold` is that of
    tasks if cat-herder.yaml has none. The user who adds the
    project becomes its maintainer. Raises BadInput or WorkspaceError that names the error, and adds nothing.
    """
    project = _store_project(
        name, source, by=by, is_sample=is_sample, threshold=threshold, seconds=NETWORK_SECONDS
    )
    try:
        fetch(project)
    except BaseException:
        project.delete()
        raise
    return project


def add_project_as_admin(name: str, source: str, *, by: Principal, threshold: int = NEW_PROJECT) -> Project:
    """Add a project as a site admin: the source may be anywhere on the portal's machine.

    Raises NotAllowed for others.
    """
    require_site_admin(by, "add a project")
    return add_project(name, source, by=by.user, threshold=threshold)


def add_project_meanwhile(name: str, source: str, *, by: Principal, threshold: int = NEW_PROJECT) -> Project:
    """Add a project as a site admin who waits for a page: a long fetch continues after ADDING_PATIENCE.

    Raises NotAllowed for others. The project's page shows a fetch that fails later.
    """
    require_site_admin(by, "add a project")
    project = _store_project(
        name, source, by=by.user, is_sample=False, threshold=threshold, seconds=INSPECTING_SECONDS
    )
    ended = fetch_meanwhile(project, by=by, patience=ADDING_PATIENCE)
    project.refresh_from_db()
    if ended and project.fetched_at is None:
        with transaction.atomic():
            record(Action.PROJECT_REMOVED, by=by.user, project=project, reason="It could not be fetched.")
            project.delete()
        raise WorkspaceError(project.fetch_fault)
    return project


def _store_project(
    name: str, source: str, *, by: User | None, is_sample: bool, threshold: int | None, seconds: float
) -> Project:
    if taken := Project.objects.filter(name=name).first():
        raise BadInput(
            f"“{name}” is the name of the project from {taken.source}; choose another", where="project"
        )
    inspected = inspect_source(source, seconds=seconds)
    project = Project(name=name, source=inspected.source, branch=inspected.head_branch, is_sample=is_sample)
    if threshold is not None:
        project.overrides = {"default_threshold": threshold}
    try:
        project.full_clean()
    except ValidationError as error:
        raise BadInput(_messages(error), where="project") from None
    with transaction.atomic():
        project.save()
        record(Action.PROJECT_ADDED, by=by, project=project, source=project.source)
        if by is not None:
            Membership.objects.create(project=project, user=by, role=Role.MAINTAINER)
    return project


def change_source(project: Project, source: str, *, by: Principal) -> None:
    """Change the location of the repository. Existing tasks stay as they are; new tasks start from there.

    If the new location lacks the present branch, tasks start from the branch that is checked out there. A
    long fetch continues after ADDING_PATIENCE, and the project's page shows its failure. Raises NotAllowed
    for all but site admins, BadInput or WorkspaceError, and changes nothing.
    """
    require_site_admin(by, "say where a project's repository is")
    inspected = inspect_source(source, seconds=INSPECTING_SECONDS)
    before = {"source": project.source, "branch": project.branch, "fetch_fault": project.fetch_fault}
    after = {"source": inspected.source, "branch": project.branch}
    if after["source"] == before["source"]:
        return
    if not has_branch(inspected.source, project.branch, seconds=INSPECTING_SECONDS):
        after["branch"] = inspected.head_branch
    _move_source(project, after, by=by.user)
    if fetch_meanwhile(project, by=by, patience=ADDING_PATIENCE):
        project.refresh_from_db()
        if fault := project.fetch_fault:
            _move_source(project, before, by=by.user)
            raise WorkspaceError(fault)


def _move_source(project: Project, to: dict[str, str], *, by: User) -> None:
    changed = {
        name: [getattr(project, name), to[name]]
        for name in ("source", "branch")
        if getattr(project, name) != to[name]
    }
    for name, value in to.items():
        setattr(project, name, value)
    try:
        project.full_clean()
    except ValidationError as error:
        raise BadInput(_messages(error), where="source") from None
    with transaction.atomic():
        project.save(update_fields=list(to))
        record(Action.SETTINGS_CHANGED, by=by, project=project, changed=changed)


def remove_project(project: Project, *, by: Principal) -> None:
    """Remove a project with its tasks, their history, workspaces and branches. The source is not touched.

    Raises NotAllowed for all but maintainers, IllegalMove while an agent works in the project. A folder that
    cannot be removed stays, and the log says so.
    """
    require_maintainer(by, project, "can remove it")
    with transaction.atomic():
        tasks = list(project.tasks.select_for_update())
        _require_idle(project, tasks)
        repository = paths.repository(project)
        folders = {
            repository.path,
            *repository.related_files(),
            paths.setup_caches_of(project),
            paths.submodules_of(project),
            *map(paths.task_dir, tasks),
            *map(paths.shared_dir, tasks),
        }
        # Session rows refer to no other row: only the agent knows their keys.
        sessions = Run.objects.filter(step__task__project=project).values_list("session_id", flat=True)
        SessionEntry.objects.filter(session_id__in=set(map(str, sessions))).delete()
        record(Action.PROJECT_REMOVED, by=by.user, project=project, source=project.source)
        Project.objects.filter(pk=project.pk).delete()
    for folder in folders:
        try:
            paths.remove_folder(folder)
        except WorkspaceError as error:
            logger.warning("a folder of the removed project %s is left: %s", project, error)


def _require_idle(project: Project, tasks: list[Task]) -> None:
    """Raise IllegalMove while an agent works. The agent of a cancelled task may still be ending."""
    if running := next((task for task in tasks if task.phase == Phase.RUNNING), None):
        raise IllegalMove(f"Task {running.pk} of {project}", running.phase, "removed; cancel it first")
    if held := project.tasks.exclude(pk__in=Task.objects.free().values("pk")).first():
        why = "removed yet: its agent is just ending; try again in a moment"
        raise IllegalMove(f"Task {held.pk} of {project}", held.phase, why)


def _messages(error: ValidationError) -> str:
    return " ".join(f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())


#: Seconds that a page waits for a fetch before it says that the fetch continues.
PATIENCE = 4.0
#: Seconds that one look at a source may take: a person waits for the page, and proxies for a minute at most.
INSPECTING_SECONDS = 15.0
_LONGEST_FAULT = 2000


def fetch(project: Project, *, thorough: bool = False) -> list[str]:
    """Fetch from the project's source and return what had to be repaired, in sentences.

    With `thorough`, the whole copy is checked for damage. Raises WorkspaceError, whose text is also stored in
    the project's row.
    """
    try:
        fetched = paths.repository(project).fetch(thorough=thorough)
        repaired = _restore_references(project, fetched)
        _require_branch(project)
        mark_stale(project)
    except Exception as error:
        _store_result(project, fetch_fault=storable_text(str(error))[:_LONGEST_FAULT])
        raise
    _store_result(project, fetched_at=timezone.now(), fetch_fault="")
    return repaired


def _require_branch(project: Project) -> None:
    """Raise BranchMissing, with the source's default branch, if tasks have no branch to start from."""
    try:
        paths.repository(project).head(project.branch)
    except BranchMissing as error:
        try:
            default = inspect_source(project.source, seconds=INSPECTING_SECONDS).head_branch
        except CatHerderError:
            raise error from None
        raise BranchMissing(f"{error} The default branch of the source is {default}.") from error


def check_repository(project: Project) -> list[str]:
    """Read the portal's whole copy and return its faults."""
    return paths.repository(project).problems()


def repair_repository(project: Project) -> list[str]:
    """Fetch damaged parts again and return what was done, in sentences. Raises WorkspaceError."""
    return fetch(project, thorough=True)


def _restore_references(project: Project, fetched: Fetched) -> list[str]:
    """Restore the references of tasks after a repair; return sentences, also on work that is lost."""
    if not fetched.repaired:
        return []
    wanted = {ref: commit for task in project.tasks.order_by("pk") for ref, commit in _refs_of(task).items()}
    lost = paths.repository(project).restore_refs(wanted)
    done = []
    if fetched.removed:
        done.append(f"Damaged parts of the repository were moved aside: {', '.join(fetched.removed[:20])}.")
    elif wanted:
        done.append("The repository was gone and has been made again.")
    if lost:
        branches = sorted({ref.split("/", 2)[2] for ref in lost if ref.startswith("refs/heads/")})
        done.append(
            f"Recorded work is lost that the source does not have: {', '.join(branches) or 'old starts'}."
        )
    for sentence in done:
        logger.warning("project %s: %s", project, sentence)
    return done


def _refs_of(task: Task) -> dict[str, str]:
    """Return the commits of a task's work by the name of the reference."""
    refs = {
        f"refs/cat-herder-base/{task.branch}": task.base_commit,
        f"refs/cat-herder/{task.branch}/{task.pk}-restored": task.head_commit,
        f"refs/heads/{task.branch}": task.head_commit,  # of a sequence the last task's, which comes later
    }
    return {ref: commit for ref, commit in refs.items() if commit}


def fetch_meanwhile(project: Project, *, by: Principal, patience: float = PATIENCE) -> bool:
    """Fetch in a thread. Return whether it ended within `patience` seconds.

    Does nothing while another fetch runs. Raises NotAllowed for viewers.
    """
    require_actor(by, project)
    now = timezone.now()
    free = Q(fetching_since=None) | Q(fetching_since__lt=now - MAX_FETCH_TIME)
    if not Project.objects.filter(free, pk=project.pk).update(fetching_since=now):
        return False
    record_once_an_hour(Action.FETCHED, by=by.user, subject=project.name, project=project)
    thread = threading.Thread(
        target=_fetch_in_thread, args=(project,), name=f"fetch-{project.pk}", daemon=True
    )
    thread.start()
    thread.join(patience)
    return not thread.is_alive()


def _fetch_in_thread(project: Project) -> None:
    try:
        fetch(project, thorough=True)
    except CatHerderError as error:
        logger.info("project %s could not be fetched: %s", project, error)
    except Exception:
        logger.exception("project %s could not be fetched", project)
    finally:
        connection.close()


def _store_result(project: Project, **values: Any) -> None:
    Project.objects.filter(pk=project.pk).update(fetching_since=None, **values)
