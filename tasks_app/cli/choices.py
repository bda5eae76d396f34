"""From what a person typed to the answer that the agent gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def chosen(item: Mapping[str, Any], typed: str) -> str:
    """Numbers (from 1) or names of options choose them; anything else is an answer to the letter.

    Where several may be chosen they are separated by commas, and sent joined by ", ".
    """
    labels = [str(option["label"]) for option in item.get("options") or ()]
    if whole := _label(typed, labels):
        return whole
    if not item.get("multiSelect"):
        return typed
    parts = [part for part in typed.split(",") if part.strip()]
    picked = [_label(part, labels) for part in parts]
    return ", ".join(dict.fromkeys(picked)) if picked and all(picked) else typed


def _label(text: str, labels: Sequence[str]) -> str:
    """The option that is meant, or "". A name goes before a number: options may be named 1 and 2."""
    wanted = text.strip()
    for label in labels:
        if label.casefold() == wanted.casefold():
            return label
    numbers = {str(number): label for number, label in enumerate(labels, start=1)}
    return numbers.get(wanted, "")
