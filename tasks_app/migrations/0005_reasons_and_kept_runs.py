"""Why a run follows an approval or a plan's review; from which run on the work of a step is in the files."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0004_traces_from_rows")]

    operations = [
        migrations.AddField(
            "step",
            "kept_from",
            models.PositiveIntegerField(
                db_default=1,
                default=1,
                help_text="The first run whose work is in the files: they were put back before it, if it is "
                "not 1.",
            ),
        ),
        migrations.AlterField(
            "run",
            "reason",
            models.CharField(
                choices=[
                    ("first", "first run"),
                    ("answer", "after an answer"),
                    ("approval", "after an approval or denial"),
                    ("plan", "after the plan’s review"),
                    ("check_failed", "after a failed check"),
                    ("limit", "after a limit"),
                    ("crash", "after an interruption"),
                    ("retry", "tried again"),
                    ("review", "after a review"),
                ],
                max_length=20,
            ),
        ),
    ]
