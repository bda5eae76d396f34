"""Full text over tasks, questions and answers, kept by the database itself. It changes no model."""

from django.db import migrations

from tasks_app.reporting.search import schema


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0002_a_team_s_portal")]

    operations = [migrations.RunPython(schema.make, schema.drop)]
