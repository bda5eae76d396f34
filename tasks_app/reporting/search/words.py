"""Parse search queries: words, "phrases" and -excluded words.

All words must match; the last one may be a prefix. Case, accents and punctuation are ignored. No input is an
error: what is not a word is ignored.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

#: The rest of a longer query is ignored.
MAX_LENGTH = 500
MAX_TERMS = 20

_MARK = "\u0300-\u036f"
_MARKS = re.compile(f"[{_MARK}]")
#: A word: letters and digits of any script, with combining accents.
WORD = re.compile(rf"(?:[^\W_][{_MARK}]*)+")
_TERM = re.compile(r'(?P<minus>(?<!\S)-)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')


@dataclass(frozen=True)
class Term:
    """Consecutive words. `prefix`: the last one may be longer. `wanted`: false for excluded words."""

    words: tuple[str, ...]
    prefix: bool = False
    wanted: bool = True


@dataclass(frozen=True)
class Query:
    """A parsed query. Without a wanted term it finds nothing."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted)

    @property
    def wanted(self) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.wanted)

    @property
    def unwanted(self) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if not term.wanted)

    def matches(self, word: str) -> bool:
        """Return whether a word of a text is one of the wanted words."""
        word = fold_case(word)
        return any(_term_matches(term, word) for term in self.wanted)


def parse_query(text: str) -> Query:
    """Parse a query; it is empty if it has no words."""
    found = list(_TERM.finditer(text[:MAX_LENGTH]))
    last = len(found) - 1
    terms = (_parse_term(match, prefix=number == last) for number, match in enumerate(found))
    return Query(tuple(term for term in terms if term.words)[:MAX_TERMS])


def fold_case(text: str) -> str:
    """Lowercase the text and remove accents."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).lower()


def _parse_term(match: re.Match[str], *, prefix: bool) -> Term:
    text = match["word"] if match["phrase"] is None else match["phrase"]
    words = tuple(WORD.findall(unicodedata.normalize("NFC", text)))
    wanted = match["minus"] is None
    return Term(words, prefix=prefix and wanted and match["phrase"] is None, wanted=wanted)


def _term_matches(term: Term, word: str) -> bool:
    *whole, last = map(fold_case, term.words)
    return word in whole or word == last or (term.prefix and word.startswith(last))
