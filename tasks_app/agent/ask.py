"""`cat-herder ask "…"` and `cat-herder reply N "…"`: the commands that agents have in their shell.

`ask`: inside a run the gate sees the call before it starts, halts the agent, and replaces the command by the
answer, so this program rarely runs there. When it does (a script may start it), it writes the question to the
ask spool, a folder that the portal reads after the run. `reply` writes to the reply spool, which the portal
reads during the run. This is a separate file that uses only the standard library, because it is copied into
the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid

OUTSIDE = """\
`cat-herder {command}` is for agents that work on a task of Cat Herder. No task runs here, so nobody would see
what you wrote. To run a task: manage.py run_task.
"""
NOBODY = "Nobody can be asked in this task. Decide by yourself, and write down what you assumed.\n"
NOT_PAUSED = """\
The question was noted, but this run could not be paused from within another command. Do not guess the
answer. End your turn now; you will be told the answer. (Next time run `cat-herder ask "…"` through the
Bash tool as a command of its own.)
"""


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if a reply is noted, 3 if a question is noted but nothing paused, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="cat-herder", description="Ask a human, or reply to one, from within a task."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask", help="pause the task until a human has answered")
    ask.add_argument("question", nargs="+", help="the question, in double quotes")
    reply = commands.add_parser("reply", help="reply to a thread of a review")
    reply.add_argument("thread", type=int, help="the number of the thread")
    reply.add_argument("text", nargs="+", help="the reply, in double quotes")
    given = parser.parse_args(arguments)
    return _spool_question(ask, given) if given.command == "ask" else _send_reply(reply, given)


def _spool_question(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    folder = os.environ.get("CAT_HERDER_ASKED")
    if not folder:
        inside = os.environ.get("CAT_HERDER_REPLIES")
        print(NOBODY if inside else OUTSIDE.format(command="ask"), end="", file=sys.stderr)
        return 2
    question = " ".join(given.question).strip()
    if not question:
        parser.error("the question is empty")
    _write_document(folder, {"question": question})
    print(NOT_PAUSED, end="")
    return 3


def _send_reply(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    folder = os.environ.get("CAT_HERDER_REPLIES")
    if not folder:
        print(OUTSIDE.format(command="reply"), end="", file=sys.stderr)
        return 2
    numbers = os.environ.get("CAT_HERDER_THREADS", "").split()
    text = " ".join(given.text).strip()
    if str(given.thread) not in numbers:
        parser.error(f"there is no thread {given.thread}; the threads are {', '.join(numbers)}")
    if not text:
        parser.error("the reply is empty")
    _write_document(folder, {"thread": given.thread, "text": text})
    print(f"Your reply to thread {given.thread} was noted.")
    return 0


def _write_document(folder: str, content: dict[str, object]) -> None:
    """Write the document under a name of its own, complete or not at all."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"{uuid.uuid4()}.json")  # noqa: PTH118
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(content, file)
    os.replace(path + ".part", path)  # noqa: PTH105


if __name__ == "__main__":
    sys.exit(main())
