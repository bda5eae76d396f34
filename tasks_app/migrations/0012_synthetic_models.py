from django.db import migrations


def forget(apps, schema_editor):
    """What the agent's program said itself was kept as if a model of this name had said it."""
    runs = apps.get_model("tasks_app", "Run").objects.using(schema_editor.connection.alias)
    runs.filter(model="<synthetic>").update(model="")


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0011_plans")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop)]
