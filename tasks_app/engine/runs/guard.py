"""The file guard after a run: comparing what the step changed with the globs that it may write (P7).

The gate refuses Write and Edit beforehand; only the diff shows what a shell command changed.
"""

from __future__ import annotations

from tasks_app.agent.gate.patterns import allowed
from tasks_app.config.pipeline import step_from_json
from tasks_app.engine.checks import CheckReport
from tasks_app.git import Repository, changed_files, ignored_files
from tasks_app.models import Run, paths
from tasks_app.services.workers.workspaces import runs_in_workspace

SHOWN = 50


def guard_report(run: Run) -> CheckReport | None:
    """Return a check of whether the step kept to its globs so far; None if it may write anywhere."""
    step = run.step
    globs = step_from_json(step.config).allow_write
    if globs is None:
        return None
    title = f"file guard: only {', '.join(globs)}" if globs else "file guard: no file"
    if not step.base_ignored:
        title += " (without files that .gitignore hides: they could not be listed before the step)"
    if not run.head_commit:
        return CheckReport(
            False, title, problem="What the step changed could not be recorded, so it cannot be judged."
        )
    repository = paths.repository(step.task.project)
    changed = _changed_paths(repository, step.base_commit, run.head_commit) - _made_by_checks(repository, run)
    changed |= _changed_ignored(repository, run)
    outside = sorted(path for path in changed if not allowed(path, list(globs)))
    if not outside:
        return CheckReport(True, title)
    problem = f"The step “{step.name}” changed files that it may not write."
    return CheckReport(False, title, _order_to_restore(outside), problem=problem)


def plan_report(run: Run) -> CheckReport | None:
    """Return a check of whether a human approved the step's plan; None if the step needs no approval."""
    if not step_from_json(run.step.config).plan_approval:
        return None
    if run.step.questions.approved_plans().exists():
        return CheckReport(True, "plan approval")
    order = "Present your plan with ExitPlanMode; once a human has approved it, do what it says."
    problem = "The agent ended its turn without an approved plan."
    return CheckReport(False, "plan approval", order, problem=problem)


def _made_by_checks(repository: Repository, run: Run) -> set[str]:
    """Return files that checks of the step's earlier runs changed and the agent has not changed since."""
    made: set[str] = set()
    for earlier in run.step.current_runs.filter(number__lt=run.number).exclude(checked_commit=""):
        by_checks = _changed_paths(repository, earlier.head_commit, earlier.checked_commit)
        made |= by_checks - _changed_paths(repository, earlier.checked_commit, run.head_commit)
    return made


def _changed_ignored(repository: Repository, run: Run) -> set[str]:
    """Return files hidden by .gitignore that the step made or changed, without those that checks make.

    The lists leave out folders that tools fill wherever they run (`TOOL_FOLDERS`).
    """
    step = run.step
    if not (step.base_ignored and run.head_ignored):  # the run is older than the lists
        return set()
    changed = _new_or_changed(repository, step.base_ignored, run.head_ignored)
    return changed - _ignored_made_by_checks(repository, run) if changed else changed


def _ignored_made_by_checks(repository: Repository, run: Run) -> set[str]:
    """Return ignored files that any earlier check wrote: the agent may run the same command."""
    made: set[str] = set()
    for earlier in runs_in_workspace(run.step.task).filter(pk__lt=run.pk).exclude(checked_ignored=""):
        made |= _new_or_changed(repository, earlier.head_ignored, earlier.checked_ignored)
    return made


def _new_or_changed(repository: Repository, list_before: str, list_after: str) -> set[str]:
    """Compare two stored lists of ignored files."""
    before, after = ignored_files(repository, list_before), ignored_files(repository, list_after)
    return {path for path, fingerprint in after.items() if before.get(path) != fingerprint}


def _changed_paths(repository: Repository, base: str, head: str) -> set[str]:
    """Return the paths that differ between two commits; for a renamed file both its paths."""
    changes = changed_files(repository, base=base, head=head)
    return {path for change in changes for path in (change.path, change.old_path) if path}


def _order_to_restore(outside: list[str]) -> str:
    more = f"\n… and {len(outside) - SHOWN} more" if len(outside) > SHOWN else ""
    listed = "\n".join(outside[:SHOWN])
    return (
        f"Put them back as they were:\n{listed}{more}\n\n"
        "Files that .gitignore hides count too; remove those that you or a command of yours made."
    )
