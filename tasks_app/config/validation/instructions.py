"""Find files that Claude Code would read and agents of the portal do not get (P4, R5)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks_app.config.faults import Problem
from tasks_app.config.validation.findings import Finding, Severity, warning
from tasks_app.config.validation.repository_context import RepositoryContext
from tasks_app.core.files import path_inside
from tasks_app.git import linked_text
from tasks_app.prompting.instructions import (
    INSTRUCTION_FILES,
    MORE_FILES,
    ROOT_FILES,
    ProjectInstructions,
    imports_in,
)

_NOT_LOADED = {
    ".claude/skills/": "skills",
    ".claude/agents/": "sub-agents",
    ".claude/output-styles/": "output styles",
    ".mcp.json": "MCP servers",
}
_ARGUMENTS = re.compile(r"\$ARGUMENTS\b")
_SHELL = re.compile(r"!`[^`\n]+`")
_KEY = re.compile(r"(?P<key>model|allowed-tools|hooks|agent|context)[ \t]*:")
_IN_ITS_PLACE = {"model": "; set `model` of the step", "allowed-tools": "; set `allowedTools` of the step"}


def instruction_findings(context: RepositoryContext) -> Iterator[Finding]:
    """Say which instructions of the repository are not read, such as links that lead outside."""
    names = context.tracked or frozenset()

    def read(name: str) -> str | None:
        text = linked_text(context.root, name)
        if text is None and name in names:
            return ""
        return text

    project = ProjectInstructions(read, names)
    for one in project.unread:
        yield warning(one.file, one.message, line=one.line)
    for name in sorted({*ROOT_FILES, *MORE_FILES, *filter(INSTRUCTION_FILES.fullmatch, names)}):
        try:
            path_inside(context.root, name)
        except OSError:
            yield warning(name, "is not read: this link leads out of the repository")
    for place, what in _NOT_LOADED.items():
        if place in names or (place.endswith("/") and context.has_folder(place.rstrip("/"))):
            yield _hint(place, f"agents do not get these: {what} of a repository are not loaded")


def command_findings(name: str, text: str) -> Iterator[Finding]:
    """Say what Claude Code would replace in a command file, or take from its front matter."""
    lines = text.replace("\r\n", "\n").split("\n")
    end = lines.index("---", 1) if lines[0].strip() == "---" and "---" in lines[1:] else 0
    for number, line in enumerate(lines[:end], start=1):
        if found := _KEY.match(line):
            instead = _IN_ITS_PLACE.get(found["key"], "")
            yield _hint(name, f"`{found['key']}` of the front matter is not used{instead}", number)
    for number, line in enumerate(lines[end:], start=end + 1):
        if _ARGUMENTS.search(line):
            words = "$ARGUMENTS is not replaced: the task stands in the prompt by itself"
            yield warning(name, words, line=number)
        if found := _SHELL.search(line):
            yield warning(name, f"{found[0]} is not run: agents read it as it stands", line=number)
    for number, target in imports_in("\n".join(lines[end:])):
        if "/" in target or "." in target:
            yield _hint(
                name, f"@{target} is not put in: agents have to read the file themselves", number + end
            )


def _hint(name: str, message: str, line: int | None = None) -> Finding:
    return Finding(name, Problem(line, "", message), Severity.HINT)
