"""The full text indexes, maintained by the database itself, so that bulk updates are included.

SQLite: two FTS5 tables with triggers. PostgreSQL: a generated column with a GIN index in either table;
accents are removed by Unicode decomposition. `make` and `drop` may be called twice. `make_answers` and
`drop_answers` do the same for the index of earlier answers, whose words are prepared by
`services/questions/answer_index.py`.

A migration that changes the type of an indexed column on PostgreSQL must `drop` first and `make` afterwards.
On SQLite, Django recreates tables and so loses their triggers: `mend` restores them after each migration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# ---- SQLite ----


def _json_texts_sql(row: str, column: str) -> str:
    """Return SQL for all texts of a JSON column, except `kind`, which the portal writes."""
    texts = f"json_tree({row}.{column}) WHERE type = 'text' AND key IS NOT 'kind'"
    return f"coalesce((SELECT group_concat(atom, ' ') FROM {texts}), '')"


def _question_columns_sql(row: str) -> str:
    asked = f"{_json_texts_sql(row, 'items')} || ' ' || {_json_texts_sql(row, 'evidence')}"
    answered = f"{_json_texts_sql(row, 'answers')} || ' ' || {row}.notes"
    return f"{row}.id, {asked}, {answered}"


# The index of tasks has no content of its own, so a change must name the old values.
_OLD_TASK = (
    "INSERT INTO search_tasks(search_tasks, rowid, title, body, failure) "
    "VALUES ('delete', old.id, old.title, old.body, old.failure)"
)
_NEW_TASK = (
    "INSERT INTO search_tasks(rowid, title, body, failure) VALUES (new.id, new.title, new.body, new.failure)"
)
_TASK_CHANGED = "old.title IS NOT new.title OR old.body IS NOT new.body OR old.failure IS NOT new.failure"
_NEW_QUESTION = (
    f"INSERT INTO search_questions(rowid, asked, answered) VALUES ({_question_columns_sql('new')})"
)
_OLD_QUESTION = "DELETE FROM search_questions WHERE rowid = old.id"
_QUESTION_CHANGED = " OR ".join(
    f"old.{column} IS NOT new.{column}" for column in ("items", "evidence", "answers", "notes")
)

_SQLITE_TABLES = (
    """CREATE VIRTUAL TABLE IF NOT EXISTS search_tasks USING fts5(
        title, body, failure, content='tasks_app_task', content_rowid='id',
        tokenize="unicode61 remove_diacritics 2", prefix='1 2 3')""",
    """CREATE VIRTUAL TABLE IF NOT EXISTS search_questions USING fts5(
        asked, answered, tokenize="unicode61 remove_diacritics 2", prefix='1 2 3')""",
)
_SQLITE_TRIGGERS = {
    "search_task_made": f"AFTER INSERT ON tasks_app_task BEGIN {_NEW_TASK}; END",
    "search_task_gone": f"AFTER DELETE ON tasks_app_task BEGIN {_OLD_TASK}; END",
    "search_task_changed": (
        f"AFTER UPDATE ON tasks_app_task WHEN {_TASK_CHANGED} BEGIN {_OLD_TASK}; {_NEW_TASK}; END"
    ),
    "search_question_made": f"AFTER INSERT ON tasks_app_question BEGIN {_NEW_QUESTION}; END",
    "search_question_gone": f"AFTER DELETE ON tasks_app_question BEGIN {_OLD_QUESTION}; END",
    "search_question_changed": (
        f"AFTER UPDATE ON tasks_app_question WHEN {_QUESTION_CHANGED} "
        f"BEGIN {_OLD_QUESTION}; {_NEW_QUESTION}; END"
    ),
}
_SQLITE_FILL = (
    "INSERT INTO search_tasks(search_tasks) VALUES ('rebuild')",
    "DELETE FROM search_questions",
    "INSERT INTO search_questions(rowid, asked, answered) "
    f"SELECT {_question_columns_sql('one')} FROM tasks_app_question AS one",
)

# The index of earlier answers: digests of words, one column, no positions.
_OLD_ANSWER = "INSERT INTO search_answers(search_answers, rowid, words) VALUES ('delete', old.id, old.words)"
_NEW_ANSWER = "INSERT INTO search_answers(rowid, words) VALUES (new.id, new.words)"
_SQLITE_ANSWERS = """CREATE VIRTUAL TABLE IF NOT EXISTS search_answers USING fts5(
        words, content='tasks_app_indexedanswer', content_rowid='id', detail='none', tokenize="ascii")"""
_SQLITE_ANSWER_TRIGGERS = {
    "search_answer_made": f"AFTER INSERT ON tasks_app_indexedanswer BEGIN {_NEW_ANSWER}; END",
    "search_answer_gone": f"AFTER DELETE ON tasks_app_indexedanswer BEGIN {_OLD_ANSWER}; END",
    "search_answer_changed": (
        "AFTER UPDATE ON tasks_app_indexedanswer WHEN old.words IS NOT new.words "
        f"BEGIN {_OLD_ANSWER}; {_NEW_ANSWER}; END"
    ),
}
_SQLITE_FILL_ANSWERS = "INSERT INTO search_answers(search_answers) VALUES ('rebuild')"

# ---- PostgreSQL ----

#: Punctuation is removed first: PostgreSQL would index a path, URL or version as one word.
PUNCTUATION = r"[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7\u2000-\u206f\u3000-\u303f]+"
#: Indexed characters of one text: a tsvector may not exceed a megabyte.
_LIMIT = 100_000

_POSTGRES_FUNCTIONS = (
    # RETURN is parsed at creation, so that a later search_path does not change its meaning.
    rf"""CREATE OR REPLACE FUNCTION search_words(text) RETURNS tsvector
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN to_tsvector('pg_catalog.simple'::regconfig, regexp_replace(regexp_replace(
            normalize(left($1, {_LIMIT}), NFKD), '[\u0300-\u036f]+', '', 'g'), '{PUNCTUATION}', ' ', 'g'))""",
    """CREATE OR REPLACE FUNCTION search_texts(jsonb) RETURNS text
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN (SELECT coalesce(string_agg(one #>> '{}', ' '), '')
            FROM jsonb_path_query($1, 'strict $.**') AS one WHERE jsonb_typeof(one) = 'string')""",
)
_TASK_WORDS = "search_words(title || ' ' || failure || ' ' || body)"
_QUESTION_WORDS = (
    "search_words(search_texts(answers) || ' ' || notes || ' ' || search_texts(items) "
    "|| ' ' || search_texts(jsonb_path_query_array(evidence, 'lax $[*].title')) "
    "|| ' ' || search_texts(jsonb_path_query_array(evidence, 'lax $[*].text')))"
)
_POSTGRES = (
    *_POSTGRES_FUNCTIONS,
    "ALTER TABLE tasks_app_task ADD COLUMN IF NOT EXISTS search_words tsvector "
    f"GENERATED ALWAYS AS ({_TASK_WORDS}) STORED",
    "ALTER TABLE tasks_app_question ADD COLUMN IF NOT EXISTS search_words tsvector "
    f"GENERATED ALWAYS AS ({_QUESTION_WORDS}) STORED",
    "CREATE INDEX IF NOT EXISTS search_tasks ON tasks_app_task USING gin (search_words)",
    "CREATE INDEX IF NOT EXISTS search_questions ON tasks_app_question USING gin (search_words)",
)
_POSTGRES_ANSWERS = (
    "CREATE INDEX IF NOT EXISTS search_answers ON tasks_app_indexedanswer "
    "USING gin (to_tsvector('pg_catalog.simple'::regconfig, words))"
)
_POSTGRES_DROP = (
    "ALTER TABLE tasks_app_task DROP COLUMN IF EXISTS search_words",
    "ALTER TABLE tasks_app_question DROP COLUMN IF EXISTS search_words",
    "DROP FUNCTION IF EXISTS search_words(text)",
    "DROP FUNCTION IF EXISTS search_texts(jsonb)",
)


def make(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Create and fill the index. For `RunPython`."""
    if editor.connection.vendor == "sqlite":
        _make_sqlite(editor.connection)
    else:
        _execute_all(editor.connection, _POSTGRES)


def drop(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Remove the index. For `RunPython`."""
    if editor.connection.vendor == "sqlite":
        _drop_triggers(editor.connection, _SQLITE_TRIGGERS)
        tables = ("search_tasks", "search_questions")
        _execute_all(editor.connection, [f"DROP TABLE IF EXISTS {table}" for table in tables])
    else:
        _execute_all(editor.connection, _POSTGRES_DROP)


def make_answers(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Create and fill the index of earlier answers. For `RunPython`."""
    if editor.connection.vendor == "sqlite":
        _make_sqlite_answers(editor.connection)
    else:
        _execute_all(editor.connection, [_POSTGRES_ANSWERS])


def drop_answers(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Remove the index of earlier answers. For `RunPython`."""
    if editor.connection.vendor == "sqlite":
        _drop_triggers(editor.connection, _SQLITE_ANSWER_TRIGGERS)
        _execute_all(editor.connection, ["DROP TABLE IF EXISTS search_answers"])
    else:
        _execute_all(editor.connection, ["DROP INDEX IF EXISTS search_answers"])


def mend(connection: BaseDatabaseWrapper) -> bool:
    """Restore lost triggers and rebuild the indexes; return whether this was necessary."""
    if is_whole(connection):
        return False
    _make_sqlite(connection)
    if "search_answers" in _existing_names(connection, "table"):
        _make_sqlite_answers(connection)
    return True


def is_whole(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the triggers are complete. PostgreSQL needs none."""
    if connection.vendor != "sqlite":
        return True
    tables, triggers = _existing_names(connection, "table"), _existing_names(connection, "trigger")
    needed = set(_SQLITE_TRIGGERS) if "search_tasks" in tables else set()
    if "search_answers" in tables:
        needed |= set(_SQLITE_ANSWER_TRIGGERS)
    return needed <= triggers


def mend_after_migration(using: str, **kwargs: Any) -> None:
    """Receiver of Django's signal `post_migrate`."""
    from django.db import connections

    mend(connections[using])


def _make_sqlite(connection: BaseDatabaseWrapper) -> None:
    _execute_all(connection, _SQLITE_TABLES)
    _make_triggers(connection, _SQLITE_TRIGGERS)
    _execute_all(connection, _SQLITE_FILL)


def _make_sqlite_answers(connection: BaseDatabaseWrapper) -> None:
    _execute_all(connection, [_SQLITE_ANSWERS])
    _make_triggers(connection, _SQLITE_ANSWER_TRIGGERS)
    _execute_all(connection, [_SQLITE_FILL_ANSWERS])


def _make_triggers(connection: BaseDatabaseWrapper, triggers: Mapping[str, str]) -> None:
    _drop_triggers(connection, triggers)
    _execute_all(connection, [f"CREATE TRIGGER {name} {body}" for name, body in triggers.items()])


def _drop_triggers(connection: BaseDatabaseWrapper, triggers: Iterable[str]) -> None:
    _execute_all(connection, [f"DROP TRIGGER IF EXISTS {name}" for name in triggers])


def _execute_all(connection: BaseDatabaseWrapper, statements: Any) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _existing_names(connection: BaseDatabaseWrapper, kind: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = %s", [kind])
        return {row[0] for row in cursor.fetchall()}
