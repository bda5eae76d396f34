"""The settings of a project that people override stand in one column, as a task file's do."""

from django.db import migrations, models

#: Each with the value that leaves it to the repository's file.
COLUMNS = {
    "threshold": None,
    "default_pipeline": "",
    "model": "",
    "wait_for_reset": None,
    "auto_commit": None,
    "publish_plan": None,
    "manage_git_branch": None,
    "max_turns": None,
    "max_cost_usd": None,
    "soft_cost_usd": None,
    "monthly_budget_usd": None,
    "max_running_tasks": None,
    "step_timeout": None,
    "check_timeout": None,
    "ask_before": "",
    "network": "",
    "runs_on": "",
    "apply_decisions": None,
}


def fill(apps, schema_editor):
    for project in apps.get_model("tasks_app", "Project").objects.using(schema_editor.connection.alias):
        values = {name: getattr(project, name) for name in COLUMNS}
        project.overrides = {name: value for name, value in values.items() if value != COLUMNS[name]}
        project.save(update_fields=["overrides"])


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0007_idle_seconds")]

    operations = [
        migrations.AddField(
            "project",
            "overrides",
            models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
                help_text="What people set instead of cat-herder.yaml, by the names of `project_settings.SETTINGS`.",
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        *(migrations.RemoveField("project", name) for name in COLUMNS),
    ]
