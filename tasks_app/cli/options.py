"""Options that several commands share, and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.lookup import find_project
from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.setting import Setting
from tasks_app.config.threshold import threshold_from_text
from tasks_app.core.errors import BadInput
from tasks_app.models import Project
from tasks_app.permissions import Principal, projects_visible_to


def add_creation_arguments(parser: CommandParser, *, what: str, source: str) -> None:
    """Add the options of commands that create or resume a task or a sequence."""
    parser.add_argument("--project", metavar="NAME", help=f"the project; needed with {source.upper()}")
    parser.add_argument("--threshold", metavar="N", help=f"{SETTINGS['threshold'].help} For a new {what}.")
    parser.add_argument("--pipeline", metavar="NAME", help=f"the pipeline to run through; for a new {what}")
    parser.add_argument(
        "--new", action="store_true", help=f"make a new {what} even if an earlier one has not ended"
    )


def add_terminal_arguments(parser: CommandParser) -> None:
    """Add the options of commands that run tasks in this terminal."""
    parser.add_argument(
        "--no-input",
        action="store_true",
        help="never prompt: when the agent asks, say how to answer and exit with code 3",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on stdout at the end; progress goes to stderr",
    )


def add_setting_arguments(parser: CommandParser) -> None:
    """Add an option for each setting of a project, and one that removes overrides."""
    for setting in SETTINGS.values():
        values = "|".join(choice for choice, _ in setting.kind.choices)
        parser.add_argument(
            setting.option,
            dest=_destination(setting),
            metavar=values or "VALUE",
            help=f"{setting.label}: {setting.text_help}".replace("%", "%%"),
        )
    parser.add_argument(
        "--reset",
        action="append",
        default=[],
        choices=[setting.option.removeprefix("--") for setting in SETTINGS.values()],
        metavar="SETTING",
        help="remove the override of a setting, for example: --reset threshold; can be repeated",
    )


def changed_overrides(options: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides that were given as options, by name. Raise BadInput that names the option."""
    changes: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        text = options[_destination(setting)]
        if text is not None:
            try:
                changes[name] = setting.kind.parse(text)
            except BadInput as error:
                raise BadInput(error.message, where=setting.option) from None
        if setting.option.removeprefix("--") in options["reset"]:
            changes[name] = setting.kind.unset
    return changes


def _destination(setting: Setting) -> str:
    """Return the key of the setting among the options; other options may have the setting's name."""
    return f"setting_{setting.name}"


def chosen_project(options: dict[str, Any], principal: Principal) -> Project | None:
    """Return the project of `--project`. Raises BadInput if the user sees no such project."""
    name = options["project"]
    return find_project(name, projects=projects_visible_to(principal)) if name else None


def creation_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return `threshold` and `pipeline` of a new task or sequence. Raises BadInput."""
    threshold = options["threshold"]
    return {
        "threshold": None if threshold is None else threshold_from_text(threshold, where="--threshold"),
        "pipeline": options["pipeline"],
    }


def refuse_creation_options(options: dict[str, Any], *, what: str, source: str) -> None:
    """Raise BadInput if an option for new ones is given together with an id, where it has no effect."""
    for name in ("threshold", "pipeline", "new"):
        if options[name]:
            raise BadInput(
                f"--{name} is for a new {what}, made from a {source}.", where=f"{what} {options[what]}"
            )


def resolve_path(path: str, project: Project) -> Path:
    """Resolve a path against the working directory, else against the project's source folder."""
    in_source = Path(project.source) / path
    if not Path(path).exists() and Path(project.source).is_dir() and in_source.exists():
        return in_source
    return Path(path)
