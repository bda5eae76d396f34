"""The settings of a project that the portal can override, collected from their descriptors.

A new setting is a key of `RepositorySettings` with a `Setting`. One that no file may set has its `Setting`
here instead. `Project.overrides` has the values that people set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic import ConfigDict, Field, create_model

from tasks_app.config.fields import FileModel
from tasks_app.config.pipeline import ProjectConfig
from tasks_app.config.repository_settings import RepositorySettings
from tasks_app.config.setting import BUDGET, COUNT, FLAG, THRESHOLD, Setting

#: Settings that only the portal has: who can commit to the repository must not be able to change them.
PORTAL_SETTINGS = (
    Setting(
        name="default_threshold",
        kind=THRESHOLD,
        label="Default threshold",
        help="How readily the agent asks if neither cat-herder.yaml nor the task says so. 3 in new projects.",
        default=lambda config, environment: f"{environment.threshold} (installation default)",
    ),
    Setting(
        name="monthly_budget_usd",
        kind=BUDGET,
        label="Dollars a month",
        help="Once the project has cost this in a calendar month (UTC), no run begins: tasks wait for the "
        "next month, or until this is raised. 0: no run begins. A change applies at once, also to existing "
        "tasks.",
    ),
    Setting(
        name="max_running_tasks",
        kind=COUNT,
        label="Running tasks",
        help="How many of the project’s tasks workers work on at the same time; others wait. A change "
        "applies at once and stops none that is running.",
    ),
    Setting(
        name="apply_decisions",
        kind=FLAG,
        label="Answer by decisions",
        help="A decision answers a question without a human, if it answered the same question before, two "
        "people confirmed it, and the code that it cites is unchanged. Never approvals and plans. Every log "
        "shows it, and Undo opens the question again. A change applies at once.",
        default=lambda config, environment: "no",
    ),
    Setting(
        name="ladder_may_end",
        kind=FLAG,
        label="Rules may end questions",
        help="If nobody answers, the last rung of “If nobody answers” may let the agent decide, or take the "
        "option that it recommends. Never approvals, plans, costs and reviews, nor a question that says that "
        "something cannot be undone. Every log shows it, the agent is told that nobody answered, and Undo "
        "asks a human. A change applies at once.",
        default=lambda config, environment: "no",
    ),
    Setting(
        name="programs_decide",
        kind=FLAG,
        label="Programs decide",
        help="A program that somebody uses over MCP, such as their Claude Code, may also approve calls and "
        "plans, answer about costs and review results by itself. Otherwise it must show them a form. A "
        "change applies at once.",
        default=lambda config, environment: "no",
    ),
)


def _settings_of(model: type[FileModel], path: tuple[str, ...] = ()) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, FileModel):
            yield from _settings_of(field.annotation, (*path, name))
        for setting in field.metadata:
            if isinstance(setting, Setting):
                yield replace(setting, name=setting.name or name, path=(*path, name))


#: Every setting by its name, in the order of the page.
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {one.name: one for one in (*_settings_of(RepositorySettings), *PORTAL_SETTINGS)}
)

_fields: dict[str, Any] = {
    name: (setting.kind.stored, Field(default=setting.kind.unset, description=setting.json_help))
    for name, setting in SETTINGS.items()
}
_OverridesBase: Any = create_model(
    "_OverridesBase",
    __config__=ConfigDict(frozen=True, json_schema_serialization_defaults_required=True),
    **_fields,
)


class Overrides(_OverridesBase):  # type: ignore[misc]
    """Overrides of cat-herder.yaml; null and "" leave a setting to the file."""


def file_key(setting: Setting) -> tuple[str, ...]:
    """Return the place of the setting in cat-herder.yaml, as `("limits", "maxTurns")`; () without one."""
    model: Any = RepositorySettings
    keys = []
    for name in setting.path:
        field = model.model_fields[name]
        keys.append(str(field.validation_alias or name))
        model = field.annotation
    return tuple(keys)


def value_in_file(setting: Setting, config: ProjectConfig) -> Any:
    """Return what the file says, or the default that a file without the key has."""
    if not setting.path:
        return setting.kind.unset
    value: Any = config
    for name in setting.path:
        value = getattr(value, name)
    return value


def is_set(value: object) -> bool:
    """Return whether an override replaces the value of the file."""
    return value not in (None, "", ())


def effective(config: ProjectConfig, overrides: Overrides) -> ProjectConfig:
    """Return the file's settings with the overrides. Raise BadInput for an override that is not usable."""
    for setting in filter(file_key, SETTINGS.values()):
        stored = getattr(overrides, setting.name)
        if is_set(stored) and is_set(value := setting.kind.to_config(stored)):
            config = _with_value(config, (setting.overrides,) if setting.overrides else setting.path, value)
    return config


def _with_value(model: Any, path: tuple[str, ...], value: object) -> Any:
    name, *rest = path
    if rest:
        value = _with_value(getattr(model, name), tuple(rest), value)
    return model.model_copy(update={name: value})
