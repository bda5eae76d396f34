#!/usr/bin/env python
"""Django's command line, with Cat Herder's own commands (see README.md)."""

import os
import sys

from catherder_site import environment


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    try:
        environment.prepare_data_dir(environment.load(os.environ).data_dir)
    except environment.BadSetting as error:
        sys.stderr.write(f"Cat Herder cannot start:\n{error}\n")
        sys.exit(2)
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
