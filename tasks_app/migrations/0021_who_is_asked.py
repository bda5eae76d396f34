from typing import Any

from django.db import migrations, models
from django.db.models import F


def ask_everybody(apps: Any, schema_editor: Any) -> None:
    """Leave the questions that are open now to all who may answer, as they were asked."""
    questions = apps.get_model("tasks_app", "Question").objects.using(schema_editor.connection.alias)
    questions.filter(state="open", routed_at=None).update(routed_at=F("asked_at"))


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0020_asked")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="ask",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="The people and groups whom its questions are put to, by its own choice.",
            ),
        ),
        migrations.RunPython(ask_everybody, migrations.RunPython.noop),
    ]
