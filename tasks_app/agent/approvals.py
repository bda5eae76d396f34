"""Tool calls that wait for a human: put as a question, with what there is to judge by."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks_app.agent.plans import plan_in
from tasks_app.core.types import Ask, AskItem, Evidence, Option
from tasks_app.core.visible import visible

#: Of one piece of evidence; what is cut is said.
MOST = 40_000
_HEADLINE = 200

_APPROVE = Option("Approve", "The call is made, exactly as it stands here.")
_DENY = Option("Deny", "The call is not made; the agent is told why and goes on.")
_GOOD = Option("Approve", "The agent goes on and does what it planned.")
_SEND_BACK = Option("Send back", "The agent gets your comments and revises its plan.")


def approval_of(
    call_id: str, name: str, tool_input: Mapping[str, Any], *, workspace: Path, home: Path, planned: str = ""
) -> Ask:
    """The question that a waiting call puts. `planned` is the plan as the call itself gave it, if it did."""
    given = dict(tool_input)
    if name == "ExitPlanMode":
        item = AskItem("Is this plan good?", "Plan", (_GOOD, _SEND_BACK))
        text = plan_in(home) or planned or "(The agent wrote no plan.)"
        plan = (Evidence("markdown", "Plan", bounded(text)),)
        return Ask(call_id, "ExitPlanMode", (item,), given, "plan", plan)
    item = AskItem(_headline(name, given, workspace), "Approval", (_APPROVE, _DENY))
    return Ask(call_id, "call", (item,), given, "approval", tuple(_evidence(name, given, workspace)))


def _headline(name: str, given: Mapping[str, Any], workspace: Path) -> str:
    if name == "Bash":
        return f"May the agent run `{_short(str(given.get('command', '')))}`?"
    if path := given.get("file_path") or given.get("notebook_path"):
        does = "write" if name == "Write" else "edit" if "Edit" in name else f"use {name} on"
        return f"May the agent {does} `{_short(_inside(str(path), workspace))}`?"
    if name == "WebFetch":
        return f"May the agent fetch `{_short(str(given.get('url', '')))}`?"
    return f"May the agent use `{_short(name)}`?"


def _evidence(name: str, given: Mapping[str, Any], workspace: Path) -> list[Evidence]:
    path = visible(_inside(str(given.get("file_path", "")), workspace))
    if name == "Bash":
        shown = [
            Evidence("command", visible(str(given.get("description") or "Command")), _text(given, "command"))
        ]
        rest = {key: value for key, value in given.items() if key not in ("command", "description")}
        return shown + ([Evidence("text", "Options", _pretty(rest))] if rest else [])
    if name == "Write":
        return [Evidence("file", path, _text(given, "content"))]
    if name == "Edit":
        title = f"{path}, every place" if given.get("replace_all") else path
        return [Evidence("diff", title, bounded(_difference(given, path)))]
    return [Evidence("text", visible(name), _pretty(given))]


def _difference(given: Mapping[str, Any], path: str) -> str:
    # Not by splitlines: what is a line to that alone, such as U+2028, would be none to who reads it.
    old, new = (visible(str(given.get(key, ""))).split("\n") for key in ("old_string", "new_string"))
    # difflib takes the square of the length.
    if len(old) + len(new) > 2_000:
        return "\n".join(["@@ @@", *(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    return "\n".join(difflib.unified_diff(old, new, path, path, lineterm=""))


def _text(given: Mapping[str, Any], key: str) -> str:
    return bounded(str(given.get(key, "")))


def _pretty(value: Any) -> str:
    return bounded(json.dumps(value, ensure_ascii=False, indent=2))


def bounded(text: str) -> str:
    """The text, or both its ends with the number of characters between them that are not shown."""
    text = visible(text)
    if len(text) <= MOST:
        return text
    half = MOST // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are not shown here …]\n{text[-half:]}"


def _inside(path: str, workspace: Path) -> str:
    return path.removeprefix(f"{workspace}/")


def _short(text: str) -> str:
    line = " ".join(visible(text).replace("`", "'").split())
    return line if len(line) <= _HEADLINE else f"{line[:_HEADLINE]}…"
