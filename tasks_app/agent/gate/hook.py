"""The gate: a hook that decides before every tool call that could halt the agent or write a file.

It is a separate program in the agent's sandbox (`python -ISB gate.pyc RUN_DIR`, JSON on stdin, the permission
on stdout), because it runs once per tool call and must start in milliseconds, and because an SDK callback
registers too late when a session is resumed. It reads only the run directory, which the agent cannot write.
For the same reason what reads commands and paths is imported by those functions that need it: most calls need
neither, and importing it takes a third of the time that is not Python's own start.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys

if __name__ == "__main__":  # as a program it finds its modules in its own folder
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

#: The beginning of the reason for refusing a call that the gate cannot judge.
BROKEN = "The gate of this run is broken"
#: The reason for refusing to ask when the threshold has become 0 in a session that began with a way to ask.
NOBODY = (
    "The interaction threshold is 0 now, so nobody can be asked. Decide by yourself, and write down what you "
    "assumed."
)
#: Maximum time for one call. A gate that is killed by its alarm has blocked the call.
SECONDS = 15
NO_QUESTION = "(no question was given)"


def questions_in(command: str) -> list[str]:
    """Return the questions that a shell command asks by `cat-herder ask "…"`, in order.

    A question that is not found here is not lost: when the command really runs, it stores the question in the
    ask spool.
    """
    return list(dict.fromkeys(question for question, _ in _asked_in(command)))


def asks_about_goal(command: str) -> bool:
    """Return whether a shell command says of a question that it is about the goal: `--about goal`."""
    return any(about for _, about in _asked_in(command))


def _asked_in(command: str) -> list[tuple[str, bool]]:
    """Return each question of the command, and whether it is said to be about the goal."""
    if "cat-herder" not in command:
        return []
    from tasks_app.agent.gate.possible_commands import possible_commands

    try:
        found = [_asked_by(words) for words in possible_commands(command) if isinstance(words, list)]
    except (ValueError, RecursionError):  # the command cannot be parsed: take all text after `cat-herder ask`
        texts = re.findall(r"(?:\A|[\s;&|(])cat-herder\s+ask\b([^\n]*)", command)
        return [_asked_in_text(text.strip()) for text in texts]
    return [asked for asked in found if asked]


def _asked_by(words: list[str]) -> tuple[str, bool] | None:
    """Return what a command asks; None for any other command."""
    from tasks_app.agent.gate.possible_commands import program_name
    from tasks_app.agent.gate.shell_programs import SHELLS
    from tasks_app.agent.gate.shell_words import plain

    if words[:1] and words[0] in SHELLS:  # `bash cat-herder ask …`
        words = [program_name(word) for word in words[1:2]] + words[2:]
    if words[:2] != ["cat-herder", "ask"]:
        return None
    said, about_goal = _without_option(list(map(plain, words[2:])))
    return " ".join(said[said[:1] == ["--"] :]).strip() or NO_QUESTION, about_goal


def _without_option(said: list[str]) -> tuple[list[str], bool]:
    """Return the words without `--about goal` at the beginning or the end, and whether it was there."""
    lowered = [word.lower() for word in said]
    for option in (["--about=goal"], ["--about", "goal"]):
        size = len(option)
        if lowered[:size] == option:
            return said[size:], True
        if lowered[-size:] == option:
            return said[:-size], True
    return said, False


def _asked_in_text(text: str) -> tuple[str, bool]:
    taken = re.match(r"--about[= ]goal\b", text, re.IGNORECASE)
    return text[taken.end() if taken else 0 :].strip().strip("\"'") or NO_QUESTION, bool(taken)


def decide(call: dict, permissions: dict) -> dict | None:  # type: ignore[type-arg]
    """Return what the hook says of a tool call, or None to let the CLI's own rules decide."""
    permission = _human_permission(call, permissions)
    if permission is not None:
        return permission
    return {"permissionDecision": "defer"} if _is_ask(call) else None


