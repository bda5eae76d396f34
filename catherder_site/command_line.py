"""The command `cat-herder`: what `manage.py` does in a checkout, wherever the package is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from catherder_site import environment
from tasks_app.agent import ask


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in `argv`, by default that of this process, and exit."""
    program, *arguments = argv or sys.argv
    if arguments[:1] == ["ask"]:
        # Agents have a copy of it in their sandbox. Elsewhere it explains itself, and needs no settings.
        sys.exit(ask.main(arguments))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    try:
        environment.prepare_data_dir(environment.load(os.environ).data_dir)
    except environment.BadSetting as error:
        sys.stderr.write(f"Cat Herder cannot start:\n{error}\n")
        sys.exit(2)
    from django.core.management import execute_from_command_line

    execute_from_command_line([program, *arguments])


def in_new_process(*arguments: str) -> list[str]:
    """Return the command line that runs a command of this installation in a process of its own.

    `-P` because the folder in which the portal was started must not supply modules.
    """
    manage = Path(environment.BASE_DIR, "manage.py")
    program = [str(manage)] if environment.in_checkout() else ["-P", "-m", "catherder_site"]
    return [sys.executable, *program, *arguments]
