"""The file guard after a run: comparing what the step changed with the globs that it may write (P7).

The gate refuses Write and Edit beforehand; only the diff shows what a shell command changed.
"""

from __future__ import annotations

import re
from itertools import pairwise

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.agent.gate.patterns import WRITING, names_written, needs_approval
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.checks import CheckReport
from tasks_app.engine.planning.plan import AS_APPROVED, difference_from_approved, differs_from_approved
from tasks_app.git import Repository, changed_files, ignored_files
from tasks_app.models import QuestionKind, Run, Verdict, paths
from tasks_app.prompting.escaping import head
from tasks_app.services.sequences import faults_of_new_files
from tasks_app.services.workers.hosts import runs_in_workspace

SHOWN = 50
#: Maximum characters of the difference between an approved plan and the one in the workspace.
MAX_DIFFERENCE = 8_000


def guard_report(run: Run) -> CheckReport | None:
    """Return a check of whether the step kept to its globs so far; None if it may write anywhere."""
    step = run.step
    globs = step_from_json(step.config).allow_write
    if globs is None:
        return None
    title = f"file guard: only {', '.join(globs)} may change" if globs else "file guard: no file may change"
    if not step.base_ignored:
        title += " (without files that .gitignore hides: they could not be listed before the step)"
    if not run.head_commit:
        return CheckReport(
            False, title, problem="What the step changed could not be recorded, so it cannot be judged."
        )
    repository = paths.repository(step.task.project)
    changed = _changed_paths(repository, step.base_commit, run.head_commit) - _made_by_others(repository, run)
    changed |= _changed_ignored(repository, run)
    outside = sorted(path for path in changed if not allowed(path, list(globs)))
    if not outside:
        return CheckReport(True, title)
    problem = f"The step “{step.name}” changed files that it may not write."
    notes = _notes(repository, step.base_commit, run.head_commit)
    listed = [f"{path} ({notes[path]})" if path in notes else path for path in outside]
    found = _some_lines(listed)
    return CheckReport(False, title, found, problem=problem, order=_order_to_restore(listed))


def unasked_report(run: Run) -> CheckReport | None:
    """Return a failed check if a command changed files that wait for a human before they are written.

    Such as with `sed -i`, although `askBefore` has `Write(CHANGELOG.md)`. What a human approved counts as
    asked: a write of the file, or a command that names it.
    """
    step, task = run.step, run.step.task
    patterns = (*task.ask_before, *step_from_json(step.config).ask_before)
    rules = [pattern for pattern in patterns if names_written(pattern)]
    if not rules or not run.head_commit:
        return None
    repository, folder = paths.repository(task.project), paths.workspace(task).path
    seen_by_agent = f"{paths.placement().inside(folder)}/"
    approved = step.questions.filter(kind=QuestionKind.APPROVAL, verdict=Verdict.APPROVED)
    written, commands = set(), ""
    for given in approved.values_list("tool_input", flat=True):
        written |= {str(given.get(key, "")).removeprefix(seen_by_agent) for key in WRITING.values()}
        commands += str(given.get("command", "")).replace(seen_by_agent, "") + "\n"
    changed = _changed_paths(repository, step.base_commit, run.head_commit) - _made_by_others(repository, run)
    unasked = []
    for path in sorted(changed - written):
        asks = needs_approval(rules, "Write", {"file_path": path}, workspace=str(folder), cwd=str(folder))
        if asks and not re.search(rf"(?<![\w./-])(?:\./)?{re.escape(path)}(?![\w/-])", commands):
            unasked.append(path)
    if not unasked:
        return None
    found = _some_lines(unasked)
    problem = "A command changed files that the agent may write only after a human has agreed."
    order = (
        f"Put them back as they were:\n{found}\n\nIf a change of one is needed, make it with Write or Edit: "
        "these wait until a human has approved them."
    )
    return CheckReport(False, f"asked before: {', '.join(rules)}", found, problem=problem, order=order)


