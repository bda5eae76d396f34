from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0015_dismissed_failures'),
    ]

    operations = [
        migrations.AddField(
            model_name='publication',
            name='message',
            field=models.TextField(blank=True, db_default='', default='', help_text='Of the one commit; empty: what the task changed.'),
        ),
    ]
