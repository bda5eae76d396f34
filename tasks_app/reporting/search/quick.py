"""Quick search: the newest tasks, questions and projects with matching names, one query for each kind.

Names only: the history searches whole texts.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from tasks_app.models import Decision, Project, Question, Task
from tasks_app.permissions import (
    Principal,
    decisions_visible_to,
    projects_visible_to,
    questions_visible_to,
    tasks_visible_to,
)

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
    ranks = [When(exact, then=Value(1))] if words else []
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
