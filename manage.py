#!/usr/bin/env python
"""Django's command line, for the development of Cat Herder. Everybody else uses `cat-herder`."""

import sys

from catherder_site.command_line import run_django

if __name__ == "__main__":
    run_django(sys.argv)
