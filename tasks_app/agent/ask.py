"""`cat-herder ask "…"`: the command by which an agent asks a human through its Bash tool.

Inside a run the gate sees the call before it starts, halts the agent, and puts the answer in place of
the command, so this program itself hardly ever runs there. When it does (started from a script, say),
the question is left in a folder where the portal finds it after the run. A file of its own, with the
standard library only, because it is carried into the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid

OUTSIDE = """\
`cat-herder ask` is for an agent at work in a task of Cat Herder: it pauses the task and shows the
question to a human. Here is no task at work, so nobody would see it. To run a task: manage.py run_task.
"""
NOT_PAUSED = """\
The question was noted, but this run could not be paused from within another command. Do not guess the
answer. End your turn now; you will be told the answer. (Next time run `cat-herder ask "…"` through the
Bash tool as a command of its own.)
"""


def main(arguments: list[str] | None = None) -> int:
    """Exit 2: used outside a run, or wrongly. Exit 3: the question is noted but nothing was paused."""
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
    _note(folder, question)
    print(NOT_PAUSED, end="")
    return 3


def _note(folder: str, question: str) -> None:
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"{uuid.uuid4()}.json")  # noqa: PTH118
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"question": question}, file)
    os.replace(path + ".part", path)  # noqa: PTH105


if __name__ == "__main__":
    sys.exit(main())
