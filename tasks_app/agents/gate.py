"""The gate: asked before every tool call that could halt the agent or write, in the agent's own jail.

A program of its own (`python -ISB gate.py RUN_DIR`, JSON on stdin, the decision on stdout) because
it runs once per tool call and must start in milliseconds, and because an SDK callback registers too
late when a session is resumed. It knows nothing but the run directory, which the agent cannot write.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys

OPERATORS = {";", "&&", "||", "|", "&", "(", ")", "\n", ";;", "|&"}
PREFIXES = {"bash", "sh", "command", "exec", "env", "sudo", "npx", "then", "do", "else", "!", "time"}
ASSIGNMENT = re.compile(r"\A[A-Za-z_]\w*=")


def questions_in(command: str) -> list[str]:
    """The questions that a shell command asks through `cat-herder ask "…"`, in order."""
    if "cat-herder" not in command:
        return []
    try:
        lexer = shlex.shlex(command.replace("\n", " \n "), posix=True, punctuation_chars=True)
        lexer.whitespace = " \t\r"
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        return _loosely(command)
    return _by_words(words)


def _by_words(words: list[str]) -> list[str]:
    found = []
    starts = True
    for index, word in enumerate(words):
        if starts and word.rsplit("/", 1)[-1] == "cat-herder" and words[index + 1 : index + 2] == ["ask"]:
            found.append(_until_operator(words[index + 2 :]))
        starts = word in OPERATORS or (starts and (word in PREFIXES or bool(ASSIGNMENT.match(word))))
    return found


def _until_operator(words: list[str]) -> str:
    question: list[str] = []
    for word in words:
        if word in OPERATORS or set(word) <= set("<>|&;()"):
            break
        question.append(word)
    return " ".join(question).strip() or "(no question was given)"


def _loosely(command: str) -> list[str]:
    """For commands that cannot be split into words: everything after `cat-herder ask`."""
    return [
        text.strip().strip("\"'") or "(no question was given)"
        for text in re.findall(r"(?:\A|[\s;&|(])cat-herder\s+ask\b([^\n]*)", command)
    ]


def decide(call: dict, decisions: dict) -> dict | None:  # type: ignore[type-arg]
    """The hook's decision for a tool call; None lets the ordinary permissions decide."""
    stored = decisions.get(call.get("tool_use_id"))
    if stored is not None:
        return dict(stored)
    name = call.get("tool_name")
    if name == "AskUserQuestion":
        return {"permissionDecision": "defer"}
    if name == "Bash" and questions_in(str(call.get("tool_input", {}).get("command", ""))):
        return {"permissionDecision": "defer"}
    return None


WRITING = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}


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
    return {
        "permissionDecision": "deny",
        "permissionDecisionReason": refusal(orders["step"], globs, str(wanted)),
    }


def refusal(step: str, globs: list[str], path: str) -> str:
    """Names the step, the globs and the file."""
    return f"The step “{step}” may write only {', '.join(globs)}; {path} is not among them."


def within(path: str, workspace: str, cwd: str) -> str | None:
    """The path relative to the workspace, with links followed; None if it leads out."""
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(cwd or root, path))  # noqa: PTH118
    if real == root or not real.startswith(root + os.sep):
        return None
    return os.path.relpath(real, root)


def allowed(path: str, globs: list[str]) -> bool:
    """Whether a path relative to the workspace matches one of the globs."""
    return any(re.fullmatch(_pattern(glob), path) for glob in globs)


def _pattern(glob: str) -> str:
    """A glob as an expression: `*` and `?` stay within a folder, `**` does not; `docs/` is all in it."""
    glob = glob.removeprefix("./")
    if glob.endswith("/"):
        glob += "**"
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", glob)
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(wild.get(part) or (_class(part) if part[:1] == "[" else re.escape(part)) for part in parts)


def _class(part: str) -> str:
    inner = part[1:-1].replace("\\", r"\\")
    return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"


def verdict(call: dict, run_dir: str) -> dict | None:  # type: ignore[type-arg]
    """What the run's orders say of the call."""
    orders = _read(run_dir, "orders.json")
    decision = decide(call, _read(run_dir, "decisions.json")) if orders.get("may_ask") else None
    return decision or guard(call, orders)


def _read(run_dir: str, name: str) -> dict:  # type: ignore[type-arg]
    with open(f"{run_dir}/{name}", encoding="utf-8") as file:  # noqa: PTH123
        return dict(json.load(file))


def main(run_dir: str) -> int:
    """Exit 2 blocks the call: a gate that cannot read its orders must not let anything through."""
    try:
        decision = verdict(json.load(sys.stdin), run_dir)
    except Exception as error:
        print(f"The gate of this run is broken ({error}); the call was not made.", file=sys.stderr)
        return 2
    if decision is not None:
        print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
