"""Compare questions by their words, options and paths, in Python alone: the same on every database.

`question_digest` decides whether two questions are the same; `similarity` how alike they are. A question is
given as its items: {question, header, options: [{label, description, preview}], multiSelect}.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from tasks_app.core import question_words
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.question_words import MEANS, STOP_WORDS

Items = Sequence[Mapping[str, Any]]

#: Characters of a question that are compared. Agents write a few hundred.
_MAX_TEXT = 8_000
#: Words of a question that are compared, the most telling ones first.
_MAX_WORDS = 60
#: Words in whose order questions are compared, and the share that makes two the same sentence.
_MAX_SENTENCE, _SAME_SENTENCE = 60, 0.6

_RECOMMENDED = re.compile(r"\s*[(\[]\s*recommended\s*[)\]]\s*", re.IGNORECASE)
_OPENING = "\"'`“”‘’«»(["
_CLOSING = "\"'`“”‘’«»()[].,;:!?…"

_WORD = re.compile(r"[^\W_]+")
#: Names in code such as `orderService`, but not PostgreSQL or GitHub.
_CAMEL = re.compile(r"\b[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MARKS = re.compile("[\u0300-\u036f]")
#: Longest first; what remains must have at least four letters.
_SUFFIXES = (
    "isations", "izations", "isation", "ization", "ations", "ation", "ements", "ement", "ments", "ment",
    "ities", "ings", "ness", "able", "ible", "ates", "ated", "ions", "ing", "ion", "ies", "ied", "ity", "ate",
    "ers", "ors", "ed", "es", "er", "or", "ly", "al", "s", "e", "y",
)  # fmt: skip
_SHORTEST_STEM = 4

#: What a word counts, by where it stands.
_IN_QUESTION, _IN_HEADER, _IN_OPTIONS, _AS_PATH = 1.0, 0.4, 0.5, 1.2
_COMMON_COUNTS = 0.35


def question_digest(items: Items) -> str:
    """Return a digest that is equal for questions that are the same.

    Ignored are: case, Unicode compatibility forms, white space, quotation marks and punctuation around words,
    “(Recommended)” at an option, the order of options and items, and headers. Not ignored: any other
    character, descriptions and previews of options, and whether several may be chosen. The digest is stored:
    a change of these rules must fill the column again.
    """
    canonical = sorted(
        [
            _normalise(str(item.get("question", ""))),
            sorted(_canonical_option(option) for option in _options(item)),
            item.get("multiSelect") is True,
        ]
        for item in items
    )
    text = json.dumps(canonical, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _canonical_option(option: Mapping[str, Any]) -> list[str]:
    label = normalised_label(str(option.get("label", "")))
    return [label, *(_normalise(str(option.get(name) or "")) for name in ("description", "preview"))]


def normalised_label(label: str) -> str:
    """Return an option's label without “(Recommended)”, normalised like a question."""
    return _normalise(_RECOMMENDED.sub(" ", label))


def _normalise(text: str) -> str:
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(kept for word in words if (kept := word.lstrip(_OPENING).rstrip(_CLOSING)))


@dataclass(frozen=True)
class Profile:
    """What of a question is compared."""

    #: The weight of each word, by its stem; paths are words, too.
    words: dict[str, float] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    #: The stems of the question itself in order, with words such as “should”.
    sentence: tuple[str, ...] = ()

    @cached_property
    def weight(self) -> float:
        return sum(self.words.values())

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(word for word in self.words if word.isdigit())


def profile_of(items: Items) -> Profile:
    """Return what is compared of a question with these items."""
    words: dict[str, float] = {}
    paths: set[str] = set()
    labels: set[str] = set()
    left = _MAX_TEXT
    for text, counts in _texts(items):
        text = text[:left]
        left -= len(text)
        found = {path.casefold().strip("./") for path in paths_named_in([text])}
        paths |= found
        for path in found:
            words[f"/{path}"] = _AS_PATH
        for word in _stems(text):
            weight = counts * (_COMMON_COUNTS if word in _COMMON else 1.0)
            words[word] = max(words.get(word, 0.0), weight)
    for item in items:
        labels |= {normalised_label(str(option.get("label", ""))) for option in _options(item)}
    telling = sorted(words.items(), key=lambda one: (-one[1], -len(one[0]), one[0]))[:_MAX_WORDS]
    sentence = [stem(word) for item in items for word in _split(str(item.get("question", ""))[:_MAX_TEXT])]
    return Profile(dict(telling), frozenset(labels), frozenset(paths), tuple(sentence[:_MAX_SENTENCE]))


