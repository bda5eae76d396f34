"""The gate: asked before every tool call that could halt the agent or write, in the agent's own sandbox.

A program of its own (`python -ISB gate.pyc RUN_DIR`, JSON on stdin, the decision on stdout) because
it runs once per tool call and must start in milliseconds, and because an SDK callback registers too
late when a session is resumed. It knows nothing but the run directory, which the agent cannot write.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys

if __name__ == "__main__":  # as a program it finds what it needs beside it, in the run's own folder
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

from tasks_app.agent.gate.patterns import WRITING, allowed, asked_before, path_within
from tasks_app.agent.gate.shell import SHELLS, program, runs
from tasks_app.agent.gate.shell_reader import plain

#: What a call is refused with that the gate cannot judge.
BROKEN = "The gate of this run is broken"
#: What asking is refused with once the threshold is 0, in a session that began with a way to ask.
NOBODY = (
    "The interaction threshold is 0 now, so nobody can be asked. Decide by yourself, and write down what you "
    "assumed."
)
#: Time for one decision. Ended by its alarm, the gate has blocked the call.
SECONDS = 15
NO_QUESTION = "(no question was given)"


def questions_in(command: str) -> list[str]:
    """The questions that a shell command asks through `cat-herder ask "…"`, in order.

    What is missed is not lost: the command, when it really runs, notes its question for the portal.
    """
    if "cat-herder" not in command:
        return []
    try:
        found = [_question(words) for words in runs(command) if isinstance(words, list)]
    except (ValueError, RecursionError):
        return _loosely(command)
    return list(dict.fromkeys(question for question in found if question))


def _question(words: list[str]) -> str:
    """The question that a command asks; empty for any other command."""
    if words[:1] and words[0] in SHELLS:  # `bash cat-herder ask …`
        words = [program(word) for word in words[1:2]] + words[2:]
    if words[:2] != ["cat-herder", "ask"]:
        return ""
    return " ".join(map(plain, words[2 + (words[2:3] == ["--"]) :])).strip() or NO_QUESTION


def _loosely(command: str) -> list[str]:
    """For commands that cannot be split into words: everything after `cat-herder ask`."""
    return [
        text.strip().strip("\"'") or NO_QUESTION
        for text in re.findall(r"(?:\A|[\s;&|(])cat-herder\s+ask\b([^\n]*)", command)
    ]


def decide(call: dict, decisions: dict) -> dict | None:  # type: ignore[type-arg]
    """The hook's decision for a tool call; None lets the ordinary permissions decide."""
    stored = _stored(call, decisions)
    if stored is not None:
        return stored
    return {"permissionDecision": "defer"} if _is_ask(call) else None


def _is_ask(call: dict) -> bool:  # type: ignore[type-arg]
    name = call.get("tool_name")
    return name == "AskUserQuestion" or (
        name == "Bash" and bool(questions_in(str(call.get("tool_input", {}).get("command", ""))))
    )


def _stored(call: dict, decisions: dict) -> dict | None:  # type: ignore[type-arg]
    """What a human decided about this very call. An approval holds for the input that was shown, only."""
    stored = decisions.get(call.get("tool_use_id"))
    if stored is None:
        return None
    decision = dict(stored)
    if decision.pop("forInput", call.get("tool_input")) != call.get("tool_input"):
        return _deny("This is not the call that a human approved; it was not made.")
    return decision


def _deny(reason: str) -> dict:  # type: ignore[type-arg]
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def approval(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Halt at a plan to review, and at what the project wants to be asked before."""
    name = str(call.get("tool_name"))
    if name == "ExitPlanMode" and orders.get("plans"):
        return {"permissionDecision": "defer"}
    given = call.get("tool_input")
    rules = orders.get("ask_before", [])
    place = {"workspace": orders["workspace"], "cwd": str(call.get("cwd", ""))}
    if asked_before(rules, name, given if isinstance(given, dict) else {}, **place):
        return {"permissionDecision": "defer"}
    return None


def writes_plan(call: dict, orders: dict) -> bool:  # type: ignore[type-arg]
    """Whether the call writes the plan that is to be reviewed, which lies outside the workspace."""
    key = WRITING.get(call.get("tool_name", ""))
    if key is None or not orders.get("plans"):
        return False
    return (
        path_within(str(call.get("tool_input", {}).get(key, "")), orders["plans"], call.get("cwd", ""))
        is not None
    )


def guard(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Stop a write outside the step's globs. `orders`: step, workspace, allow_write (None: no guard)."""
    globs = orders.get("allow_write")
    key = WRITING.get(call.get("tool_name", ""))
    if globs is None or key is None:
        return None
    path = path_within(str(call.get("tool_input", {}).get(key, "")), orders["workspace"], call.get("cwd", ""))
    if path is not None and allowed(path, globs):
        return None
    wanted = path if path is not None else call.get("tool_input", {}).get(key)
    return _deny(refusal(orders["step"], globs, str(wanted)))


def refusal(step: str, globs: list[str], path: str) -> str:
    """Names the step, the globs and the file."""
    return f"The step “{step}” may write only {', '.join(globs)}; {path} is not among them."


def verdict(call: dict, run_dir: str) -> dict | None:  # type: ignore[type-arg]
    """What the run's orders say of the call."""
    orders = _read(run_dir, "orders.json")
    decisions = _read(run_dir, "decisions.json")
    decision = decide(call, decisions) if orders.get("may_ask") else _stored(call, decisions)
    if decision is None and orders.get("asks_no_more") and _is_ask(call):
        return _deny(NOBODY)
    if decision is not None or writes_plan(call, orders):
        return decision
    return guard(call, orders) or approval(call, orders)


def _read(run_dir: str, name: str) -> dict:  # type: ignore[type-arg]
    with open(f"{run_dir}/{name}", encoding="utf-8") as file:  # noqa: PTH123
        return dict(json.load(file))


def main(run_dir: str) -> int:
    """Exit 2 blocks the call: a gate that cannot read its orders must not let anything through."""
    signal.alarm(SECONDS)  # the agent's program lets a call through whose hook takes too long
    try:
        decision = verdict(json.load(sys.stdin), run_dir)
    except Exception as error:
        print(f"{BROKEN} ({error}); the call was not made.", file=sys.stderr)
        return 2
    if decision is not None:
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
