"""`python -m catherder_site`, the same as `cat-herder`."""

import sys

from catherder_site.command_line import main

if __name__ == "__main__":
    main(["cat-herder", *sys.argv[1:]])
