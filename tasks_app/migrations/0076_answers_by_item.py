import django.db.models.deletion
from django.db import migrations, models

from tasks_app.reporting.search import schema
from tasks_app.services.questions.answer_index import index_values

#: Questions that are read and indexed at once.
BATCH = 500


def index_items(apps, editor):
    """Give each item of a question with several its own entry, in batches: there may be a million."""
    alias = editor.connection.alias
    index = apps.get_model("tasks_app", "IndexedAnswer").objects.using(alias)
    last = 0
    while rows := list(
        index.filter(question__gt=last, place=0)
        .order_by("question")
        .values_list("question", "project", "question__items")[:BATCH]
    ):
        several = [row for row in rows if len(row[2]) > 1]
        index.filter(question__in=[pk for pk, _, _ in several]).delete()
        index.bulk_create(
            index.model(question_id=pk, place=place, **index_values(project, [item]))
            for pk, project, items in several
            for place, item in enumerate(items)
        )
        last = rows[-1][0]


def forget_items(apps, editor):
    """Leave one entry of each question: it had no more."""
    index = apps.get_model("tasks_app", "IndexedAnswer").objects.using(editor.connection.alias)
    index.exclude(place=0).delete()


def leave(apps, editor):
    """Nothing to undo."""


class Migration(migrations.Migration):

    dependencies = [
        ("tasks_app", "0075_late_questions"),
    ]

    operations = [
        migrations.AddField(
            model_name='indexedanswer',
            name='place',
            field=models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Which item of the question, from 0.'),
        ),
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('asked', 'asked'), ('answered', 'answered'), ('dismissed', 'skipped'), ('approved', 'approved'), ('denied', 'denied'), ('plan_approved', 'approved the plan of'), ('plan_sent_back', 'sent back the plan of'), ('answer_taken_back', 'took back the answer to'), ('decision_made', 'made the decision'), ('decision_proposed', 'proposed the decision'), ('decision_confirmed', 'confirmed the decision'), ('decision_kept', 'kept the decision'), ('decision_superseded', 'replaced the decision'), ('decision_changed', 'changed the decision'), ('decision_retired', 'retired the decision'), ('task_created', 'created the task'), ('task_started', 'started the task'), ('task_cancelled', 'cancelled the task'), ('task_went_on', 'resumed the task'), ('task_retried', 'retried the task'), ('task_changed', 'changed the task'), ('publish_requested', 'asked to publish the result of'), ('published', 'published the result of'), ('not_published', 'could not publish the result of'), ('pull_request_opened', 'opened a pull request for'), ('pull_request_ended', 'recorded the end of the pull request of'), ('credential_stored', 'stored the credential for publishing of'), ('credential_removed', 'removed the credential for publishing of'), ('reviewed', 'reviewed the task'), ('thread_answered', 'replied in a thread of'), ('thread_resolved', 'resolved a thread of'), ('thread_reopened', 'reopened a thread of'), ('sequence_created', 'created the sequence'), ('sequence_went_on', 'resumed the sequence'), ('project_added', 'added the project'), ('project_removed', 'removed the project'), ('settings_changed', 'changed the settings of'), ('role_given', 'gave a role to'), ('role_taken', 'removed the role of'), ('invited', 'invited'), ('invitation_accepted', 'accepted the invitation of'), ('invitation_withdrawn', 'withdrew the invitation of'), ('logged_in', 'logged in'), ('logged_out', 'logged out'), ('login_failed', 'failed to log in as'), ('account_made', 'created the account'), ('account_changed', 'changed the account of'), ('password_changed', 'changed the password of'), ('second_factor_on', 'switched on the second factor of'), ('second_factor_off', 'switched off the second factor of'), ('token_made', 'created the token'), ('token_revoked', 'revoked the token'), ('token_used', 'used the token'), ('worker_token_made', 'created the token of the worker host'), ('worker_token_revoked', 'revoked the token of the worker host'), ('notifications_changed', 'changed the notifications of'), ('exported', 'exported')], max_length=30),
        ),
        migrations.AlterField(
            model_name='indexedanswer',
            name='question',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='indexed_answers', to='tasks_app.question'),
        ),
        migrations.AlterField(
            model_name='indexedanswer',
            name='question_key',
            field=models.CharField(help_text='Equal for items that are the same.', max_length=32),
        ),
        migrations.AlterField(
            model_name='indexedanswer',
            name='words',
            field=models.TextField(help_text="Digests of the item's words, each with its project."),
        ),
        migrations.AddConstraint(
            model_name='indexedanswer',
            constraint=models.UniqueConstraint(fields=('question', 'place'), name='one_indexed_answer_per_item'),
        ),
        # SQLite has made the table anew, without its triggers.
        migrations.RunPython(schema.make_answers, leave),
        migrations.RunPython(index_items, forget_items),
    ]
