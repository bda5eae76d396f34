"""What programs attach to a conversation: plans, logs and diffs of tasks; and the prompt `herd`."""

from __future__ import annotations

import re
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.operations import Operation
from tasks_app.mcp_server.tools import LONGEST_PART, TOOLS

_PREFIX = "cat-herder://tasks/"
#: Each thing of a task with its type, and what it is.
_THINGS = {
    "plan": ("text/markdown", "The plan that its agent wrote."),
    "log": ("text/plain", "The end of the log of its newest step."),
    "diff": ("text/x-diff", "What it changed; a long diff is cut."),
}
_URI = re.compile(rf"{_PREFIX}([1-9]\d{{0,17}})/({'|'.join(_THINGS)})")
#: Tasks whose resources are listed. All others can be read as well.
_LISTED_TASKS = 10

HERD = types.Prompt(
    name="herd", title="What waits for me?", description="List the open questions of agents, and answer them."
)


def list_resources(caller: Caller) -> types.ListResourcesResult:
    """List what the newest tasks have. Raises Failed."""
    found = Operation("list_tasks").call(caller, {"limit": _LISTED_TASKS})
    return types.ListResourcesResult(
        resources=[
            types.Resource(
                uri=f"{_PREFIX}{task['task']}/{thing}",
                name=f"{thing} of task {task['task']}",
                title=f"{task['title']}: {thing}",
                description=about,
                mime_type=mime_type,
            )
            for task in found["items"]
            for thing, (mime_type, about) in _THINGS.items()
        ]
    )


def list_templates() -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=f"{_PREFIX}{{task}}/{thing}", name=thing, description=about, mime_type=mime_type
            )
            for thing, (mime_type, about) in _THINGS.items()
        ]
    )


def read(caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return one of them. Raises Failed, or MCPError for what is none."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"There is no resource {uri[:200]}.")
    task_id, thing = int(found[1]), found[2]
    content = types.TextResourceContents(
        uri=uri, mime_type=_THINGS[thing][0], text=_text(caller, task_id, thing)
    )
    return types.ReadResourceResult(contents=[content])


def _text(caller: Caller, task_id: int, thing: str) -> str:
    if thing == "diff":
        found = TOOLS["diff"].call(caller, {"task_id": task_id, "limit": LONGEST_PART})
        return str(found["diff"])
    steps: list[dict[str, Any]] = Operation("list_steps").call(caller, {"task_id": task_id})["items"]
    if thing == "plan":
        return next((str(step["plan"]) for step in reversed(steps) if step["plan"]), "")
    begun = [step for step in steps if step["runs"]] or steps[:1]
    if not begun:
        return ""
    part = {"task_id": task_id, "position": begun[-1]["position"], "limit": LONGEST_PART}
    return str(TOOLS["log"].call(caller, part)["text"])


def herd(caller: Caller) -> types.GetPromptResult:
    """Return the prompt with the questions that are open. Raises Failed."""
    found = Operation("list_questions").call(caller, {"state": "open", "limit": 20})
    lines = ["What waits for me in Cat Herder?", ""]
    for question in found["items"]:
        asked = " / ".join(item["question"] for item in question["items"])
        lines.append(f"- Question {question['id']} ({question['kind']}, {question['project']}): {asked}")
    if not found["items"]:
        lines.append("No agent waits for an answer.")
    lines += ["", "Show me each with its options. Pass on what I say with `answer` or `decide`."]
    text = types.TextContent(type="text", text="\n".join(lines))
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])
