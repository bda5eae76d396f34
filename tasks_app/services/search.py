"""Full-text search: words, what they find, passages, pages of results, and quick search.

Functions that search filter a queryset; pass one of what the user may see.

Quick search looks at names only: the history searches whole texts.

All words must match; the last one may be a prefix. Case, accents and punctuation are ignored. No input is an
error: what is not a word is ignored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Case, IntegerField, Model, Q, QuerySet, Value, When
from django.db.models.expressions import RawSQL
from django.http import QueryDict

from tasks_app.models import Decision, Project, Question, Task
from tasks_app.models.question import QuestionQuerySet
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import (
    Principal,
    decisions_visible_to,
    projects_visible_to,
    questions_visible_to,
    tasks_visible_to,
)

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
        for term in self.wanted:
            *whole, last = map(fold_case, term.words)
            if word in whole or word == last or (term.prefix and word.startswith(last)):
                return True
        return False


def parse_query(text: str) -> Query:
    """Parse a query; it is empty if it has no words."""
    found = list(_TERM.finditer(text[:MAX_LENGTH]))
    terms = []
    for match in found:
        wanted, is_phrase = match["minus"] is None, match["phrase"] is not None
        words = WORD.findall(unicodedata.normalize("NFC", match["phrase"] or match["word"] or ""))
        prefix = match is found[-1] and wanted and not is_phrase
        terms.append(Term(tuple(words), prefix=prefix, wanted=wanted))
    return Query(tuple(term for term in terms if term.words)[:MAX_TERMS])


def fold_case(text: str) -> str:
    """Lowercase the text and remove accents."""
    if text.isascii():
        return text.lower()
    return _MARKS.sub("", unicodedata.normalize("NFKD", text)).lower()


#: What separates words on PostgreSQL. The index was made with the same expression (migration 0002_search).
_PUNCTUATION = re.compile(
    r"[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7\u2000-\u206f\u3000-\u303f]+"
)


def tasks_with(tasks: TaskQuerySet, query: Query) -> TaskQuerySet:
    """Return the tasks with the words of the query in title, text, failure or questions."""
    return _filter_by_search(
        tasks,
        query,
        "SELECT rowid FROM search_tasks WHERE search_tasks MATCH %s UNION "
        "SELECT task_id FROM tasks_app_question WHERE id IN "
        "(SELECT rowid FROM search_questions WHERE search_questions MATCH %s)",
        "SELECT id FROM tasks_app_task WHERE search_words @@ to_tsquery('pg_catalog.simple', %s) UNION "
        "SELECT task_id FROM tasks_app_question WHERE search_words @@ to_tsquery('pg_catalog.simple', %s)",
    )


def questions_with(questions: QuestionQuerySet, query: Query) -> QuestionQuerySet:
    """Return the questions with the words of the query in items, evidence, answers or notes."""
    return _filter_by_search(
        questions,
        query,
        "SELECT rowid FROM search_questions WHERE search_questions MATCH %s",
        "SELECT id FROM tasks_app_question WHERE search_words @@ to_tsquery('pg_catalog.simple', %s)",
    )


def _filter_by_search(rows: _Rows, query: Query, sqlite: str, postgres: str) -> _Rows:
    if not query:
        return rows.none()
    sql, words = postgres, " & ".join(_tsquery_term(term) for term in query.terms)
    if connection.vendor == "sqlite":
        sql, words = sqlite, _fts5_query(query)
    ids = RawSQL(sql, [words] * sql.count("%s"))  # noqa: S611 - user input is a parameter
    return rows.filter(pk__in=ids)


def _fts5_query(query: Query) -> str:
    """Return an FTS5 query with each word quoted, so that none is an operator."""
    wanted = " AND ".join(_fts5_term(term) for term in query.wanted)
    return " NOT ".join([f"({wanted})", *(_fts5_term(term) for term in query.unwanted)])


def _fts5_term(term: Term) -> str:
    quoted = f'"{" ".join(term.words)}"'
    return f"{quoted} *" if term.prefix else quoted


def _tsquery_term(term: Term) -> str:
    """Return a term with its words folded like the indexed texts: to_tsquery() parses quoted text too."""
    words = " ".join(_PUNCTUATION.sub(" ", fold_case(word)) for word in term.words).split() or [""]
    quoted = [f"'{word}'" for word in words]
    if term.prefix:
        quoted[-1] += ":*"
    consecutive = f"({' <-> '.join(quoted)})"
    return consecutive if term.wanted else f"!{consecutive}"


#: Characters of a snippet, and of them before the first match.
_LENGTH, _BEFORE = 200, 60
#: Characters before and after the first match that are rendered as Markdown.
_MARKDOWN_BEFORE, _MARKDOWN_AFTER = 400, 800


@dataclass(frozen=True)
class TextPart:
    """A piece of a text; `hit`: whether it is a matching word."""

    text: str
    hit: bool = False


def mark_hits(text: str, query: Query) -> list[TextPart]:
    """Return the whole text in parts, with matching words marked."""
    return list(_split_at_hits(text, query))


def snippet(text: str, query: Query) -> list[TextPart]:
    """Return some words around the first match in one line; empty without a match."""
    line = " ".join(text.split())
    first = _first_match(line, query)
    if first is None:
        return []
    start = max(0, first - _BEFORE)
    if start and (space := line.find(" ", start, start + 20)) >= 0:
        start = space + 1
    parts = list(_split_at_hits(line[start : start + _LENGTH], query))
    if start:
        parts.insert(0, TextPart("… "))
    if start + _LENGTH < len(line):
        parts.append(TextPart(" …"))
    return parts


def lines_around_hit(text: str, query: Query) -> str:
    """Return the text around the first match, from the start of a line if possible."""
    first = _first_match(text, query)
    if first is None:
        return ""
    start, end = max(0, first - _MARKDOWN_BEFORE), first + _MARKDOWN_AFTER
    if start:
        start = max(start, text.find("\n", start, first) + 1)
    return text[start:end]


def _first_match(text: str, query: Query) -> int | None:
    return next((word.start() for word in WORD.finditer(text) if query.matches(word[0])), None)


def _split_at_hits(text: str, query: Query) -> Iterator[TextPart]:
    end = 0
    for word in WORD.finditer(text):
        if query.matches(word[0]):
            if word.start() > end:
                yield TextPart(text[end : word.start()])
            yield TextPart(word[0], hit=True)
            end = word.end()
    if end < len(text):
        yield TextPart(text[end:])


Row = TypeVar("Row", bound=Model)
_Rows = TypeVar("_Rows", bound=QuerySet[Any])

_MAX_ID = 2**63 - 1


@dataclass(frozen=True)
class PageCursor:
    """A position in the pages: starts after the row `after`, or ends before the row `before`."""

    after: int | None = None
    before: int | None = None
    oldest_first: bool = False

    @classmethod
    def from_query(cls, asked: QueryDict) -> PageCursor:
        after, before = _parse_id(asked.get("after", "")), _parse_id(asked.get("before", ""))
        if after is not None:
            before = None
        return cls(after, before, asked.get("sort") == "oldest")


@dataclass(frozen=True)
class PageOfIds:
    """Ids of a page in order. `before`, `after`: cursors of the neighbouring pages, if there are any."""

    ids: list[int]
    before: int | None = None
    after: int | None = None


def page_of_ids(rows: QuerySet[Any], cursor: PageCursor, size: int) -> PageOfIds:
    """Return the page at the cursor. Rows are ordered by id, that is, by creation."""
    backwards = cursor.before is not None
    start = cursor.before if backwards else cursor.after
    rising = cursor.oldest_first != backwards
    if start is not None:
        rows = rows.filter(pk__gt=start) if rising else rows.filter(pk__lt=start)
    ids = list(rows.order_by("pk" if rising else "-pk").values_list("pk", flat=True)[: size + 1])
    more, ids = len(ids) > size, ids[:size]
    if backwards:
        ids.reverse()
    if not ids:
        return PageOfIds([])
    has_before, has_after = start is not None, more
    if backwards:
        has_before, has_after = more, True
    return PageOfIds(ids, ids[0] if has_before else None, ids[-1] if has_after else None)


def rows_in_order(rows: QuerySet[Row], ids: list[int]) -> list[Row]:
    """Return the rows with these ids, in the order of the ids."""
    found = {row.pk: row for row in rows.filter(pk__in=ids)}
    return [found[pk] for pk in ids if pk in found]


def iterate_ids(rows: QuerySet[Any], size: int) -> Iterator[list[int]]:
    """Yield the ids of all rows, newest first, in batches, without an open database cursor."""
    part = page_of_ids(rows, PageCursor(), size)
    while part.ids:
        yield part.ids
        if part.after is None:
            return
        part = page_of_ids(rows, PageCursor(after=part.after), size)


def _parse_id(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return min(int(text), _MAX_ID)


#: Hits of each kind that are shown.
FOUND = 6
#: Words that are looked at, and characters of the input.
_MAX_WORDS, MAX_CHARACTERS = 6, 100
#: Words from this length on match with one mistake: then one of their halves is right.
_LONG = 6


def find_tasks(principal: Principal, text: str) -> list[Task]:
    rows = tasks_visible_to(principal).select_related("project").defer("text", "body")
    names = ("title", "slug", "project__name")
    return list(_best(rows, text, names, number="pk").order_by("rank", "-created_at", "-pk")[:FOUND])


def find_questions(principal: Principal, text: str) -> list[Question]:
    """Return matching questions, the open ones first."""
    rows = questions_visible_to(principal).select_related("task__project").defer("tool_input", "evidence")
    closed = Case(When(state="open", then=Value(0)), default=Value(1), output_field=IntegerField())
    found = _best(rows.annotate(closed=closed), text, ("items__0__question", "task__title"), number="pk")
    return list(found.order_by("rank", "closed", "-asked_at", "-pk")[:FOUND])


def find_projects(principal: Principal, text: str) -> list[Project]:
    return list(_best(projects_visible_to(principal), text, ("name",)).order_by("rank", "name")[:FOUND])


def find_decisions(principal: Principal, text: str) -> list[Decision]:
    """Return the decisions that are cited as the text (D-17), or that hold and have the words."""
    rows = decisions_visible_to(principal).select_related("project").defer("reason", "answers", "cites")
    words = words_of(text)
    if len(words) == 1 and Decision.is_label(words[0]):
        return list(rows.filter(number=int(words[0][2:])).order_by("-made_at", "-pk")[:FOUND])
    found = _best(rows.current(), text, ("statement", "project__name"))
    return list(found.order_by("rank", "-made_at", "-pk")[:FOUND])


def matches(name: str, text: str) -> bool:
    """Return whether words of a fixed name begin with all words of the text, in any order."""
    known = name.casefold().split()
    return all(any(one.startswith(word) for one in known) for word in words_of(text.casefold()))


def words_of(text: str) -> list[str]:
    return text.strip()[:MAX_CHARACTERS].split()[:_MAX_WORDS]


def _best(rows: QuerySet[Any], text: str, names: tuple[str, ...], *, number: str = "") -> QuerySet[Any]:
    """Filter the rows; `rank` is 0 for the row with this number, 1 for exact matches, 2 for similar ones."""
    words = words_of(text)
    exact = reduce(and_, (_has(names, word) for word in words), Q())
    similar = reduce(and_, (_resembles(names, word) for word in words), Q())
    ranks = []
    if words:
        ranks.append(When(exact, then=Value(1)))
    if number and len(words) == 1 and words[0].isdecimal() and len(words[0]) < 19:
        by_number = Q(**{number: int(words[0])})
        similar |= by_number
        ranks.insert(0, When(by_number, then=Value(0)))
    rank = Case(*ranks, default=Value(2), output_field=IntegerField())
    found: QuerySet[Any] = rows.filter(similar).annotate(rank=rank)
    return found


def _has(names: tuple[str, ...], word: str) -> Q:
    return reduce(or_, (Q(**{f"{name}__icontains": word}) for name in names))


def _resembles(names: tuple[str, ...], word: str) -> Q:
    if len(word) < _LONG:
        return _has(names, word)
    middle = len(word) // 2
    return _has(names, word[:middle]) | _has(names, word[middle:])
