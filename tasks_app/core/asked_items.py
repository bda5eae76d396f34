"""What the items of a question tell of themselves: what they recommend, and whether two of them are the same.

An item is an object with `question`, `header`, `options` (each with a `label`) and `multiSelect`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tasks_app.core.similar_questions import normalised_label, question_digest

#: Claude writes this at the end of the label of the option that it would choose.
RECOMMENDED = "(recommended)"
_RECOMMENDED_MARK = re.compile(r"\s*[(\[]\s*recommended\s*[)\]]", re.IGNORECASE)
_KEY_LENGTH = 16

Item = Mapping[str, Any]


def item_key(item: Item) -> str:
    """Return a short key of the item's text and options, normalised as in `question_digest`.

    Unlike there, what options mean does not count: agents describe the same choice anew each time.
    """
    options = [{"label": label} for label in _option_labels(item)]
    return question_digest([{"question": item.get("question", ""), "options": options}])[:_KEY_LENGTH]


def item_keys(items: Iterable[Item]) -> str:
    """Return the keys of all items, as a question stores them."""
    return " ".join(map(item_key, items))


def without_recommended(text: str) -> str:
    """Return the text without the mark “(Recommended)”."""
    return _RECOMMENDED_MARK.sub("", text)


def says_same(item: Item, one: str, other: str) -> bool | None:
    """Return whether two answers to an item say the same: a set of choices if several are possible.

    Ignored are: case, white space, punctuation around words, “(Recommended)” and the order of choices. None
    if the answers differ and one of them is a free text: nobody can compare what it means.
    """
    (mine, are_options), (theirs, are_options_too) = _choices_in(item, one), _choices_in(item, other)
    if mine == theirs:
        return True
    return False if are_options and are_options_too else None


def _choices_in(item: Item, answer: str) -> tuple[frozenset[str], bool]:
    """Return what was answered, normalised, and whether all of it are options of the item."""
    labels = {normalised_label(label) for label in _option_labels(item)}
    parts = _split(answer, labels) if item.get("multiSelect") else [answer]
    chosen = frozenset(normalised_label(part) or part.strip() for part in parts)
    return chosen, chosen <= labels


def _split(answer: str, labels: set[str]) -> Iterator[str]:
    """Yield the choices of an answer. A label may have a comma itself, so the longest one is taken."""
    words = answer.split(", ")
    while words:
        ends = range(len(words), 1, -1)
        end = next((end for end in ends if normalised_label(", ".join(words[:end])) in labels), 1)
        yield ", ".join(words[:end])
        words = words[end:]


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
    return [label for label in _option_labels(item) if label.strip().lower().endswith(RECOMMENDED)]


def _option_labels(item: Item) -> Sequence[str]:
    return [
        str(option.get("label", "")) for option in item.get("options") or () if isinstance(option, Mapping)
    ]
