import uuid

from django.db import migrations, models

import tasks_app.models.installation


def _key(**options):
    return models.CharField(
        blank=True,
        editable=False,
        max_length=16,
        help_text="Random part of the name of its folder; empty in rows from before there was one.",
        **options,
    )


def _keys(model_name):
    """Rows that are there keep the folders that they have; only new rows get a key."""
    return [
        migrations.AddField(model_name, "folder_key", _key(default="")),
        migrations.AlterField(
            model_name, "folder_key", _key(default=tasks_app.models.installation.new_folder_key)
        ),
    ]


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0006_metered_usage'),
    ]

    operations = [
        migrations.CreateModel(
            name='Installation',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('identity', models.UUIDField(default=uuid.uuid4, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='one_installation')],
            },
        ),
        *_keys('project'),
        *_keys('sequence'),
        *_keys('task'),
    ]
