"""Compare questions by their words, in Python alone: the same on every database.

`question_digest` decides whether two questions are the same, `same_text` and `own_label` whether two texts
and two options are. `Likeness` says how alike questions and answers are, which is for showing only. A
question is given as its items: {question, header, options: [{label, description, preview}], multiSelect}.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

from snowballstemmer.english_stemmer import EnglishStemmer

from tasks_app.core.named_paths import paths_named_in

Items = Sequence[Mapping[str, Any]]

#: Characters of a text that are compared, and different words of an item with its answer. Agents write fewer.
_MAX_TEXT, _MAX_WORDS = 8_000, 120

#: Claude writes “(Recommended)” at the end of the label of the option that it would choose.
RECOMMENDED = re.compile(r"\s*[(\[]\s*recommended\s*[)\]]", re.IGNORECASE)
_RECOMMENDED_AT_END = re.compile(rf"{RECOMMENDED.pattern}\Z", re.IGNORECASE)

#: A run of Chinese, Japanese or Korean, which has no blanks between its words, or a word of another script.
_ASIAN = r"\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_WORD = re.compile(rf"(?P<run>[{_ASIAN}]+)|[^\W_{_ASIAN}]+")
#: Names in code such as `orderService`, but not PostgreSQL or GitHub.
_CAMEL = re.compile(r"\b[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MARKS = re.compile("[\u0300-\u036f]")
_STOP_WORDS = """
    a about after all also am an and any are as at be been before both but by can could did do does doing don
    for from had has have how i if in into is it its just me may might more must my need no nor not now of on
    only or other our out over own per same shall should so some such than that the their them then there
    these they this those to too under up us use used very was way we were what when where whether which while
    who whom whose why will with would yes you your
"""
#: Words that say nothing about what is asked.
STOP_WORDS = frozenset(_STOP_WORDS.split())


def same_text(text: str) -> str:
    """Return the text as it is compared: only white space and Unicode's composition (NFC) do not count.

    Letter case, punctuation, quotes and brackets are often all that tells two options of code apart.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def own_label(label: str) -> str:
    """Return the own words of an option, as they are compared: its label without “(Recommended)”."""
    return _RECOMMENDED_AT_END.sub("", same_text(label))


def question_digest(items: Items) -> str:
    """Return a digest that is equal for questions that are the same.

    Ignored are: white space and Unicode composition, “(Recommended)” at the end of an option's label, the
    order of options and items. The digest is stored: a change of these rules must fill the column again.
    """
    canonical = sorted(
        [
            same_text(str(item.get("question", ""))),
            same_text(str(item.get("header") or "")),
            sorted(_canonical_option(option) for option in _options(item)),
            item.get("multiSelect") is True,
        ]
        for item in items
    )
    text = json.dumps(canonical, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _canonical_option(option: Mapping[str, Any]) -> list[str]:
    label = own_label(str(option.get("label", "")))
    return [label, *(same_text(str(option.get(name) or "")) for name in ("description", "preview"))]


def _options(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = item.get("options")
    if isinstance(options, list):
        return [one for one in options if isinstance(one, Mapping)]
    return []


def texts_of(item: Mapping[str, Any], answer: str = "") -> list[str]:
    """Return the texts of an item and its answer that are compared, the most telling ones first."""
    options = _options(item)
    labels = [own_label(str(one.get("label", ""))) for one in options]
    described = [str(one.get("description") or "") for one in options]
    return [str(item.get("question", "")), str(item.get("header") or ""), *labels, answer, *described]


def words_of(texts: Sequence[str]) -> list[str]:
    """Return the different words of texts in order: stems, named paths, and pairs of Asian characters."""
    found: dict[str, None] = {}
    for word in chain.from_iterable(_words(text[:_MAX_TEXT]) for text in texts):
        found[word] = None
        if len(found) == _MAX_WORDS:
            break
    return list(found)


def paths_in(texts: Sequence[str]) -> set[str]:
    """Return the paths that texts name, as they are compared."""
    return {path.casefold().strip("./") for path in paths_named_in(text[:_MAX_TEXT] for text in texts)}


def _words(text: str) -> Iterator[str]:
    yield from (f"/{path}" for path in sorted(paths_in([text])))
    text = _CAMEL.sub(lambda name: _HUMP.sub(" ", name[0]), text)
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    for found in _WORD.finditer(unicodedata.normalize("NFC", plain).casefold()):
        word = found[0]
        if found["run"]:
            yield from (word[n : n + 2] for n in range(max(1, len(word) - 1)))
        elif word not in STOP_WORDS and (len(word) > 1 or word.isdigit()):
            yield _stem(word)


@lru_cache(20_000)
def _stem(word: str) -> str:
    # One of its own for each word: it holds the word, and threads would share it.
    return str(EnglishStemmer().stemWord(word))


def word_root(word: str) -> str:
    """Return the beginning that the forms of a word share, for a search by parts of words."""
    root = _stem(word)
    if word.endswith(("ies", "ied")):
        root = root.removesuffix("i")
    while not word.startswith(root):  # “retri” of “retry”
        root = root[:-1]
    return root if len(root) >= 4 else word  # shorter ones are in too many words


class Likeness:
    """How alike sets of words are: the cosine of their weights. A word counts more the fewer sets have it."""

    def __init__(self, sets: Collection[Collection[str]]) -> None:
        # 20 more: in a project with few answers all words count about the same.
        every, having = len(sets) + 20, Counter(chain.from_iterable(sets))
        self._squares = {word: _square(every / (count + 1)) for word, count in having.items()}
        self._new = _square(every)

    def of(self, one: Collection[str], other: Collection[str]) -> float:
        """Return a number from 0 to 1."""
        return self.of_each(one, [other])[0]

    def of_each(self, one: Collection[str], others: Iterable[Collection[str]]) -> list[float]:
        """Return how alike the first one is to each of the others."""
        wanted, length = frozenset(one), self._sum(one)
        shared = [(self._sum(wanted.intersection(other)), other) for other in others]
        return [both and round(both / math.sqrt(length * self._sum(other)), 4) for both, other in shared]

    def _sum(self, words: Iterable[str]) -> int:
        """Return the square of the length of these words' vector."""
        return sum(map(self._squares.get, words, repeat(self._new)))


def _square(rarity: float) -> int:
    """Return the square of a word's weight, as an integer: a sum is the same in any order."""
    return round(math.log(rarity) ** 2 * 1_000_000)
