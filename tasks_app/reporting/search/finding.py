"""Full text search of tasks and questions on both databases.

The functions filter a queryset; pass one of what the user may see.
"""

from __future__ import annotations

import re
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from tasks_app.models import Question, Task
from tasks_app.reporting.search.schema import PUNCTUATION
from tasks_app.reporting.search.words import Query, Term, fold_case

_PUNCTUATION = re.compile(PUNCTUATION)


def tasks_with(tasks: QuerySet[Task], query: Query) -> QuerySet[Task]:
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


def questions_with(questions: QuerySet[Question], query: Query) -> QuerySet[Question]:
    """Return the questions with the words of the query in items, evidence, answers or notes."""
    return _filter_by_search(
        questions,
        query,
        "SELECT rowid FROM search_questions WHERE search_questions MATCH %s",
        "SELECT id FROM tasks_app_question WHERE search_words @@ to_tsquery('pg_catalog.simple', %s)",
    )


def _filter_by_search(rows: QuerySet[Any], query: Query, sqlite: str, postgres: str) -> QuerySet[Any]:
    if not query:
        return rows.none()
    on_sqlite = connection.vendor == "sqlite"
    sql, words = (sqlite, _fts5_query(query)) if on_sqlite else (postgres, _tsquery(query))
    ids = RawSQL(sql, [words] * sql.count("%s"))  # noqa: S611 - user input is a parameter
    return rows.filter(pk__in=ids)


def _fts5_query(query: Query) -> str:
    """Return an FTS5 query with each word quoted, so that none is an operator."""
    wanted = " AND ".join(_fts5_term(term) for term in query.wanted)
    return " NOT ".join([f"({wanted})", *(_fts5_term(term) for term in query.unwanted)])


def _fts5_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"{" *" if term.prefix else ""}'


def _tsquery(query: Query) -> str:
    return " & ".join(f"{'' if term.wanted else '!'}({_tsquery_term(term)})" for term in query.terms)


def _tsquery_term(term: Term) -> str:
    """Fold the words like the indexed texts: to_tsquery() parses quoted text too."""
    words = " ".join(_PUNCTUATION.sub(" ", fold_case(word)) for word in term.words).split() or [""]
    quoted = [f"'{word}'" for word in words]
    if term.prefix:
        quoted[-1] += ":*"
    return " <-> ".join(quoted)
