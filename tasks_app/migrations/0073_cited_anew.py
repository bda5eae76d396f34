from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0072_applied_decisions'),
    ]

    operations = [
        migrations.AlterField(
            model_name='decisionevent',
            name='kind',
            field=models.CharField(choices=[('proposed', 'proposed it'), ('decided', 'decided it'), ('confirmed', 'confirmed it'), ('followed', 'followed it'), ('applied', 'applied it'), ('taken_back', 'took back that it was applied'), ('unfit', 'said that it does not fit'), ('stale', 'found that its code has changed'), ('cited_anew', 'cited its code as it is now'), ('kept', 'kept it after a review'), ('exception', 'made an exception'), ('superseded', 'replaced it'), ('narrowed', 'narrowed it'), ('retired', 'retired it'), ('restored', 'restored it')], max_length=20),
        ),
    ]
