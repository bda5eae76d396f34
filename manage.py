#!/usr/bin/env python
"""Django's command line, with Cat Herder's own commands (see README.md). Installed, it is `cat-herder`."""

from catherder_site.command_line import main

if __name__ == "__main__":
    main()
