"""Prompts for a new session that continues a step: the original prompt, what was done, and why (SPEC H9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks_app.prompting.escaping import escape, head, newest_that_fit, section
from tasks_app.prompting.feedback import Feedback

MAX_LOG = 60_000
_MAX_ACTION = 4_000

CLOSING = (
    "Go on with your step from this point. Look at the files as they are now; do not repeat what is done, "
    "and finish what is not."
)

_WHAT_THE_LOG_IS = (
    "What you did in this step so far, in earlier sessions, in order: your words, your calls of tools and "
    "their results, your questions and the answers. What is long is cut."
)


@dataclass(frozen=True)
class PastAction:
    """One action of the agent in an earlier run of this step.

    `kind` is "reasoning" for a thought or a text, and "tool" for a call of the tool named in `tool`.
    """

    kind: Literal["reasoning", "tool"]
    text: str
    tool: str = ""


def replay(
    original_prompt: str,
    *,
    actions: Sequence[PastAction],
    feedback: Feedback | None,
) -> str:
    """Return the prompt of a run that continues the work of earlier runs of the same step.

    `actions` are the actions of all earlier runs, in order. The newest ones are kept, about MAX_LOG
    characters, and lines say what is left out. Without actions, or without feedback, the prompt has no such
    section, and without both it is the original prompt.
    """
    parts = [original_prompt.rstrip("\n")]
    if log := _actions_text(actions):
        parts.append(section("PREVIOUS ACTIONS LOG", f"{_WHAT_THE_LOG_IS}\n\n{log}"))
    if feedback:
        parts.append(section("FEEDBACK", feedback))
    if len(parts) == 1:
        return original_prompt
    return "\n\n".join([*parts, section("GO ON", CLOSING)]) + "\n"


def with_feedback(original_prompt: str, feedback: Feedback) -> str:
    """Return the prompt of a run that repeats a step from its beginning."""
    return "\n\n".join([original_prompt.rstrip("\n"), section("FEEDBACK", feedback)]) + "\n"


def _actions_text(actions: Iterable[PastAction]) -> str:
    entries = []
    for action in actions:
        if text := action.text.strip():
            label = f"[{escape(action.tool)}] " if action.kind == "tool" else ""
            entries.append(f"{label}{escape(head(text, limit=min(MAX_LOG, _MAX_ACTION)))}")
    kept = newest_that_fit(entries, limit=MAX_LOG)
    if left_out := len(entries) - len(kept):
        kept.insert(0, f"[… the first {left_out:,} of {len(entries):,} actions are left out …]")
    return "\n\n".join(kept)
