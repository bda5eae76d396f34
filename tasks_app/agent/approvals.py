"""Questions about tool calls that wait for a human, with the evidence to judge by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks_app.agent.config_dir import newest_plan
from tasks_app.agent.edit_evidence import edit_evidence, shorten, write_evidence
from tasks_app.agent.gate.patterns import matching_parts
from tasks_app.core.text import visible
from tasks_app.core.types import (
    ALLOW_CALL,
    ALLOW_COMMAND,
    NO_PLAN,
    REVIEW_PLAN,
    Ask,
    AskItem,
    Evidence,
    Option,
)

_MAX_CALL = 200
#: What the shell replaces in a word by names of files or by several words. Bounded: an agent writes the word.
_PATTERN_IN_WORD = re.compile(r"[*?]|\[[^\]]{1,200}\]|\{[^{}]{0,200}[,.][^{}]{0,200}\}")
_MAX_UNKNOWN_PARTS = 20
#: The title of what says which parts of a command cannot be shown.
KNOWN_ONLY_THEN = "Known only when it runs"
#: A piece of a shell command: `part` is one whose text only the shell knows, `word` one if it has wildcards.
_PIECE = re.compile(
    r"\\.|(?P<quote>['\"])|(?P<part>\$\{[^}]*\}?|\$\(|\$[A-Za-z_]\w*|\$[0-9@*#?$!-]|`)|(?P<word>[^\s'\"\\$`;&|<>()]+)",
    re.DOTALL,
)
_QUOTED_HEREDOC = re.compile(r"<<-?[ \t]*(?:'(\w+)'|\"(\w+)\"|\\(\w+))")

_APPROVE = Option("Approve", "The call is made once, exactly as shown.")
_DENY = Option("Deny", "The call is not made; the agent is told why and goes on.")
_APPROVE_PLAN = Option("Approve", "The agent goes on and does what it planned.")
_SEND_BACK = Option("Send back", "The agent gets your comments and revises its plan.")


def approval_of(
    call_id: str,
    name: str,
    tool_input: Mapping[str, Any],
    *,
    workspace: Path,
    home: Path,
    on_host: Path | None = None,
    planned: str = "",
    rule: str = "",
    allow_write: Sequence[str] | None = None,
) -> Ask:
    """Return the question that a waiting call raises.

    `workspace` is what the call names it, and `on_host` the folder from which the file of an Edit or Write is
    read. `planned` is the plan in the message of the call; `rule` is the pattern because of which the call
    waits. `allow_write` are the globs of the step (None: any file), by which its changes are judged later,
    whoever approved the command that made them. A plan is shown whole: the gate refuses longer ones.
    """
    given = dict(tool_input)
    if name == "ExitPlanMode":
        item = AskItem(REVIEW_PLAN, "Plan", (_APPROVE_PLAN, _SEND_BACK))
        # The agent's program puts the plan into the input that the gate saw, which an approval is about. The
        # stream shows it as it was before other calls of the same message, such as the last edit of the plan.
        # Without a file, the only plan is that of the message; a file may be of an earlier plan.
        text = str(given.get("plan") or "") or planned or newest_plan(home) or NO_PLAN
        plan = (Evidence("markdown", "Plan", visible(text)),)
        return Ask(call_id, "ExitPlanMode", (item,), given, "plan", plan)
    item = AskItem(_question(name, given, workspace), "Approval", (_APPROVE, _DENY))
    evidence = _evidence(name, given, workspace, on_host)
    if name == "Bash" and allow_write is not None:
        files = ", ".join(map(visible, allow_write)) or "none"
        evidence.append(Evidence("text", "The step may change only these files, also if you approve", files))
    if name == "Bash" and (parts := matching_parts(str(given.get("command", "")), rule)):
        evidence.append(
            Evidence("text", "The part that matches the rule", shorten(visible("\n".join(parts))))
        )
    if rule:
        evidence.append(Evidence("rule", "Rule", rule))
    return Ask(call_id, "call", (item,), given, "approval", tuple(evidence))


def _question(name: str, given: Mapping[str, Any], workspace: Path) -> str:
    """Return what is asked about a call, with the call in its second paragraph."""
    if name == "Bash":
        return f"{ALLOW_COMMAND}\n\n`{_in_one_line(str(given.get('command', '')))}`"
    if path := given.get("file_path") or given.get("notebook_path"):
        verbs = {"Write": "Write", "Edit": "Edit", "MultiEdit": "Edit", "NotebookEdit": "Edit"}
        does = verbs.get(name, f"Use {name} on")
        call = f"{does} `{_in_one_line(str(path).removeprefix(f'{workspace}/'))}`"
    elif name == "WebFetch":
        call = f"Fetch `{_in_one_line(str(given.get('url', '')))}`"
    else:
        call = f"Use `{_in_one_line(name)}`"
    return f"{ALLOW_CALL}\n\n{call}"


def _evidence(name: str, given: Mapping[str, Any], workspace: Path, on_host: Path | None) -> list[Evidence]:
    if name == "Bash":
        title = "Command"
        if said := given.get("description"):
            title = visible(f"The agent says: {said}")
        shown = [Evidence("command", title, shorten(str(given.get("command", ""))))]
        if unknown := _parts_known_to_shell(str(given.get("command", ""))):
            shown.append(Evidence("text", KNOWN_ONLY_THEN, shorten(unknown)))
        if rest := {key: value for key, value in given.items() if key not in ("command", "description")}:
            shown.append(Evidence("text", "Options", _as_json(rest)))
        return shown
    if name == "Write":
        return write_evidence(given, workspace, on_host)
    if name == "Edit":
        return edit_evidence(given, workspace, on_host)
    return [Evidence("text", visible(name), _as_json(given))]


def _parts_known_to_shell(command: str) -> str:
    """Return a sentence with the parts of a command that the shell decides when it runs; "" without any.

    They are variables, the output of commands, and names of files by a pattern.
    """
    found: list[str] = []
    quote = heredoc = ""
    for line in command.split("\n"):
        if heredoc:  # the text of one whose name is quoted is taken as it is
            heredoc = "" if line.lstrip("\t") == heredoc else heredoc
            continue
        for piece in _PIECE.finditer(line):
            if quote != "'" and piece["part"]:
                found.append({"$(": "$(…)", "`": "`…`"}.get(piece["part"], piece["part"]))
            elif not quote and piece["word"] and _PATTERN_IN_WORD.search(piece["word"]):
                found.append(piece["word"])
            elif piece["quote"] and quote in ("", piece["quote"]):
                quote = "" if quote else piece["quote"]
        if not quote and (named := _QUOTED_HEREDOC.search(line)):
            heredoc = named[1] or named[2] or named[3]
    parts = list(dict.fromkeys(found))
    if not parts:
        return ""
    more = len(parts) - _MAX_UNKNOWN_PARTS
    return (
        "The shell decides what these parts stand for when it runs the command, so it cannot be shown here: "
        + ", ".join(parts[:_MAX_UNKNOWN_PARTS])
        + (f", and {more} more." if more > 0 else ".")
    )


def _as_json(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False, indent=2))


def _in_one_line(text: str) -> str:
    line = " ".join(visible(text).replace("`", "'").split())
    return line if len(line) <= _MAX_CALL else f"{line[:_MAX_CALL]}…"
