"""Triggers that note the days whose sums no longer hold (`ChangedDay`).

The database notes them, as it indexes words: bulk updates, cascades and the admin pages are included. New rows
belong to the day on which they are made, so they need no note.

An installation of 0.1.0 has these triggers already: that version made them after its migrations. They are not
replaced, because a server of it may be writing beside this migration.
"""

from django.db import migrations

#: By table: the time that says to which day a row belongs, and the columns that count.
TABLES = {
    "run": (
        "started_at",
        "step_id, started_at, outcome, model, input_tokens, output_tokens, cache_write_tokens, cache_read_tokens, "
        "cost_usd",
    ),
    "task": ("created_at", "project_id, created_by_id, created_at, started_at, ended_at, paused_seconds, phase, early_end"),
    "question": (
        "asked_at",
        "task_id, step_id, kind, state, is_late, worked_seconds, recommended, recommended_taken, item_keys, "
        "asked_before, asked_at, answered_at, answered_via",
    ),
}
#: A task counts once it has ended, and its runs count for who created it.
TASK_COUNTS = (
    "old.ended_at IS NOT NULL OR new.ended_at IS NOT NULL OR old.project_id <> new.project_id "
    "OR coalesce(old.created_by_id, 0) <> coalesce(new.created_by_id, 0)"
)
#: Runs count for who created the task, questions by how long it took.
OF_TASK = (
    " UNION SELECT {question} FROM tasks_app_question AS q WHERE q.task_id = new.id"
    " UNION SELECT {run} FROM tasks_app_run AS r JOIN tasks_app_step AS s ON s.id = r.step_id WHERE s.task_id = new.id"
)


def make(apps, editor):
    sqlite = editor.connection.vendor == "sqlite"
    day = "substr({}, 1, 10)" if sqlite else "({} AT TIME ZONE 'UTC')::date"
    today = "date('now')" if sqlite else "(now() AT TIME ZONE 'UTC')::date"
    with editor.connection.cursor() as cursor:
        for table, (time, columns) in TABLES.items():
            for event in ("update", "delete"):
                days = f"SELECT {day.format('old.' + time)} AS day"
                of, when = "", ""
                if event == "update":
                    days += f" UNION SELECT {day.format('new.' + time)}"
                    of = f" OF {columns}"
                    if table == "task":
                        days += OF_TASK.format(question=day.format("q.asked_at"), run=day.format("r.started_at"))
                        when = f" WHEN ({TASK_COUNTS})"
                note = f"INSERT INTO tasks_app_changedday (day) SELECT day FROM ({days}) AS one WHERE day < {today};"
                name, on = f"day_of_{table}_{event}d", f"AFTER {event.upper()}{of} ON tasks_app_{table}"
                if sqlite:
                    cursor.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {on}{when} BEGIN {note} END")
                    continue
                cursor.execute("SELECT 1 FROM pg_trigger WHERE tgname = %s AND tgrelid = %s::regclass", [name, f"tasks_app_{table}"])
                if not cursor.fetchone():
                    cursor.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {note} RETURN NULL; END $$")
                    cursor.execute(f"CREATE TRIGGER {name} {on} FOR EACH ROW{when} EXECUTE FUNCTION {name}()")


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0005_reasons_and_kept_runs")]

    operations = [migrations.RunPython(make)]