def _is_ask(call: dict) -> bool:  # type: ignore[type-arg]
    name = call.get("tool_name")
    return name == "AskUserQuestion" or (
        name == "Bash" and bool(questions_in(str(call.get("tool_input", {}).get("command", ""))))
    )


def _human_permission(call: dict, permissions: dict) -> dict | None:  # type: ignore[type-arg]
    """Return a human's permission for this call. An approval applies only to the input that was shown."""
    stored = permissions.get(call.get("tool_use_id"))
    if stored is None:
        return None
    permission = dict(stored)
    if permission.pop("forInput", call.get("tool_input")) != call.get("tool_input"):
        return _deny("This is not the call that a human approved; it was not made.")
    return permission


def _deny(reason: str) -> dict:  # type: ignore[type-arg]
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def approval(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Halt at a plan for review, and at calls that need an approval in this project."""
    name = str(call.get("tool_name"))
    if name == "ExitPlanMode" and orders.get("plans"):
        return {"permissionDecision": "defer"}
    rules = orders.get("ask_before", [])
    if not rules:
        return None
    from tasks_app.agent.gate.patterns import needs_approval

    given = call.get("tool_input")
    folders = {"workspace": orders["workspace"], "cwd": str(call.get("cwd", ""))}
    if needs_approval(rules, name, given if isinstance(given, dict) else {}, **folders):
        return {"permissionDecision": "defer"}
    return None


def writes_plan(call: dict, orders: dict) -> bool:  # type: ignore[type-arg]
    """Return whether the call writes the plan for review, which lies outside the workspace."""
    if not orders.get("plans"):
        return False
    from tasks_app.agent.gate.patterns import WRITING, path_within

    key = WRITING.get(call.get("tool_name", ""))
    if key is None:
        return False
    return (
        path_within(str(call.get("tool_input", {}).get(key, "")), orders["plans"], call.get("cwd", ""))
        is not None
    )


def guard(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Refuse to write a file outside the step's globs, `allow_write` in the orders (None: any file)."""
    globs = orders.get("allow_write")
    if globs is None:
        return None
    from tasks_app.agent.gate.patterns import WRITING, allowed, path_within

    key = WRITING.get(call.get("tool_name", ""))
    if key is None:
        return None
    path = path_within(str(call.get("tool_input", {}).get(key, "")), orders["workspace"], call.get("cwd", ""))
    if path is not None and allowed(path, globs):
        return None
    wanted = path if path is not None else call.get("tool_input", {}).get(key)
    return _deny(refusal(orders["step"], globs, str(wanted)))


def refusal(step: str, globs: list[str], path: str) -> str:
    """Return the reason for refusing a write, with the step, its globs and the file."""
    if not globs:
        return f"The step “{step}” may write no file; {path} was not written."
    return f"The step “{step}” may write only {', '.join(globs)}; {path} is not among them."


def verdict(call: dict, run_dir: str) -> dict | None:  # type: ignore[type-arg]
    """Return the permission for the call according to the run's orders."""
    orders = _read_run_file(run_dir, "orders.json")
    permissions = _read_run_file(run_dir, "permissions.json")
    permission = decide(call, permissions) if orders.get("may_ask") else _human_permission(call, permissions)
    if permission is None and orders.get("asks_no_more") and _is_ask(call):
        return _deny(NOBODY)
    if permission is not None or writes_plan(call, orders):
        return permission
    return guard(call, orders) or approval(call, orders)


def _read_run_file(run_dir: str, name: str) -> dict:  # type: ignore[type-arg]
    with open(f"{run_dir}/{name}", encoding="utf-8") as file:  # noqa: PTH123
        return dict(json.load(file))


def main(run_dir: str) -> int:
    """Return the exit code. 2 blocks the call: a gate that cannot read its orders must not allow anything."""
    signal.alarm(SECONDS)  # the agent's program allows a call whose hook takes too long
    try:
        permission = verdict(json.load(sys.stdin), run_dir)
    except Exception as error:
        print(f"{BROKEN} ({error}); the call was not made.", file=sys.stderr)
        return 2
    if permission is not None:
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **permission}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
