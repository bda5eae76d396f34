"""The file guard after the fact: what a step changed, held against the globs that it may write (P7).

The gate stops Write and Edit beforehand; only the diff shows what a shell command did.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks_app.agent.gate.patterns import allowed
from tasks_app.config.pipeline import step_from_json
from tasks_app.engine.checks import CheckReport
from tasks_app.engine.recording import runs_in_workspace
from tasks_app.git import ChangedFile, Repository, changed_files, ignored_files
from tasks_app.models import Run, paths

SHOWN = 50


def guard_report(run: Run) -> CheckReport | None:
    """Whether the step kept to its globs so far, as a check that can fail; None if it may write anywhere."""
    step = run.step
    globs = step_from_json(step.config).allow_write
    if globs is None:
        return None
    title = f"file guard: only {', '.join(globs)}{_without_ignored(run)}"
    if not run.head_commit:
        return CheckReport(
            False, title, problem="What the step changed could not be recorded, so it cannot be judged."
        )
    repository = paths.repository(step.task.project)
    changed = _changed(repository, step.base_commit, run.head_commit) - _made_by_checks(repository, run)
    changed |= _changed_ignored(repository, run)
    outside = sorted(path for path in changed if not allowed(path, list(globs)))
    if not outside:
        return CheckReport(True, title)
    problem = f"The step “{step.name}” changed files that it may not write."
    return CheckReport(False, title, _put_back(outside), problem=problem)


def plan_report(run: Run) -> CheckReport | None:
    """Whether a human approved the step's plan, as a check that can fail; None where no plan is wanted."""
    if not step_from_json(run.step.config).plan_approval:
        return None
    approved = run.step.questions.approved_plans().exists()
    if approved:
        return CheckReport(True, "plan approval")
    order = "Present your plan with ExitPlanMode; once a human has approved it, do what it says."
    problem = "The agent ended its turn without an approved plan."
    return CheckReport(False, "plan approval", order, problem=problem)


def _made_by_checks(repository: Repository, run: Run) -> set[str]:
    """What the checks of the step's earlier runs changed, and the agent left as it was since."""
    made: set[str] = set()
    for earlier in run.step.current_runs.filter(number__lt=run.number).exclude(checked_commit=""):
        by_checks = _changed(repository, earlier.head_commit, earlier.checked_commit)
        made |= by_checks - _changed(repository, earlier.checked_commit, run.head_commit)
    return made


def _without_ignored(run: Run) -> str:
    """What the guard could not look at, for its title."""
    if run.step.base_ignored:
        return ""
    return " (without files that .gitignore hides: they could not be listed before the step)"


def _changed_ignored(repository: Repository, run: Run) -> set[str]:
    """Files hidden by .gitignore that the step made or changed, without what checks make themselves.

    Those in folders that tools fill wherever they run (`TOOL_FOLDERS`) are not in the lists.
    """
    step = run.step
    if not (step.base_ignored and run.head_ignored):  # from before the lists were kept
        return set()
    before, after = (ignored_files(repository, one) for one in (step.base_ignored, run.head_ignored))
    changed = _new_in(before, after)
    return changed - _ignored_made_by_checks(repository, run) if changed else changed


def _ignored_made_by_checks(repository: Repository, run: Run) -> set[str]:
    """What a check writes once it writes again: the agent may run the same command."""
    made: set[str] = set()
    for earlier in runs_in_workspace(run.step.task).filter(pk__lt=run.pk).exclude(checked_ignored=""):
        lists = (ignored_files(repository, one) for one in (earlier.head_ignored, earlier.checked_ignored))
        made |= _new_in(*lists)
    return made


def _new_in(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {path for path, fingerprint in after.items() if before.get(path) != fingerprint}


def _changed(repository: Repository, base: str, head: str) -> set[str]:
    return {path for change in changed_files(repository, base=base, head=head) for path in _paths(change)}


def _paths(change: ChangedFile) -> list[str]:
    """A rename takes a file away as well."""
    return [change.path, *([change.old_path] if change.old_path else [])]


def _put_back(outside: list[str]) -> str:
    more = f"\n… and {len(outside) - SHOWN} more" if len(outside) > SHOWN else ""
    listed = "\n".join(outside[:SHOWN])
    return (
        f"Put them back as they were:\n{listed}{more}\n\n"
        "Files that .gitignore hides count too; remove those that you or a command of yours made."
    )
