"""The gate: asked before every tool call that could halt the agent or write, in the agent's own jail.

A program of its own (`python -ISB gate.py RUN_DIR`, JSON on stdin, the decision on stdout) because
it runs once per tool call and must start in milliseconds, and because an SDK callback registers too
late when a session is resumed. It knows nothing but the run directory, which the agent cannot write.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import shlex
import sys

OPERATORS = ";&|()<>`\n"
PREFIXES = {
    *("bash", "sh", "command", "builtin", "exec", "eval", "env", "sudo", "npx", "nohup", "time", "timeout"),
    *("if", "then", "elif", "else", "while", "until", "do", "{", "!"),
}
#: What may stand between a prefix and its command: an option, a time, an assignment.
ASIDE = re.compile(r"\A(-\S*|\d+[smhd]?|[A-Za-z_]\w*=.*)\Z", re.DOTALL)
SCRIPT_OPTION = re.compile(r"\A-[a-z]*c\Z")
HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
HEREDOC_END = re.compile(r"^[ \t]*(\w+)[ \t]*(?=\n|\)|\Z)", re.MULTILINE)
FROM_HEREDOC = re.compile(r"\A\$\(\s*cat <<heredoc-(\d+)\s*\)\Z")
QUOTED_SUBSTITUTION = re.compile(r'"(?=\$\(\s*[^\s"]*cat-herder\s+ask\b)')
NO_QUESTION = "(no question was given)"
GLOB_PARTS = re.compile(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])")


def questions_in(command: str) -> list[str]:
    """The questions that a shell command asks through `cat-herder ask "…"`, in order.

    What is missed is not lost: the command, when it really runs, notes its question for the portal.
    """
    if "cat-herder" not in command:
        return []
    command, texts = _without_heredocs(command.replace("\\\n", ""))
    try:
        questions = _by_words(_words(_without_quotes_around_asks(command)))
    except ValueError:
        questions = _loosely(command)
    return [_spelled_out(question, texts) for question in questions]


def _without_heredocs(command: str) -> tuple[str, list[str]]:
    """The command with a number in place of each here-document, which is text and not a command.

    Without one pattern for the whole of it: that takes the square of the length, and the worker waits.
    """
    ends = _heredoc_ends(command)
    parts: list[str] = []
    texts: list[str] = []
    done = line_end = 0
    while line_end >= 0 and (begin := HEREDOC.search(command, done)):
        if line_end < begin.end():
            line_end = command.find("\n", begin.end())
        places = ends.get(begin[2], [])
        at = bisect.bisect_right(places, (line_end, len(command)))
        if line_end < 0 or at == len(places):
            parts.append(command[done : begin.end()])
            done = begin.end()
            continue
        text_end, end = places[at]
        parts.append(
            f"{command[done : begin.start()]}<<heredoc-{len(texts)}{command[begin.end() : line_end]}"
        )
        texts.append(command[line_end + 1 : text_end])
        done = end
    return "".join([*parts, command[done:]]), texts


def _heredoc_ends(command: str) -> dict[str, list[tuple[int, int]]]:
    """Where lines begin and end that hold one word alone, and so may close a here-document of that name."""
    ends: dict[str, list[tuple[int, int]]] = {}
    for found in HEREDOC_END.finditer(command):
        ends.setdefault(found[1], []).append(found.span())
    return ends


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


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _by_words(words: list[str]) -> list[str]:
    found = []
    starts = True
    for index, word in enumerate(words):
        after = words[index + 1 : index + 2]
        if starts and word.rsplit("/", 1)[-1] == "cat-herder" and after == ["ask"]:
            found.append(_until_operator(words[index + 2 :]))
        if starts and SCRIPT_OPTION.match(word):
            found += questions_in("".join(after))
        starts = _is_operator(word) or (starts and (word in PREFIXES or bool(ASIDE.match(word))))
    return found


def _is_operator(word: str) -> bool:
    return bool(word) and set(word) <= set(OPERATORS)


def _until_operator(words: list[str]) -> str:
    question: list[str] = []
    for word in words:
        if _is_operator(word):
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
    return any(matches(path, glob) for glob in globs)


def matches(path: str, glob: str) -> bool:
    """`*`, `?` and `[…]` stay within a folder, `**` does not; `docs/` is all in it.

    Step by step, and not as an expression of `re`: a repository could write a glob that takes it years.
    """
    glob = glob.removeprefix("./")
    if glob.endswith("/"):
        glob += "**"
    reached = {0}
    for part in GLOB_PARTS.split(glob):
        reached = _after(part, path, reached) if part else reached
        if not reached:
            return False
    return len(path) in reached


def _after(part: str, path: str, reached: set[int]) -> set[int]:
    """The places in the path that may be reached when `part` of a glob follows those reached before it."""
    if part == "**":
        return set(range(min(reached), len(path) + 1))
    if part == "**/":
        return reached | {at + 1 for at in range(min(reached), len(path)) if path[at] == "/"}
    if part == "*":
        return _within_folder(path, reached)
    if part == "?" or part[0] == "[":
        return {at + 1 for at in reached if at < len(path) and _is_one(path[at], part)}
    return {at + len(part) for at in reached if path.startswith(part, at)}


def _within_folder(path: str, reached: set[int]) -> set[int]:
    found = set(reached)
    for at in range(min(reached), len(path)):
        if at in found and path[at] != "/":
            found.add(at + 1)
    return found


def _is_one(char: str, part: str) -> bool:
    """Whether `?` or a class such as `[a-z_]` or `[!0-9]` stands for the character."""
    if char == "/" or part == "?":
        return char != "/"
    inner = part[1:-1]
    negated = len(inner) > 1 and inner[0] == "!"
    inner = inner[negated:]
    ranges = re.findall(r"(.)-(.)", inner, re.DOTALL)
    singles = re.sub(r".-.", "", inner, flags=re.DOTALL)
    return (char in singles or any(low <= char <= high for low, high in ranges)) is not negated


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
