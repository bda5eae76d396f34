"""Labels of workers, and which of them a step needs (M4)."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_LABELS = 20
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
#: How they are stored in a column: in order, with commas between them.
STORED_LENGTH = MOST_LABELS * 42

Labels = frozenset[str]


def label_fault(label: str) -> str:
    """Return why this is no label, as a sentence without its subject; "" if it is one."""
    if _LABEL.fullmatch(label):
        return ""
    return "must be small letters, digits, '.', '_' and '-' (40 at most), such as gpu"


def labels_from_text(text: str) -> tuple[str, ...]:
    """Return labels that a person entered, with commas or blanks between them. Raises ValueError."""
    labels = tuple(dict.fromkeys(part for part in re.split(r"[,\s]+", text) if part))
    for label in labels:
        if fault := label_fault(label):
            raise ValueError(f"{fault}, not {label[:60]!r}")
    if len(labels) > MOST_LABELS:
        raise ValueError(f"must be at most {MOST_LABELS} labels, not {len(labels)}")
    return labels


def labels_as_stored(labels: Iterable[str]) -> str:
    return ",".join(sorted(set(labels)))


def labels_of(stored: str) -> Labels:
    """Return the labels in a column."""
    return frozenset(stored.split(",")) if stored else frozenset()


def labels_in_words(labels: Iterable[str]) -> str:
    """Return the labels for a sentence: “gpu and linux”."""
    *most, last = sorted(labels)
    return f"{', '.join(most)} and {last}" if most else last
