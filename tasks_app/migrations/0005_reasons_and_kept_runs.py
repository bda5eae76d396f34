"""Why a run follows the one before, how a task ended early, and from which run on a step's work is in the files."""

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
                    ("set_aside", "after its calls were set aside"),
                    ("check_failed", "after a failed check"),
                    ("limit", "after a limit"),
                    ("crash", "after an interruption"),
                    ("retry", "tried again"),
                    ("review", "after a review"),
                ],
                max_length=20,
            ),
        ),
        migrations.AlterField(
            "task",
            "early_end",
            models.CharField(
                blank=True,
                choices=[
                    ("asked", "is to be finished early"),
                    ("ended", "was finished early"),
                    ("last_step", "was finished early in its last step"),
                ],
                db_default="",
                default="",
                editable=False,
                help_text="Whether it is to be finished early, or was; empty: neither.",
                max_length=10,
            ),
        ),
    ]
