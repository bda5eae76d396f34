"""The settings of a project: its repository's file, and the overrides in the portal (P1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from tasks_app.config.pipeline import ProjectConfig, choose_pipeline, load_project_config
from tasks_app.config.project_settings import (
    SETTINGS,
    Overrides,
    effective,
    file_key,
    is_set,
    value_in_file,
)
from tasks_app.config.repository_settings import soft_limit_fault
from tasks_app.config.setting import Setting, ask_rules, call_patterns
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git import Repository, committed_text, inspect_source
from tasks_app.history.audit import record
from tasks_app.models import Action, Calendar, Project, paths
from tasks_app.permissions import Principal, require_maintainer
from tasks_app.services.projects.projects import INSPECTING_SECONDS, fetch, fetch_meanwhile

CONFIG_FILE = "cat-herder.yaml"
#: Completes “Its maintainers …”.
CHANGE_SETTINGS = "change settings"


@dataclass(frozen=True)
class SettingInEffect:
    """One setting in words: in the file (and its line), in the portal, and in effect."""

    setting: Setting
    in_file: str
    line: int | None
    override: str
    in_effect: str

    @property
    def is_default(self) -> bool:
        """Whether neither the file nor the portal says something."""
        return not (self.in_file or self.override)


def repository_settings(project: Project, *, commit: str) -> ProjectConfig:
    """Return the repository's settings at a commit. Raises BadInput that names file, line and key."""
    return load_project_config(_config_text(paths.repository(project), commit), where=CONFIG_FILE)


@lru_cache(maxsize=100)
def _config_text(repository: Repository, commit: str) -> str | None:
    """Return the file of a commit, which never changes: each task that is created asks for it."""
    return committed_text(repository, commit=commit, path=CONFIG_FILE)


def overrides_of(project: Project) -> Overrides:
    """Return the overrides. Stored values are not checked: an upgrade may have stricter rules."""
    unset = {name: setting.kind.unset for name, setting in SETTINGS.items()}
    overrides: Overrides = Overrides.model_construct(**{**unset, **project.overrides})
    return overrides


def default_threshold(project: Project) -> int:
    """Return the threshold of tasks if neither they nor cat-herder.yaml have one."""
    chosen = overrides_of(project).default_threshold
    return settings.ENVIRONMENT.threshold if chosen is None else int(chosen)


def settings_in_effect(project: Project, text: str | None) -> list[SettingInEffect]:
    """Return every setting in the order of the page, with the file's `text` as the portal last fetched it.

    Raise BadInput (ConfigInvalid) if the file has errors.
    """
    config = load_project_config(text, where=CONFIG_FILE)
    lines = read_yaml(text or "", where=CONFIG_FILE).lines
    overrides = overrides_of(project)
    found = []
    for name, setting in SETTINGS.items():
        key = file_key(setting)
        line = lines.get(key) if key else None
        shown = _in_effect(setting, config, getattr(overrides, name), line)
        if name == "threshold" and shown.is_default and overrides.default_threshold is not None:
            shown = replace(shown, in_effect=f"{overrides.default_threshold} (default of the project)")
        found.append(shown)
    return found


def _in_effect(setting: Setting, config: ProjectConfig, override: Any, line: int | None) -> SettingInEffect:
    in_words = setting.kind.in_words
    value = in_file = value_in_file(setting, config)
    if setting.in_effect:
        value = setting.in_effect(override, in_file, settings.ENVIRONMENT)
    elif is_set(override):
        value = override
    return SettingInEffect(
        setting=setting,
        in_file=in_words(in_file) if line else "",
        line=line,
        override=in_words(override),
        in_effect=in_words(value) or setting.default(config, settings.ENVIRONMENT),
    )


