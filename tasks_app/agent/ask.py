"""`cat-herder ask "…"`: the command by which an agent asks a human through its Bash tool.

Inside a run the gate sees the call before it starts, halts the agent, and replaces the command by the
answer, so this program rarely runs there. When it does (a script may start it), it writes the question to the
ask spool, a folder that the portal reads after the run. It is a separate file that uses only the standard
library, because it is copied into the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid

OUTSIDE = """\
`cat-herder ask` is for agents that work on a task of Cat Herder: it pauses the task and shows the
question to a human. No task runs here, so nobody would see the question. To run a task: manage.py run_task.
"""
NOT_PAUSED = """\
The question was noted, but this run could not be paused from within another command. Do not guess the
answer. End your turn now; you will be told the answer. (Next time run `cat-herder ask "…"` through the
Bash tool as a command of its own.)
"""


def main(arguments: list[str] | None = None) -> int:
    """Return 2 if it is used outside a run, or wrongly, and 3 if the question is noted but nothing paused."""
    parser = argparse.ArgumentParser(prog="cat-herder", description="Ask a human from within a task.")
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask", help="pause the task until a human has answered")
    ask.add_argument("question", nargs="+", help="the question, in double quotes")
    question = " ".join(parser.parse_args(arguments).question).strip()
    folder = os.environ.get("CAT_HERDER_ASKED")
    if not folder:
        print(OUTSIDE, end="", file=sys.stderr)
        return 2
    if not question:
        parser.error("the question is empty")
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"{uuid.uuid4()}.json")  # noqa: PTH118
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"question": question}, file)
    os.replace(path + ".part", path)  # noqa: PTH105
    print(NOT_PAUSED, end="")
    return 3


if __name__ == "__main__":
    sys.exit(main())
