"""Finding tasks and questions by the words in them, on both databases.

These narrow querysets, so what a person may not see is not found: hand in what is visible to them.
"""

from __future__ import annotations

import re
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from tasks_app.models import Question, Task
from tasks_app.reporting.search.schema import PUNCTUATION
from tasks_app.reporting.search.words import Query, Term, folded

_PUNCTUATION = re.compile(PUNCTUATION)


def tasks_with(tasks: QuerySet[Task], query: Query) -> QuerySet[Task]:
    """The tasks whose title, text or failure has the words of the query, or one of whose questions has."""
    return _found(
        tasks,
        query,
        "SELECT rowid FROM search_tasks WHERE search_tasks MATCH %s UNION "
        "SELECT task_id FROM tasks_app_question WHERE id IN "
        "(SELECT rowid FROM search_questions WHERE search_questions MATCH %s)",
        "SELECT id FROM tasks_app_task WHERE search_words @@ to_tsquery('pg_catalog.simple', %s) UNION "
        "SELECT task_id FROM tasks_app_question WHERE search_words @@ to_tsquery('pg_catalog.simple', %s)",
    )


def questions_with(questions: QuerySet[Question], query: Query) -> QuerySet[Question]:
    """The questions that have the words of the query in what was asked, its evidence, answer or notes."""
    return _found(
        questions,
        query,
        "SELECT rowid FROM search_questions WHERE search_questions MATCH %s",
        "SELECT id FROM tasks_app_question WHERE search_words @@ to_tsquery('pg_catalog.simple', %s)",
    )


def _found(rows: QuerySet[Any], query: Query, sqlite: str, postgres: str) -> QuerySet[Any]:
    if not query:
        return rows.none()
    on_sqlite = connection.vendor == "sqlite"
    sql, words = (sqlite, _fts5(query)) if on_sqlite else (postgres, _tsquery(query))
    ids = RawSQL(sql, [words] * sql.count("%s"))  # noqa: S611 - what was typed is a parameter
    return rows.filter(pk__in=ids)


def _fts5(query: Query) -> str:
    """Each word in quotes, so that none is an operator."""
    wanted = " AND ".join(_fts5_term(term) for term in query.wanted)
    return " NOT ".join([f"({wanted})", *(_fts5_term(term) for term in query.unwanted)])


def _fts5_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"{" *" if term.prefix else ""}'


def _tsquery(query: Query) -> str:
    return " & ".join(f"{'' if term.wanted else '!'}({_tsquery_term(term)})" for term in query.terms)


def _tsquery_term(term: Term) -> str:
    """PostgreSQL reads what is in quotes as it reads texts, so a word is folded as texts are."""
    words = " ".join(_PUNCTUATION.sub(" ", folded(word)) for word in term.words).split() or [""]
    quoted = [f"'{word}'" for word in words]
    if term.prefix:
        quoted[-1] += ":*"
    return " <-> ".join(quoted)
