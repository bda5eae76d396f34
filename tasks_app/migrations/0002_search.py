"""Full text over tasks, questions and answers, maintained by the database itself: bulk updates are included.

SQLite: FTS5 tables with triggers. PostgreSQL: generated columns and GIN indexes; accents are removed by Unicode
decomposition. The words of earlier answers are prepared by the portal: digests, one column, no positions.

A migration that changes the type of an indexed column on PostgreSQL must remove its index before and make it
afterwards. One that changes what is indexed removes the parts below that it replaces, and has the new ones itself.
"""

from django.db import migrations


def json_texts(row, column):
    """Return SQL for all texts of a JSON column, except `kind`, which the portal writes."""
    texts = f"json_tree({row}.{column}) WHERE type = 'text' AND key IS NOT 'kind'"
    return f"coalesce((SELECT group_concat(atom, ' ') FROM {texts}), '')"


ASKED = f"{json_texts('new', 'items')} || ' ' || {json_texts('new', 'evidence')}"
ANSWERED = f"{json_texts('new', 'answers')} || ' ' || new.notes"
NEW_QUESTION = f"INSERT INTO search_questions(rowid, asked, answered) VALUES (new.id, {ASKED}, {ANSWERED})"
OLD_QUESTION = "DELETE FROM search_questions WHERE rowid = old.id"
QUESTION_CHANGED = " OR ".join(
    f"old.{column} IS NOT new.{column}" for column in ("items", "evidence", "answers", "notes")
)
# The other two have no content of their own, so a change must name the old values.
OLD_TASK = (
    "INSERT INTO search_tasks(search_tasks, rowid, title, body, failure) "
    "VALUES ('delete', old.id, old.title, old.body, old.failure)"
)
NEW_TASK = "INSERT INTO search_tasks(rowid, title, body, failure) VALUES (new.id, new.title, new.body, new.failure)"
TASK_CHANGED = "old.title IS NOT new.title OR old.body IS NOT new.body OR old.failure IS NOT new.failure"
OLD_ANSWER = "INSERT INTO search_answers(search_answers, rowid, words) VALUES ('delete', old.id, old.words)"
NEW_ANSWER = "INSERT INTO search_answers(rowid, words) VALUES (new.id, new.words)"

SQLITE = (
    """CREATE VIRTUAL TABLE search_tasks USING fts5(
        title, body, failure, content='tasks_app_task', content_rowid='id',
        tokenize="unicode61 remove_diacritics 2", prefix='1 2 3')""",
    f"CREATE TRIGGER search_task_made AFTER INSERT ON tasks_app_task BEGIN {NEW_TASK}; END",
    f"CREATE TRIGGER search_task_gone AFTER DELETE ON tasks_app_task BEGIN {OLD_TASK}; END",
    "CREATE TRIGGER search_task_changed AFTER UPDATE ON tasks_app_task "
    f"WHEN {TASK_CHANGED} BEGIN {OLD_TASK}; {NEW_TASK}; END",
    """CREATE VIRTUAL TABLE search_questions USING fts5(
        asked, answered, tokenize="unicode61 remove_diacritics 2", prefix='1 2 3')""",
    f"CREATE TRIGGER search_question_made AFTER INSERT ON tasks_app_question BEGIN {NEW_QUESTION}; END",
    f"CREATE TRIGGER search_question_gone AFTER DELETE ON tasks_app_question BEGIN {OLD_QUESTION}; END",
    "CREATE TRIGGER search_question_changed AFTER UPDATE ON tasks_app_question "
    f"WHEN {QUESTION_CHANGED} BEGIN {OLD_QUESTION}; {NEW_QUESTION}; END",
    """CREATE VIRTUAL TABLE search_answers USING fts5(
        words, content='tasks_app_indexedanswer', content_rowid='id', detail='none', tokenize="ascii")""",
    f"CREATE TRIGGER search_answer_made AFTER INSERT ON tasks_app_indexedanswer BEGIN {NEW_ANSWER}; END",
    f"CREATE TRIGGER search_answer_gone AFTER DELETE ON tasks_app_indexedanswer BEGIN {OLD_ANSWER}; END",
    "CREATE TRIGGER search_answer_changed AFTER UPDATE ON tasks_app_indexedanswer "
    f"WHEN old.words IS NOT new.words BEGIN {OLD_ANSWER}; {NEW_ANSWER}; END",
)

#: Removed first: PostgreSQL would index a path, URL or version as one word. `services/search.py` has it, too.
PUNCTUATION = r"[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u00d7\u00f7\u2000-\u206f\u3000-\u303f]+"
#: Indexed characters of one text: a tsvector may not exceed a megabyte.
LIMIT = 100_000

POSTGRES = (
    # RETURN is parsed at creation, so that a later search_path does not change its meaning.
    rf"""CREATE FUNCTION search_words(text) RETURNS tsvector
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN to_tsvector('pg_catalog.simple'::regconfig, regexp_replace(regexp_replace(
            normalize(left($1, {LIMIT}), NFKD), '[\u0300-\u036f]+', '', 'g'), '{PUNCTUATION}', ' ', 'g'))""",
    """CREATE FUNCTION search_texts(jsonb) RETURNS text
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN (SELECT coalesce(string_agg(one #>> '{}', ' '), '')
            FROM jsonb_path_query($1, 'strict $.**') AS one WHERE jsonb_typeof(one) = 'string')""",
    """ALTER TABLE tasks_app_task ADD COLUMN search_words tsvector
        GENERATED ALWAYS AS (search_words(title || ' ' || failure || ' ' || body)) STORED""",
    """ALTER TABLE tasks_app_question ADD COLUMN search_words tsvector GENERATED ALWAYS AS (
        search_words(search_texts(answers) || ' ' || notes || ' ' || search_texts(items)
        || ' ' || search_texts(jsonb_path_query_array(evidence, 'lax $[*].title'))
        || ' ' || search_texts(jsonb_path_query_array(evidence, 'lax $[*].text')))) STORED""",
    "CREATE INDEX search_tasks ON tasks_app_task USING gin (search_words)",
    "CREATE INDEX search_questions ON tasks_app_question USING gin (search_words)",
    """CREATE INDEX search_answers ON tasks_app_indexedanswer
        USING gin (to_tsvector('pg_catalog.simple'::regconfig, words))""",
)


def make(apps, editor):
    statements = SQLITE if editor.connection.vendor == "sqlite" else POSTGRES
    with editor.connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0001_initial")]

    operations = [migrations.RunPython(make)]
