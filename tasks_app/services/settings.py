"""A project's settings: those of its repository, and those set in the portal, which override them (P1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from tasks_app.agent.gate.patterns import call_pattern_fault
from tasks_app.config.fields import model_name
from tasks_app.config.pipeline import Limits, ProjectConfig, choose_pipeline, load_project_config
from tasks_app.config.tool_names import unknown_tool
from tasks_app.core.errors import BadInput
from tasks_app.git import committed_text
from tasks_app.history.audit import record
from tasks_app.models import Action, Project, paths
from tasks_app.permissions import Principal, require_maintainer

CONFIG_FILE = "cat-herder.yaml"
#: Completes “Its maintainers …”.
CHANGE_SETTINGS = "change settings"


@dataclass(frozen=True)
class Overrides:
    """What the portal says instead of the repository; None and "" leave it to the repository."""

    threshold: int | None = None
    default_pipeline: str = ""
    model: str = ""
    wait_for_reset: bool | None = None
    auto_commit: bool | None = None
    publish_plan: bool | None = None
    manage_git_branch: bool | None = None
    max_turns: int | None = None
    max_cost_usd: float | None = None
    step_timeout: int | None = None
    check_timeout: int | None = None
    ask_before: str = ""
    network: str = ""


def repository_settings(project: Project, *, commit: str) -> ProjectConfig:
    """What the repository says at a commit. Raises BadInput that names file, line and key."""
    text = committed_text(paths.repository(project), commit=commit, path=CONFIG_FILE)
    return load_project_config(text, where=CONFIG_FILE)


def overrides_of(project: Project) -> Overrides:
    return Overrides(**{name: getattr(project, name) for name in Overrides.__dataclass_fields__})


def effective(config: ProjectConfig, overrides: Overrides) -> ProjectConfig:
    """The settings that hold."""
    chosen = {
        "interaction_threshold": overrides.threshold,
        "default_pipeline": overrides.default_pipeline or None,
        "model": overrides.model or None,
        "wait_for_rate_limit_reset": overrides.wait_for_reset,
        "auto_commit": overrides.auto_commit,
        "publish_plan": overrides.publish_plan,
        "manage_git_branch": overrides.manage_git_branch,
        "ask_before": patterns_in(overrides.ask_before) or None,
        "network_limit": overrides.network or None,
    }
    limits = {name: getattr(overrides, name) for name in Limits.model_fields}
    return replace(
        config,
        limits=config.limits.model_copy(update=_set(limits)),
        **_set(chosen),
    )


def _set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def patterns_in(text: str, *, typed: bool = False) -> tuple[str, ...]:
    """Patterns of tool calls, one in a line. Raises BadInput that names the line.

    What is `typed` now must also name tools that exist. What was stored earlier need not: an upgrade that
    knows other tools must not take a project out of service.
    """
    patterns = []
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern := line.strip():
            reason = call_pattern_fault(pattern) or (unknown_tool(pattern) if typed else None)
            if reason:
                raise BadInput(f"line {number}, “{pattern[:60]}”, {reason}", where="ask before")
            patterns.append(pattern)
    return tuple(dict.fromkeys(patterns))


def change_settings(project: Project, overrides: Overrides, *, by: Principal, commit: str) -> None:
    """Set what the portal says instead of the repository; it holds for tasks created from now on.

    Raises NotAllowed for all but maintainers, BadInput for a value that cannot be used.
    """
    require_maintainer(by, project, CHANGE_SETTINGS)
    if overrides.model:
        model_name(overrides.model)
    patterns_in(overrides.ask_before, typed=True)
    before = overrides_of(project)
    if overrides.default_pipeline and overrides.default_pipeline != before.default_pipeline:
        choose_pipeline(
            repository_settings(project, commit=commit), explicit=overrides.default_pipeline, task=None
        )
    values = {name: getattr(overrides, name) for name in Overrides.__dataclass_fields__}
    _save(project, values, by=by, changed=_changed(before, overrides))


def change_branch(project: Project, branch: str, *, by: Principal) -> None:
    """Let tasks start from another branch of the source, from now on.

    Raises NotAllowed for all but maintainers, WorkspaceError or BadInput if the portal has no such branch.
    """
    require_maintainer(by, project, CHANGE_SETTINGS)
    paths.repository(project).head(branch)
    changed = {"branch": [project.branch, branch]} if branch != project.branch else {}
    _save(project, {"branch": branch}, by=by, changed=changed)


def _save(project: Project, values: dict[str, Any], *, by: Principal, changed: dict[str, list[Any]]) -> None:
    """Nothing is written where nothing changed."""
    for name, value in values.items():
        setattr(project, name, value)
    try:
        project.full_clean()
    except ValidationError as error:
        raise BadInput("; ".join(error.messages), where="settings") from None
    if not changed:
        return
    with transaction.atomic():
        project.save(update_fields=list(values))
        record(Action.SETTINGS_CHANGED, by=by.user, project=project, changed=changed)


def _changed(before: Overrides, after: Overrides) -> dict[str, list[Any]]:
    """Each setting that is another now: what it was, and what it is."""
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in Overrides.__dataclass_fields__}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
