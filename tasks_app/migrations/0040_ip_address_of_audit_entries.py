from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0039_one_time_zone'),
    ]

    operations = [
        migrations.RenameField(model_name='auditentry', old_name='address', new_name='ip_address'),
    ]