def change_settings(project: Project, overrides: Overrides, *, by: Principal, commit: str) -> None:
    """Change the overrides. Overrides of keys of the file apply to tasks created from now on.

    Raises NotAllowed for all but maintainers, BadInput for a value that is not usable.
    """
    require_maintainer(by, project, CHANGE_SETTINGS)
    call_patterns(overrides.ask_before, entered_now=True)
    if overrides.ask:
        ask_rules(overrides.ask)
    before = overrides_of(project)
    if overrides.default_pipeline and overrides.default_pipeline != before.default_pipeline:
        choose_pipeline(
            repository_settings(project, commit=commit), explicit=overrides.default_pipeline, task=None
        )
    changed = _changed_values(before, overrides)
    if changed.keys() & {"soft_cost_usd", "max_cost_usd"}:
        _require_soft_limit_below_hard(repository_settings(project, commit=commit), overrides)
    for name, (_, value) in changed.items():
        try:
            SETTINGS[name].kind.check(value)
        except BadInput as error:
            raise BadInput(f"{SETTINGS[name].label} {error.message}.", where="settings") from None
    values = {name: getattr(overrides, name) for name in SETTINGS}
    values = {name: value for name, value in values.items() if is_set(value)}
    save_settings(project, {"overrides": values}, by=by, changed=changed)


def _require_soft_limit_below_hard(config: ProjectConfig, overrides: Overrides) -> None:
    """Raise BadInput at the overridden one of the two limits if they cannot hold together."""
    limits = effective(config, overrides).limits
    if fault := soft_limit_fault(limits.soft_cost_usd, hard=limits.max_cost_usd):
        name = "soft_cost_usd" if is_set(overrides.soft_cost_usd) else "max_cost_usd"
        raise BadInput(f"The soft limit {fault}", where=name)


def change_branch(project: Project, branch: str, *, by: Principal) -> None:
    """Change the branch of the source that new tasks start from.

    Raises NotAllowed for all but maintainers, WorkspaceError or BadInput if the branch does not exist.
    """
    require_maintainer(by, project, CHANGE_SETTINGS)
    paths.repository(project).head(branch)
    changed = {}
    if branch != project.branch:
        changed = {"branch": [project.branch, branch]}
    save_settings(project, {"branch": branch}, by=by, changed=changed)


def use_default_branch(project: Project, *, by: Principal | None = None) -> str:
    """Have new tasks start from the default branch of the source, and return its name. Asks the source.

    A person waits for a page, so a long fetch continues after it, and the project's page shows its failure.
    `by` is None for an operator at the machine, who waits for all of it. Raises NotAllowed for all but
    maintainers, WorkspaceError or BadInput if the source cannot be read.
    """
    if by is not None:
        require_maintainer(by, project, CHANGE_SETTINGS)
    before = project.branch
    project.branch = inspect_source(project.source, seconds=INSPECTING_SECONDS).head_branch
    if by is None:
        fetch(project)
    elif fetch_meanwhile(project, by=by):
        fault = Project.objects.values_list("fetch_fault", flat=True).get(pk=project.pk)
        if fault:
            raise WorkspaceError(fault)
    with transaction.atomic():
        project.save(update_fields=["branch"])
        record(
            Action.SETTINGS_CHANGED, by=by.user if by else None, actor_name="operator", project=project,
            changed={"branch": [before, project.branch]},
        )  # fmt: skip
    return project.branch


def save_settings(
    project: Project,
    values: Mapping[str, Any],
    *,
    by: Principal,
    changed: Mapping[str, list[Any]],
    where: str = "settings",
) -> None:
    """Save the values if any changed. Only changed ones are checked: rules may be stricter than they were.

    Raises BadInput with `where`.
    """
    for name, value in values.items():
        setattr(project, name, value)
    try:
        project.full_clean(exclude={field.name for field in project._meta.fields} - set(changed))
    except ValidationError as error:
        raise BadInput("; ".join(error.messages), where=where) from None
    if not changed:
        return
    with transaction.atomic():
        project.save(update_fields=list(values))
        Calendar.objects.filter(project=project).update(checked_at=None)  # its source may be another one
        record(Action.SETTINGS_CHANGED, by=by.user, project=project, changed=changed)


def _changed_values(before: Overrides, after: Overrides) -> dict[str, list[Any]]:
    """Return the old and the new value of each setting that changes."""
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in SETTINGS}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
