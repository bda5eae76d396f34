"""Turn what a person typed into the answer that the agent gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks_app.core.asked_items import label_of
from tasks_app.core.errors import BadAmount


def resolve_choice(item: Mapping[str, Any], typed: str) -> str:
    """Resolve option numbers (from 1) and labels to labels; return any other text unchanged.

    In a multi-select item, choices are separated by commas and returned joined by ", ".
    """
    labels = [str(option["label"]) for option in item.get("options") or ()]
    if label := _find_label(typed, labels):
        return label
    if not item.get("multiSelect"):
        return typed
    parts = [part for part in typed.split(",") if part.strip()]
    picked = [_find_label(part, labels) for part in parts]
    return ", ".join(dict.fromkeys(picked)) if picked and all(picked) else typed


def amount_with_sign(typed: str) -> str:
    """Return what was typed at a soft cost limit. Raise BadAmount for a whole number: it means an option."""
    number = typed.strip()[:20]
    if number.isdecimal():
        raise BadAmount(f"There is no option {number}. Type an amount with its sign: ${number}.")
    return typed


def _find_label(text: str, labels: Sequence[str]) -> str:
    """Return the chosen label, or "". Labels go before numbers: options may be named 1 and 2.

    Case counts only where two labels differ by it.
    """
    if label := label_of(text, labels):
        return label
    if label := label_of(text.casefold(), [label.casefold() for label in labels]):
        alike = [other for other in labels if other.casefold() == label]
        return alike[0] if len(alike) == 1 else ""
    numbers = {str(number): label for number, label in enumerate(labels, start=1)}
    return numbers.get(text.strip(), "")
