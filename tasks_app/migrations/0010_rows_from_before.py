"""Search finds what agents and people wrote of approvals and plans, not the words of the portal around it.

What is asked of them, and their options, are words of the portal; calls and plans are in the evidence, too.
Questions that are open by now stay with all who may answer.
"""

from django.db import migrations
from django.db.models import F

OF_PORTAL = "new.kind IN ('approval', 'plan')"


def json_texts(column, also=""):
    """Return SQL for the texts of a JSON column, except `kind`, which the portal writes."""
    texts = f"json_tree(new.{column}) WHERE type = 'text' AND key IS NOT 'kind'{also}"
    return f"coalesce((SELECT group_concat(atom, ' ') FROM {texts}), '')"


ITEMS = f"CASE WHEN {OF_PORTAL} THEN '' ELSE {json_texts('items')} END"
EVIDENCE = json_texts("evidence", " AND (key IS NOT 'title' OR new.kind IS NOT 'plan')")
VALUES = f"new.id, {ITEMS} || ' ' || {EVIDENCE}, {json_texts('answers')} || ' ' || new.notes"
NEW_QUESTION = f"INSERT INTO search_questions(rowid, asked, answered) VALUES ({VALUES})"
OLD_QUESTION = "DELETE FROM search_questions WHERE rowid = old.id"
QUESTION_CHANGED = " OR ".join(
    f"old.{column} IS NOT new.{column}" for column in ("kind", "items", "evidence", "answers", "notes")
)

SQLITE = (
    "DROP TRIGGER search_question_made",
    "DROP TRIGGER search_question_changed",
    f"CREATE TRIGGER search_question_made AFTER INSERT ON tasks_app_question BEGIN {NEW_QUESTION}; END",
    "CREATE TRIGGER search_question_changed AFTER UPDATE ON tasks_app_question "
    f"WHEN {QUESTION_CHANGED} BEGIN {OLD_QUESTION}; {NEW_QUESTION}; END",
    f"DELETE FROM search_questions WHERE rowid IN (SELECT id FROM tasks_app_question AS new WHERE {OF_PORTAL})",
    f"INSERT INTO search_questions(rowid, asked, answered) SELECT {VALUES} "
    f"FROM tasks_app_question AS new WHERE {OF_PORTAL}",
)

POSTGRES = (
    "ALTER TABLE tasks_app_question DROP COLUMN search_words",
    """ALTER TABLE tasks_app_question ADD COLUMN search_words tsvector GENERATED ALWAYS AS (
        search_words(search_texts(answers) || ' ' || notes
        || ' ' || CASE WHEN kind IN ('approval', 'plan') THEN '' ELSE search_texts(items) END
        || ' ' || CASE WHEN kind = 'plan' THEN ''
            ELSE search_texts(jsonb_path_query_array(evidence, 'lax $[*].title')) END
        || ' ' || search_texts(jsonb_path_query_array(evidence, 'lax $[*].text')))) STORED""",
    "CREATE INDEX search_questions ON tasks_app_question USING gin (search_words)",
)


def index_again(apps, editor):
    statements = SQLITE if editor.connection.vendor == "sqlite" else POSTGRES
    with editor.connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask_everybody(apps, editor):
    questions = apps.get_model("tasks_app", "Question").objects.using(editor.connection.alias)
    questions.filter(state="open", routed_at=None).update(routed_at=F("asked_at"))


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0009_asked_people_and_rules")]

    operations = [migrations.RunPython(index_again), migrations.RunPython(ask_everybody)]
