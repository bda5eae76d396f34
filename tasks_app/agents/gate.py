"""The gate: asked before every tool call that could halt the agent or write, in the agent's own jail.

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

from tasks_app.patterns import WRITING, allowed, asked_before, within
from tasks_app.shell import ASIDE, PREFIXES, SCRIPT_OPTION, is_operator, split_words, without_heredocs

FROM_HEREDOC = re.compile(r"\A\$\(\s*cat <<heredoc-(\d+)\s*\)\Z")
QUOTED_SUBSTITUTION = re.compile(r'"(?=\$\(\s*[^\s"]*cat-herder\s+ask\b)')
#: What a call is refused with that the gate cannot judge.
BROKEN = "The gate of this run is broken"
#: Time for one decision. Ended by its alarm, the gate has blocked the call.
SECONDS = 15
NO_QUESTION = "(no question was given)"


def questions_in(command: str) -> list[str]:
    """The questions that a shell command asks through `cat-herder ask "…"`, in order.

    What is missed is not lost: the command, when it really runs, notes its question for the portal.
    """
    if "cat-herder" not in command:
        return []
    command, texts = without_heredocs(command.replace("\\\n", ""))
    try:
        questions = _by_words(split_words(_without_quotes_around_asks(command)))
    except ValueError:
        questions = _loosely(command)
    return [_spelled_out(question, texts) for question in questions]


def _without_quotes_around_asks(command: str) -> str:
    """`"$(cat-herder ask …)"` without its quotes: what is in them is a command."""
    parts: list[str] = []
    done = 0
    while begin := QUOTED_SUBSTITUTION.search(command, done):
        end = command.find(')"', begin.end())
        if end < 0:
            break
        parts += [command[done : begin.start()], command[begin.end() : end + 1]]
        done = end + 2
    return "".join([*parts, command[done:]])


def _spelled_out(question: str, texts: list[str]) -> str:
    """The here-document itself where the question is `$(cat <<'EOF' …)`."""
    found = FROM_HEREDOC.match(question)
    return (texts[int(found[1])].strip() or NO_QUESTION) if found else question


def _by_words(words: list[str]) -> list[str]:
    found = []
    starts = True
    for index, word in enumerate(words):
        after = words[index + 1 : index + 2]
        if starts and word.rsplit("/", 1)[-1] == "cat-herder" and after == ["ask"]:
            found.append(_until_operator(words[index + 2 :]))
        if starts and SCRIPT_OPTION.match(word):
            found += questions_in("".join(after))
        starts = is_operator(word) or (starts and (word in PREFIXES or bool(ASIDE.match(word))))
    return found


def _until_operator(words: list[str]) -> str:
    question: list[str] = []
    for word in words:
        if is_operator(word):
            if word[0] in "<>" and question and question[-1] in {"0", "1", "2"}:
                question.pop()  # the 2 of 2>&1
            break
        question.append(word)
    return " ".join(question[question[:1] == ["--"] :]).strip() or NO_QUESTION


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
    name = call.get("tool_name")
    if name == "AskUserQuestion":
        return {"permissionDecision": "defer"}
    if name == "Bash" and questions_in(str(call.get("tool_input", {}).get("command", ""))):
        return {"permissionDecision": "defer"}
    return None


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
        within(str(call.get("tool_input", {}).get(key, "")), orders["plans"], call.get("cwd", "")) is not None
    )


def guard(call: dict, orders: dict) -> dict | None:  # type: ignore[type-arg]
    """Stop a write outside the step's globs. `orders`: step, workspace, allow_write (None: no guard)."""
    globs = orders.get("allow_write")
    key = WRITING.get(call.get("tool_name", ""))
    if globs is None or key is None:
        return None
    path = within(str(call.get("tool_input", {}).get(key, "")), orders["workspace"], call.get("cwd", ""))
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
