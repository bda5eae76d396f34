"""What the items of a question tell of themselves: what they recommend, and whether two of them are the same.

An item is an object with `question`, `header`, `options` (each with a `label`) and `multiSelect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks_app.core.similar_questions import question_digest

#: Claude writes this at the end of the label of the option that it would choose.
RECOMMENDED = "(recommended)"
_KEY_LENGTH = 16

Item = Mapping[str, Any]


def item_key(item: Item) -> str:
    """Return a short key of the item's text and options, normalised as in `question_digest`.

    Unlike there, what options mean does not count: agents describe the same choice anew each time.
    """
    options = [{"label": label} for label in _labels(item)]
    return question_digest([{"question": item.get("question", ""), "options": options}])[:_KEY_LENGTH]


def item_keys(items: Iterable[Item]) -> str:
    """Return the keys of all items, as a question stores them."""
    return " ".join(map(item_key, items))


def recommended_items(items: Iterable[Item]) -> int:
    """Return how many items recommend an option."""
    return sum(1 for item in items if _recommended(item))


def recommended_taken(items: Iterable[Item], answers: Mapping[str, str]) -> int:
    """Return how many items were answered with what they recommend, and with nothing else."""
    return sum(1 for item in items if _is_taken(item, answers.get(str(item.get("question", "")), "")))


def _is_taken(item: Item, answer: str) -> bool:
    recommended = _recommended(item)
    # Several choices stand in one answer, with ", " between them.
    return bool(recommended) and answer in {", ".join(recommended), ", ".join(reversed(recommended))}


def _recommended(item: Item) -> list[str]:
    return [label for label in _labels(item) if label.strip().lower().endswith(RECOMMENDED)]


def _labels(item: Item) -> Sequence[str]:
    return [
        str(option.get("label", "")) for option in item.get("options") or () if isinstance(option, Mapping)
    ]