def plan_report(run: Run) -> CheckReport | None:
    """Return a check of whether a human approved the plan that the step has left; None if none has to."""
    if not step_from_json(run.step.config).plan_approval:
        return None
    if differs_from_approved(run.step):
        found = head(difference_from_approved(run.step), limit=MAX_DIFFERENCE)
        problem = f"{PLAN_FILE} is not the plan that a human has approved."
        return CheckReport(False, AS_APPROVED, found, problem=problem)
    if run.step.questions.approved_plans().exists():
        return CheckReport(True, "plan approval")
    order = "Present your plan with ExitPlanMode; once a human has approved it, do what it says."
    problem = "The agent ended its turn without an approved plan."
    return CheckReport(False, "plan approval", problem=problem, order=order)


def task_files_report(run: Run) -> CheckReport | None:
    """Return a failed check if the agent has added a faulty task file to its sequence.

    Otherwise the sequence would fail with it when its turn comes, after the agent's session.
    """
    sequence = run.step.task.sequence
    faults = faults_of_new_files(sequence) if sequence else []
    if not faults:
        return None
    found = "\n".join(head(fault, limit=500) for fault in faults)
    problem = "The sequence has a task file that cannot be run."
    order = f"Correct these task files:\n{found}"
    return CheckReport(False, "new task files can be run", found, problem=problem, order=order)


def _made_by_others(repository: Repository, run: Run) -> set[str]:
    """Return files that others changed between the step's runs and the agent has not changed since.

    Those are checks and, if the step goes on after a review, the steps after it and the portal.
    """
    made: set[str] = set()
    for earlier, before in _runs_around_others(run):
        began = before.checked_commit or before.head_commit
        if began != earlier.head_commit:
            by_others = _changed_paths(repository, earlier.head_commit, began)
            made |= by_others - _changed_paths(repository, began, run.head_commit)
    return made


def _runs_around_others(run: Run) -> list[tuple[Run, Run]]:
    """Return each recorded earlier run of the step, and the last one before the step's next run."""
    runs = list(run.step.current_runs.filter(number__lte=run.number))
    recorded = runs_in_workspace(run.step.task).exclude(head_commit="")
    befores = [(earlier, recorded.filter(pk__lt=later.pk).last()) for earlier, later in pairwise(runs)]
    return [(earlier, before) for earlier, before in befores if earlier.head_commit and before]


def _changed_ignored(repository: Repository, run: Run) -> set[str]:
    """Return files hidden by .gitignore that the step made or changed, without those that checks make.

    The lists leave out folders that tools fill wherever they run (`TOOL_FOLDERS`).
    """
    step = run.step
    if not (step.base_ignored and run.head_ignored):  # the run is older than the lists
        return set()
    changed = _new_or_changed(repository, step.base_ignored, run.head_ignored)
    if changed:
        changed -= _ignored_made_by_checks(repository, run)
    for earlier, before in _runs_around_others(run) if changed else ():
        began = before.checked_ignored or before.head_ignored
        if earlier.head_ignored and began:
            by_others = _new_or_changed(repository, earlier.head_ignored, began)
            changed -= by_others - _new_or_changed(repository, began, run.head_ignored)
    return changed


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


def _notes(repository: Repository, base: str, head: str) -> dict[str, str]:
    """Return what was changed of existing files beside lines, such as the executable bit, by path."""
    changes = changed_files(repository, base=base, head=head)
    return {change.path: change.note for change in changes if change.note and change.status == "M"}


def _some_lines(outside: list[str]) -> str:
    more = [f"… and {len(outside) - SHOWN} more"] if len(outside) > SHOWN else []
    return "\n".join([*outside[:SHOWN], *more])


def _order_to_restore(outside: list[str]) -> str:
    hidden = "Of the files that .gitignore hides, only those named here count: leave the others as they are."
    if len(outside) > SHOWN:
        hidden = "Files that .gitignore hides count too; remove those that you or a command of yours made."
    return (
        f"Put them back as they were, and delete those that are new:\n{_some_lines(outside)}\n\n{hidden} "
        "This holds also for what a human approved: an approval is for the command, not for the files of the "
        "step."
    )
