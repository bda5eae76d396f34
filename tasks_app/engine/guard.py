"""The file guard after the fact: what a step changed, held against the globs that it may write (P7).

The gate stops Write and Edit beforehand; only the diff shows what a shell command did.
"""

from __future__ import annotations

from tasks_app import places
from tasks_app.agents.gate import allowed
from tasks_app.checks import CheckReport
from tasks_app.config.pipeline import step_from_json
from tasks_app.models import Step
from tasks_app.workspace import ChangedFile, changed_files

SHOWN = 50


def guard_report(step: Step) -> CheckReport | None:
    """Whether the step kept to its globs, as a check that can fail; None if it may write anywhere."""
    globs = step_from_json(step.config).allow_write
    if globs is None:
        return None
    title = f"file guard: only {', '.join(globs)}"
    if not step.head_commit:
        return CheckReport(
            False, title, "What the step changed could not be recorded, so it cannot be judged."
        )
    repository = places.repository(step.task.project)
    changes = changed_files(repository, base=step.base_commit, head=step.head_commit)
    outside = [path for change in changes for path in _paths(change) if not allowed(path, list(globs))]
    return CheckReport(not outside, title, _complaint(step.name, outside))


def _paths(change: ChangedFile) -> list[str]:
    """A rename takes a file away as well."""
    return [change.path, *([change.old_path] if change.old_path else [])]


def _complaint(step: str, outside: list[str]) -> str:
    if not outside:
        return ""
    more = f"\n… and {len(outside) - SHOWN} more" if len(outside) > SHOWN else ""
    listed = "\n".join(outside[:SHOWN])
    return (
        f"The step “{step}” changed files that it may not write. Put them back as they were:\n{listed}{more}"
    )
