"""What people type into a search box, understood: words, "phrases" and -what is not wanted.

All words must be there; the last one may be the beginning of a word. Case, accents and punctuation do not
count. Nothing that can be typed is an error: what is no word is left out.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

#: More than this nobody types; what comes after it is not looked at.
LONGEST = 500
MOST_TERMS = 20

_MARK = "\u0300-\u036f"
_MARKS = re.compile(f"[{_MARK}]")
#: A word: letters and digits of any script, with the accents that stand by themselves.
WORD = re.compile(rf"(?:[^\W_][{_MARK}]*)+")
_TERM = re.compile(r'(?P<minus>(?<!\S)-)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')


@dataclass(frozen=True)
class Term:
    """Words that follow one another. `prefix`: the last one may be longer. `wanted`: or must not be there."""

    words: tuple[str, ...]
    prefix: bool = False
    wanted: bool = True


@dataclass(frozen=True)
class Query:
    """What is looked for. One without a wanted term finds nothing."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted)

    @property
    def wanted(self) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.wanted)

    @property
    def unwanted(self) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if not term.wanted)

    def names(self, word: str) -> bool:
        """Whether a word of a text is one of those that are looked for."""
        word = folded(word)
        return any(_names(term, word) for term in self.wanted)


def understood(text: str) -> Query:
    """The query that somebody typed; empty if there is no word in it."""
    found = list(_TERM.finditer(text[:LONGEST]))
    last = len(found) - 1
    terms = (_term(match, prefix=number == last) for number, match in enumerate(found))
    return Query(tuple(term for term in terms if term.words)[:MOST_TERMS])


def folded(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).lower()


def _term(match: re.Match[str], *, prefix: bool) -> Term:
    text = match["word"] if match["phrase"] is None else match["phrase"]
    words = tuple(WORD.findall(unicodedata.normalize("NFC", text)))
    wanted = match["minus"] is None
    return Term(words, prefix=prefix and wanted and match["phrase"] is None, wanted=wanted)


def _names(term: Term, word: str) -> bool:
    *whole, last = map(folded, term.words)
    return word in whole or word == last or (term.prefix and word.startswith(last))
