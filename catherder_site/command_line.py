"""The command `cat-herder`. Installed, `python -m catherder_site` is the same.

`manage.py` and the installed command import it, so it does not stand in `__main__.py`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from catherder_site import usage


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in `argv`, by default that of this process, and exit."""
    program, *arguments = argv or sys.argv
    if arguments[:1] in (["ask"], ["reply"]):
        # Agents have a copy of it in their sandbox. Elsewhere it explains itself, and needs no settings.
        from tasks_app.agent import ask

        sys.exit(ask.main(arguments))
    if arguments[:1] == ["django"]:
        run_django(["cat-herder django", *arguments[1:]])
        return
    arguments[:1] = [name.replace("-", "_") if name[:1] != "-" else name for name in arguments[:1]]
    usage.check(arguments)
    run_django([program, *arguments])


def run_django(argv: list[str]) -> None:
    """Run Django's command line, which has the portal's commands and those of Django."""
    from tasks_app.core import environment
    from tasks_app.core.errors import BadSetting
    from tasks_app.core.files import prepare_data_dir

    gc.disable()  # while modules are imported there is no garbage; TasksConfig switches it on again
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    try:
        prepare_data_dir(environment.load(os.environ).data_dir)
    except BadSetting as error:
        usage.refuse(f"Cat Herder cannot start:\n{error}")
    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)
