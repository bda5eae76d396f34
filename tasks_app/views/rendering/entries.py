"""The live log: events of runs as the entries that a page shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasks_app.events.tools import summarise
from tasks_app.models import Event, EventKind, Run
from tasks_app.views.rendering.ansi import without_ansi
from tasks_app.views.rendering.diff import DiffLine
from tasks_app.views.rendering.tools import edit_lines, shown_input

_SHORT_LINES = 8
_SHORT_LENGTH = 800
_KEEP = 60_000

# What these tools give back is a file that was read or "done": of interest only to who opens the fold.
_QUIET_RESULTS = frozenset(
    {"Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "TodoWrite", "LS", "AskUserQuestion"}
)

#: The agent's bookkeeping says nothing to people; it is in the raw log.
UNSEEN = frozenset({EventKind.SYSTEM, EventKind.UNKNOWN})


@dataclass(frozen=True)
class Output:
    """Machine output, bounded; `folded` if it is too long to stand open in the log."""

    text: str
    lines: int
    folded: bool
    cut: int = 0

    @classmethod
    def of(cls, text: str) -> Output:
        text = text.strip("\n")
        lines = text.count("\n") + 1 if text else 0
        folded = lines > _SHORT_LINES or len(text) > _SHORT_LENGTH
        return cls(text[:_KEEP], lines, folded, max(0, len(text) - _KEEP))


@dataclass(frozen=True)
class Call:
    """A tool call: one line, what is behind it, and its result once it came."""

    id: str
    name: str
    summary: str
    input: str
    edit: list[DiffLine]
    quiet: bool


@dataclass
class Entry:
    """One entry of the log. Which fields are filled depends on the kind."""

    id: int
    kind: str
    at: datetime
    payload: dict[str, Any]
    run: Run
    starts_run: bool = False
    call: Call | None = None
    output: Output | None = None
    results: list[Entry] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.payload.get("is_error")) or any(result.failed for result in self.results)


def entries_of(events: Iterable[Event], *, last_run: int | None = None) -> list[Entry]:
    """The entries of events in order, without UNSEEN kinds. A result joins its call if both are there.

    `last_run` is the run of the event before them: where the run changes, the entry says so.
    """
    entries: list[Entry] = []
    calls: dict[str, Entry] = {}
    for event in events:
        if event.kind in UNSEEN:
            continue
        entry = _entry(event)
        entry.starts_run = event.run_id != last_run
        last_run = event.run_id
        owner = calls.get(str(event.payload.get("tool_use_id"))) if event.kind == "tool_result" else None
        if owner is not None and owner.call is not None:
            owner.results.append(entry)
            continue
        if entry.call is not None:
            calls[entry.call.id] = entry
        entries.append(entry)
    return entries


def one_line(event: Event) -> str:
    """An event in one line, for lists of what happens now."""
    payload = event.payload
    if event.kind == EventKind.TOOL_USE:
        return summarise(str(payload.get("name", "")), _dict(payload.get("input")))
    if event.kind == EventKind.CHECK:
        return f"check {payload.get('check', '')}: {'passed' if payload.get('passed') else 'failed'}"
    text = str(payload.get("text") or payload.get("question") or payload.get("subtype") or "")
    first = without_ansi(text).strip().split("\n", 1)[0]
    return first if len(first) <= 200 else first[:200] + " …"


def _entry(event: Event) -> Entry:
    entry = Entry(event.pk, event.kind, event.at, _dict(event.payload), event.run)
    if event.kind == EventKind.TOOL_USE:
        entry.call = _call(entry.payload)
    elif event.kind == EventKind.TOOL_RESULT:
        entry.output = Output.of(str(entry.payload.get("text", "")))
    elif event.kind == EventKind.CHECK:
        entry.output = Output.of(str(entry.payload.get("output", "")))
    return entry


def _call(payload: dict[str, Any]) -> Call:
    name, given = str(payload.get("name", "")), _dict(payload.get("input"))
    return Call(
        id=str(payload.get("id", "")),
        name=name,
        summary=summarise(name, given),
        input=shown_input(name, given)[:_KEEP],
        edit=edit_lines(name, given)[: _SHORT_LINES * 50],
        quiet=name in _QUIET_RESULTS,
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
