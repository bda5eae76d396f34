"""The command `cat-herder`, which does the same as `manage.py` in a checkout.

`manage.py` and the installed command import it, so it does not stand in `__main__.py`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from tasks_app.agent import ask
from tasks_app.core import environment
from tasks_app.core.errors import BadSetting
from tasks_app.core.files import prepare_data_dir


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in `argv`, by default that of this process, and exit."""
    program, *arguments = argv or sys.argv
    if arguments[:1] in (["ask"], ["reply"]):
        # Agents have a copy of it in their sandbox. Elsewhere it explains itself, and needs no settings.
        sys.exit(ask.main(arguments))
    gc.disable()  # while modules are imported there is no garbage; TasksConfig switches it on again
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    try:
        prepare_data_dir(environment.load(os.environ).data_dir)
    except BadSetting as error:
        sys.stderr.write(f"Cat Herder cannot start:\n{error}\n")
        sys.exit(2)
    from django.core.management import execute_from_command_line

    execute_from_command_line([program, *arguments])
