"""The permission to ask, in the repository's `.claude/settings.json` (H12).

The portal never reads that file: its agents get the permission from the portal. It matters to people who run
Claude Code in the repository by hand, with the same prompts, so every finding here is advice.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tasks_app.config.faults import ConfigInvalid, Problem, shown
from tasks_app.config.validation.findings import Finding, Severity, findings_in
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.settings_file import line_of, member, read_json, top, with_added
from tasks_app.core.errors import BadInput

SETTINGS_FILE = ".claude/settings.json"
PERMISSION = "Bash(cat-herder ask:*)"
NEW_FILE = json.dumps({"permissions": {"allow": [PERMISSION]}}, indent=2) + "\n"

#: Rules that permit, or forbid, at least as much as PERMISSION.
_COVERING = re.compile(r"Bash|Bash\((?:\*|:\*|cat-herder(?: ask)?(?::\*| \*))\)")


@dataclass(frozen=True)
class _Rules:
    """The rules of a settings file, and the places of what is there for the line numbers."""

    allow: list[str]
    deny: list[str]
    permissions_at: int | None
    allow_at: int | None
    deny_line: int | None


def permission_findings(context: RepositoryContext, *, why: str) -> list[Finding]:
    """Return what stops Claude Code from asking if run by hand; `why` names the threshold above 0.

    A repository without the file is only used by the portal, so there are no findings.
    """
    try:
        text = read_text(context, SETTINGS_FILE)
        if text is None:
            return []
        return list(_faults(text, _rules(text), why=why))
    except BadInput as fault:
        return [replace(one, severity=Severity.HINT) for one in findings_in(fault, file=SETTINGS_FILE)]


def has_permission(text: str) -> bool:
    """Return whether a settings file permits the agent to ask. Raises ConfigInvalid for an unusable file."""
    return any(map(_COVERING.fullmatch, _rules(text).allow))


def grant_permission(context: RepositoryContext) -> bool:
    """Add the permission to the file, or make the file; False if nothing was to be done.

    Everything else in the file stays as it is laid out. Raises BadInput if it is no JSON, has another
    form, or is reached through a link.
    """
    text = read_text(context, SETTINGS_FILE)
    path = context.root / SETTINGS_FILE
    if context.leads_out(path.parent):
        raise BadInput("the folder is a link that leads out of the repository", where=SETTINGS_FILE)
    if text is not None and has_permission(text):
        return False
    if text is None:
        _replace(path, NEW_FILE)
    else:
        _replace(path, with_permission(text))
    return True


def with_permission(text: str) -> str:
    """Return the text of a settings file with the permission added. Raises ConfigInvalid for another form."""
    rules = _rules(text)
    if rules.allow_at is not None:
        return with_added(text, rules.allow_at, PERMISSION)
    if rules.permissions_at is not None:
        return with_added(text, rules.permissions_at, [PERMISSION], key="allow")
    return with_added(text, top(text), {"allow": [PERMISSION]}, key="permissions")


def _faults(text: str, rules: _Rules, *, why: str) -> Iterator[Finding]:
    if not any(map(_COVERING.fullmatch, rules.allow)):
        places = [("permissions.allow", rules.allow_at), ("permissions", rules.permissions_at)]
        key, at = next(((key, at) for key, at in places if at is not None), ("", top(text)))
        message = f"lacks {shown(PERMISSION)}, without which Claude Code run by hand cannot ask, but {why}"
        if not key:
            message = f"the file {message}"
        yield _hint(message, line=line_of(text, at), key=key, fixable=True)
    for rule in filter(_COVERING.fullmatch, rules.deny):
        message = f"has {shown(rule)}, which forbids Claude Code run by hand to ask, but {why}"
        yield _hint(message, line=rules.deny_line, key="permissions.deny")


def _hint(message: str, *, line: int | None, key: str, fixable: bool = False) -> Finding:
    return Finding(SETTINGS_FILE, Problem(line, key, message), Severity.HINT, fixable=fixable)


def _rules(text: str) -> _Rules:
    value = read_json(text, where=SETTINGS_FILE)
    if not isinstance(value, dict):
        raise _wrong(1, "", "the file must be a JSON object")
    permissions = member(text, top(text), "permissions")
    if permissions is None:
        return _Rules([], [], None, None, None)
    if not isinstance(value["permissions"], dict):
        raise _wrong(line_of(text, permissions.begin), "permissions", "must be an object")
    allow, allow_at = _rule_list(text, permissions.start, value["permissions"], "allow")
    deny, deny_at = _rule_list(text, permissions.start, value["permissions"], "deny")
    deny_line = None if deny_at is None else line_of(text, deny_at)
    return _Rules(allow, deny, permissions.start, allow_at, deny_line)


def _rule_list(text: str, at: int, permissions: dict[str, object], name: str) -> tuple[list[str], int | None]:
    span = member(text, at, name)
    rules = permissions.get(name, [])
    if span is None:
        return [], None
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise _wrong(line_of(text, span.begin), f"permissions.{name}", "must be a list of texts")
    return rules, span.start


def _wrong(line: int, key: str, message: str) -> ConfigInvalid:
    return ConfigInvalid([Problem(line, key, message)], where=SETTINGS_FILE)


def _replace(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that an interruption leaves no partial file."""
    try:
        path.parent.mkdir(exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".settings-", delete=False) as file:
            file.write(text.encode())
        Path(file.name).chmod(mode)
        Path(file.name).replace(path)
    except OSError as fault:
        raise BadInput(f"the file cannot be written: {fault.strerror}", where=SETTINGS_FILE) from fault