def _texts(items: Items) -> Iterator[tuple[str, float]]:
    for item in items:
        yield str(item.get("question", "")), _IN_QUESTION
    for item in items:
        yield str(item.get("header", "")), _IN_HEADER
        for option in _options(item):
            yield _RECOMMENDED.sub(" ", str(option.get("label", ""))), _IN_OPTIONS


def _options(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = item.get("options")
    return [one for one in options if isinstance(one, Mapping)] if isinstance(options, list) else []


def _split(text: str) -> list[str]:
    text = _CAMEL.sub(lambda name: _HUMP.sub(" ", name[0]), text)
    folded = _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return _WORD.findall(folded.replace("n't", " not"))


def _stems(text: str) -> Iterator[str]:
    for word in _split(text):
        if word not in STOP_WORDS and (len(word) > 1 or word.isdigit()):
            yield stem(word)


def stem(word: str) -> str:
    """Return a word without its ending, and one word for those that mean the same to programmers."""
    if word in MEANS:
        return MEANS[word]
    short = word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            short = word.removesuffix(suffix)
            if len(short) > _SHORTEST_STEM and short[-1] == short[-2] and short[-1] not in "aeiouls":
                short = short[:-1]
            break
    return MEANS.get(short, short)


_COMMON = frozenset(map(stem, question_words.COMMON))
_OPPOSITES = tuple((stem(one), stem(other)) for one, other in question_words.OPPOSITES)


def similarity(one: Profile, other: Profile) -> float:
    """Return how alike two questions are, from 0 to 1.

    Shared words count most, then equal options. What makes questions with the same words different ones:
    numbers, paths, opposites such as “staging” and “production”, and the same sentence about something else.
    """
    if not one.words or not other.words:
        return 0.0
    score = _overlap_of_words(one, other)
    if one.labels and other.labels:
        shared = len(one.labels & other.labels) / min(len(one.labels), len(other.labels))
        score = 0.8 * score + 0.2 * shared
    return round(score * _contradiction(one, other), 4)


def _overlap_of_words(one: Profile, other: Profile) -> float:
    """Return the share of words in common: of both questions, and of the shorter one."""
    shared = sum(min(weight, other.words[word]) for word, weight in one.words.items() if word in other.words)
    of_both = 2 * shared / (one.weight + other.weight)
    of_shorter = shared / min(one.weight, other.weight)
    return min(1.0, 0.6 * of_both + 0.4 * of_shorter)


def _contradiction(one: Profile, other: Profile) -> float:
    """Return a factor up to 1 for what makes questions with the same words different ones."""
    factor = 1.0
    mine, theirs = one.words.keys() - other.words.keys(), other.words.keys() - one.words.keys()
    if any((a in mine and b in theirs) or (b in mine and a in theirs) for a, b in _OPPOSITES):
        factor *= 0.6
    if one.numbers and other.numbers and not one.numbers & other.numbers:
        factor *= 0.75
    if one.paths and other.paths and not one.paths & other.paths:
        factor *= 0.7
    return factor * (0.55 if _is_about_something_else(one, other) else 1.0)


def _is_about_something_else(one: Profile, other: Profile) -> bool:
    """Return whether one question is the other one with some of its words replaced.

    Whoever asks the same again in other words also changes the sentence.
    """
    matcher = SequenceMatcher(None, one.sentence, other.sentence, autojunk=False)
    if matcher.ratio() < _SAME_SENTENCE:
        return False
    for kind, i, j, k, m in matcher.get_opcodes():
        mine = set(one.sentence[i:j]) - STOP_WORDS - other.words.keys()
        theirs = set(other.sentence[k:m]) - STOP_WORDS - one.words.keys()
        if kind == "replace" and mine and theirs:
            return True
    return False
