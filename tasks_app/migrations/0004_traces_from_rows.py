"""Spans of traces are read from other rows; only the ids of those that were sent are stored."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0003_notice_kind")]

    operations = [
        migrations.DeleteModel("NotedHop"),
        migrations.DeleteModel("Span"),
        migrations.RemoveField("task", "traceparent"),
        migrations.CreateModel(
            "SentSpan",
            [
                ("span_id", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("taker", models.CharField(max_length=16)),
                ("taken_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
        ),
    ]
