"""Going on without the session: the original prompt, what was done, and why to go on (SPEC H9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks_app.prompting.escaping import foreign, head, section
from tasks_app.prompting.feedback import Feedback

MAX_LOG = 60_000
_MAX_ACTION = 4_000

CLOSING = (
    "Go on with your step from this point. The files are as you left them; do not repeat what is done, and "
    "finish what is not."
)


@dataclass(frozen=True)
class PastAction:
    """One thing that the agent did in an earlier run of this step.

    `kind` is "reasoning" for what it thought or said and "tool" for a call, with the tool's name in `tool`.
    """

    kind: Literal["reasoning", "tool"]
    text: str
    tool: str = ""


def replay(
    original_prompt: str,
    *,
    actions: Sequence[PastAction],
    feedback: Feedback | None,
    limit: int = MAX_LOG,
) -> str:
    """The prompt of a run that takes up the work of earlier runs of the same step.

    `actions` are those of all earlier runs, in order. About `limit` characters of them are kept, the
    newest, and lines say what is left out. Without actions, or without feedback, that section is left out.
    """
    parts = [original_prompt.rstrip("\n")]
    if log := _log(actions, limit=limit):
        parts.append(section("PREVIOUS ACTIONS LOG", log))
    if feedback:
        parts.append(section("FEEDBACK", feedback))
    return "\n\n".join([*parts, section("GO ON", CLOSING)]) + "\n"


def anew(original_prompt: str, feedback: Feedback) -> str:
    """The prompt of a run that does a step once more from its beginning."""
    return "\n\n".join([original_prompt.rstrip("\n"), section("FEEDBACK", feedback)]) + "\n"


def _log(actions: Iterable[PastAction], *, limit: int) -> str:
    entries = [_entry(action, limit=min(limit, _MAX_ACTION)) for action in actions if action.text.strip()]
    kept = _newest(entries, limit=limit)
    if left_out := len(entries) - len(kept):
        kept.insert(0, f"[… the first {left_out:,} of {len(entries):,} actions are left out …]")
    return "\n\n".join(kept)


def _entry(action: PastAction, *, limit: int) -> str:
    label = f"[{foreign(action.tool)}] " if action.kind == "tool" else ""
    return f"{label}{foreign(head(action.text.strip(), limit=limit))}"


def _newest(entries: Sequence[str], *, limit: int) -> list[str]:
    """The last entries that fit into `limit` characters together; always at least the very last."""
    used, first = 0, len(entries)
    for index in range(len(entries) - 1, -1, -1):
        used += len(entries[index])
        if used > limit and index < len(entries) - 1:
            break
        first = index
    return list(entries[first:])
