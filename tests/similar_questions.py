"""The pairs of questions in tests/quality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "quality" / "similar_questions.txt"


@dataclass(frozen=True)
class Pair:
    kind: str
    earlier: list[dict[str, Any]]
    later: list[dict[str, Any]]
    held_out: bool

    @property
    def is_alike(self) -> bool:
        return self.kind in ("same", "para")


def pairs() -> list[Pair]:
    found = []
    for number, line in enumerate(_FILE.read_text().splitlines()):
        kind, earlier, of_earlier, later, of_later = line.split(" | ")
        found.append(Pair(kind, _items(earlier, of_earlier), _items(later, of_later), number % 3 == 2))
    return found


def _items(question: str, labels: str) -> list[dict[str, Any]]:
    options = [{"label": label.strip(), "description": "", "preview": ""} for label in labels.split(";")]
    return [{"question": question, "header": "", "options": options, "multiSelect": False}]
