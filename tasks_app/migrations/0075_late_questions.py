from django.db import migrations, models


def mark_late(apps, editor):
    """Mark what counted as late so far: whether an agent had written before is not looked up."""
    questions = apps.get_model("tasks_app", "Question").objects.using(editor.connection.alias)
    late = questions.filter(about_goal=True, step__position__gt=1).exclude(step__kind="clarify")
    questions.filter(pk__in=late.order_by().values("pk")).update(is_late=True)


def leave(apps, editor):
    """Nothing to undo: the column goes."""


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0074_worker_protection'),
    ]

    operations = [
        migrations.AddField(
            model_name='question',
            name='is_late',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='Whether it is about the goal and came when work was already based on a guess.'),
        ),
        migrations.RunPython(mark_late, leave),
    ]
