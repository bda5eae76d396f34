"""`cat-herder ask "…"`, `reply N "…"`, `decisions "…"`, `unfit D-17 "…"`, `not-done "…"` in an agent's shell.

`ask`: inside a run the gate sees the call before it starts, halts the agent, and replaces the command by the
answer, so this program rarely runs there. When it does (a script may start it), it writes the question to the
ask spool, a folder that the portal reads after the run. `reply` writes to the reply spool, which the portal
reads during the run, as it does with what `unfit` and `not-done` write. `decisions` searches the project's
decisions in a file of the run. This is a separate file that uses only the standard library, because it is
copied into the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import uuid
from typing import Any

OUTSIDE = """\
`cat-herder {command}` is for agents that work on a task of Cat Herder. No task runs here, so nobody would see
what you wrote. To run a task: cat-herder run_task.
"""
NOBODY = "Nobody can be asked in this task. Decide by yourself, and write down what you assumed.\n"
NO_REVIEW = "No thread of a review waits for a reply in this run. Say it in your last message.\n"
NO_DECISIONS = "No decisions were in force when this run began.\n"
#: Maximum decisions that one search shows.
MOST_SHOWN = 30
#: What is shown below a decision, if it has that.
SHOWN = {
    "exceptions": "Except",
    "question": "Question",
    "reason": "Reason",
    "doubt": "An agent said that it does not fit",
}
NOT_PAUSED = """\
The question was noted, but this run could not be paused from within another command. Do not guess the
answer. End your turn now; you will be told the answer. (Next time run `cat-herder ask "…"` through the
Bash tool as a command of its own.)
"""


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if a reply is noted, 3 if a question is noted but nothing paused, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="cat-herder", description="Ask a human, reply to one, or look up decisions, from within a task."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask", help="pause the task until a human has answered")
    ask.add_argument("--about", choices=["goal"], default="", help="what the question is about")
    ask.add_argument("question", nargs="+", help="the question, in double quotes")
    reply = commands.add_parser("reply", help="reply to a thread of a review")
    reply.add_argument("thread", type=int, help="the number of the thread")
    reply.add_argument("text", nargs="+", help="the reply, in double quotes")
    decisions = commands.add_parser("decisions", help="show the project's decisions")
    decisions.add_argument("words", nargs="*", help="words to look for, in double quotes; none shows all")
    unfit = commands.add_parser("unfit", help="say that a decision stands in the way or is no longer true")
    unfit.add_argument("decision", help="the decision, such as D-17")
    unfit.add_argument("why", nargs="+", help="the reason, in double quotes")
    not_done = commands.add_parser("not-done", help="say that you cannot do the task, which then fails")
    not_done.add_argument("why", nargs="+", help="the reason, in double quotes")
    given = parser.parse_args(arguments)
    if given.command == "not-done":
        return _note_not_done(not_done, given)
    if given.command == "ask":
        return _spool_question(ask, given)
    if given.command == "reply":
        return _send_reply(reply, given)
    if given.command == "decisions":
        return _show_decisions(given)
    return _note_unfit(unfit, given)


def _spool_question(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    folder = os.environ.get("CAT_HERDER_ASKED")
    if not folder:
        inside = os.environ.get("CAT_HERDER_SAID")
        print(NOBODY if inside else OUTSIDE.format(command="ask"), end="", file=sys.stderr)
        return 2
    question = " ".join(given.question).strip()
    if not question:
        parser.error("the question is empty")
    document: dict[str, object] = {"question": question}
    if given.about:
        document["about"] = given.about
    _write_document(folder, document)
    print(NOT_PAUSED, end="")
    return 3


def _send_reply(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    folder = os.environ.get("CAT_HERDER_REPLIES")
    if not folder:
        inside = os.environ.get("CAT_HERDER_SAID")
        print(NO_REVIEW if inside else OUTSIDE.format(command="reply"), end="", file=sys.stderr)
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


def _show_decisions(given: argparse.Namespace) -> int:
    """Print the decisions with the most of the words first, stop words apart; all of them without words."""
    document = _decisions_document("decisions")
    if document is None:
        return 2
    known, ignored = document["decisions"], document["stop_words"]
    words = [word.strip("?!.,:;()\"'`") for word in " ".join(given.words).lower().split()]
    words = [word for word in words if word and word not in ignored]
    found = [(sum(_has(one, word) for word in words), one) for one in known]
    shown = [one for count, one in sorted(found, key=lambda pair: -pair[0]) if count or not given.words]
    for one in shown[:MOST_SHOWN]:
        source = [str(one[name]) for name in ("decided_by", "day", "where") if one.get(name)]
        if one.get("replaces"):
            source.append(f"replaces {one['replaces']}")
        if one.get("exception_to"):
            source.append(f"exception to {one['exception_to']}")
        print(_indented(f"{one['label']} ({', '.join(source)}): {one['statement']}"))
        for name, title in SHOWN.items():
            if one.get(name):
                print(_indented(f"    {title}: {one[name]}"))
    if not known:
        print(NO_DECISIONS, end="")
    elif replacing := [one for one in known if str(one.get("replaces")).lower() in words]:
        label = replacing[0]["replaces"]
        print(f"{label} does not hold any more. {replacing[0]['label']} replaces it.")
    elif not shown:
        named = [word.upper() for word in words if re.fullmatch(r"d-[0-9]+", word)]
        which = f"decision {named[0]}" if named else "decision with these words"
        print(f"No {which} was in force when this run began.")
    elif len(shown) > MOST_SHOWN:
        print(f"{len(shown) - MOST_SHOWN} more; use more words.")
    return 0


def _indented(text: str) -> str:
    """Indent all lines after the first."""
    return text.replace("\n", "\n    ")


def _note_unfit(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    document = _decisions_document("unfit")
    if document is None:
        return 2
    known = document["decisions"]
    label, why = given.decision.upper(), " ".join(given.why).strip()
    if newer := [one["label"] for one in known if one.get("replaces") == label]:
        parser.error(f"{label} does not hold any more, so nothing was noted; {newer[0]} replaces it")
    if label not in (one["label"] for one in known):
        parser.error(
            f"nothing was noted: no decision {given.decision} holds here; `cat-herder decisions` shows all"
        )
    if not why:
        parser.error("say what it stands in the way of, or what is different now")
    number = next(one["number"] for one in known if one["label"] == label)
    _write_document(os.environ["CAT_HERDER_SAID"], {"decision": number, "why": why})
    may_ask = " If you cannot go on, ask." if os.environ.get("CAT_HERDER_ASKED") else ""
    print(f"A human will look at {label} and read your reason. It stays in force until then.{may_ask}")
    return 0


def _note_not_done(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    folder = os.environ.get("CAT_HERDER_SAID")
    if not folder:
        print(OUTSIDE.format(command="not-done"), end="", file=sys.stderr)
        return 2
    why = " ".join(given.why).strip()
    if not why:
        parser.error("say why it is not done")
    _write_document(folder, {"why": why})
    print("It was noted that the task is not done. End your turn now: the task fails with this reason.")
    return 0


def _decisions_document(command: str) -> dict[str, Any] | None:
    path = os.environ.get("CAT_HERDER_DECISIONS")
    if not path and os.environ.get("CAT_HERDER_SAID"):
        return {"decisions": [], "stop_words": []}
    if not path:
        print(OUTSIDE.format(command=command), end="", file=sys.stderr)
        return None
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        document: dict[str, Any] = json.load(file)
    return document


def _has(decision: dict[str, object], word: str) -> bool:
    """Return whether the decision has the word in a text; D-1 is D-1 only, and not D-17."""
    if str(decision["label"]).lower() == word:
        return True
    return (
        word
        in " ".join(
            str(decision.get(name, "")) for name in ("statement", "question", "reason", "where")
        ).lower()
    )


def _write_document(folder: str, content: dict[str, object]) -> None:
    """Write the document under a name of its own, complete or not at all."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"{uuid.uuid4()}.json")  # noqa: PTH118
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(content, file)
    os.replace(path + ".part", path)  # noqa: PTH105


if __name__ == "__main__":
    sys.exit(main())
