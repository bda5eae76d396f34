"""Validate names of tools in patterns and permissions: an unknown name would never match."""

from __future__ import annotations

from collections.abc import Iterator

from tasks_app.agent.gate.patterns import CALL_PATTERN, call_pattern_fault, wild
from tasks_app.agent.tools import KNOWN, MCP
from tasks_app.config.faults import Location, Problem, did_you_mean, key_path, shown
from tasks_app.config.yaml_text import YamlDocument, written_pipelines


def unknown_tool(rule: str) -> str | None:
    """Return why `Tool` or `Tool(…)` names no tool, as the rest of a sentence; None if it names one.

    A name with `*` must stand for some tool. Other texts are judged elsewhere.
    """
    found = CALL_PATTERN.match(rule)
    if found is None or call_pattern_fault(rule) or found[1] in KNOWN or found[1].startswith(MCP):
        return None
    name, rest = found[1], rule[len(found[1]) :]
    if "*" in name:
        if any(wild(tool, name) for tool in KNOWN) or wild(MCP, f"{name.rstrip('*')}*"):
            return None
        return f"is {shown(rule)}, and {shown(name)} stands for no tool"
    same = next((tool for tool in KNOWN if tool.lower() == name.lower()), "")
    hint = did_you_mean(name, sorted(KNOWN))
    if same:
        hint = f"; did you mean {shown(same + rest)}?"
    if name.lower().startswith("mcp"):
        hint = f"; names of MCP tools begin with {shown(MCP)}"
    return f"is {shown(rule)}, and there is no tool {shown(name)}{hint}"


def tool_problems(document: YamlDocument) -> list[Problem]:
    """Return unknown tools in `askBefore` and `allowedTools`, in the raw values of the file, by line.

    For files that people write. Steps that tasks keep are not held against the list: a task that waits must
    go on after an upgrade that knows other tools.
    """
    value = document.value
    if not isinstance(value, dict):
        return []
    found = list(_in_list(document, ("askBefore",), value.get("askBefore")))
    for pipeline in written_pipelines(value):
        for place, step in pipeline.each_step():
            for key in ("askBefore", "allowedTools"):
                found += _in_list(document, (*place, key), step.get(key))
    return found


def _in_list(document: YamlDocument, location: Location, rules: object) -> Iterator[Problem]:
    if not isinstance(rules, list):
        return
    for index, rule in enumerate(rules):
        place = (*location, index)
        if isinstance(rule, str) and (message := unknown_tool(rule)):
            yield Problem(document.line_of(place), key_path(place), message)
