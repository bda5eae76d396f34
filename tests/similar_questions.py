"""The questions and answers in tests/quality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Pairs of texts that differ in what agents ask about code.
DIFFERENT_TEXTS = [
    ("userId", "userid"),
    ("userId", "user_id"),
    (",", ";"),
    ("'", '"'),
    ("Use ',' as delimiter", "Use ';' as delimiter"),
    ("foo?", "foo!"),
    ("foo", "foo?"),
    ("[0, 10)", "(0, 10]"),
    ("Mb", "MB"),
    ("µs", "μs"),
    ("x²", "x2"),
    ("ﬁle", "file"),
    ("“it”", "it"),
    ("a b", "ab"),
    ("é", "e"),
    ("zero\u200bwidth", "zerowidth"),
]

_FOLDER = Path(__file__).parent / "quality"

Item = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    kind: str
    earlier: list[Item]
    later: list[Item]
    held_out: bool

    @property
    def is_alike(self) -> bool:
        return self.kind in ("same", "para")


def pairs() -> list[Pair]:
    found = []
    for number, line in enumerate((_FOLDER / "similar_questions.txt").read_text().splitlines()):
        kind, earlier, of_earlier, later, of_later = line.split(" | ")
        found.append(Pair(kind, _items(earlier, of_earlier), _items(later, of_later), number % 3 == 2))
    return found


def _items(question: str, labels: str) -> list[Item]:
    options = [{"label": label.strip(), "description": "", "preview": ""} for label in labels.split(";")]
    return [{"question": question, "header": "", "options": options, "multiSelect": False}]


@dataclass(frozen=True)
class Answered:
    """An item, what a person answered, and an item about the same decision that comes later; {} for none."""

    item: Item
    answer: str
    later: Item


def answered_items() -> list[Answered]:
    """Return 1,000 answered items; the first ones have later ones."""
    asked_again = [_answered(block) for block in _blocks("earlier_answers.txt")]
    subjects, *blocks = _blocks("other_answers.txt")
    others = [_answered(block.replace("{}", subject)) for subject in subjects.split(", ") for block in blocks]
    return [*asked_again, *others[: 1_000 - len(asked_again)]]


def _blocks(name: str) -> list[str]:
    return (_FOLDER / name).read_text().strip().split("\n\n")


def _answered(block: str) -> Answered:
    earlier, _, rest = block.partition("\n> ")
    answer, _, later = rest.partition("\n")
    return Answered(_item(earlier), answer, _item(later) if later else {})


def _item(block: str) -> Item:
    asked, *options = block.splitlines()
    header, _, question = asked.removeprefix("[").partition("] ")
    described = [option.removeprefix("- ").partition(": ") for option in options]
    shown = [{"label": label, "description": said, "preview": ""} for label, _, said in described]
    return {"question": question, "header": header, "options": shown, "multiSelect": False}
