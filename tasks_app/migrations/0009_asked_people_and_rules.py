"""Whom a question asks and until when, calendars, watchers, answers over MCP, and what more runs tell."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tasks_app.migrations._at_once import MakeTables


class Migration(migrations.Migration):

    dependencies = [
        ('tasks_app', '0008_project_overrides'),
    ]

    operations = [
        MakeTables([
        migrations.CreateModel(
            name='AnswerDraft',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('answers', models.JSONField(blank=True, default=dict)),
                ('notes', models.TextField(blank=True)),
                ('replies', models.PositiveIntegerField(default=0)),
                ('problem', models.TextField(blank=True, help_text='Why the last reply was not usable.')),
                ('declined', models.BooleanField(default=False, help_text='Whether the last form was declined.')),
            ],
        ),
        migrations.CreateModel(
            name='Asked',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('asked_by', models.CharField(choices=[('task', 'the task names them'), ('rule', 'a rule of the project names them'), ('owner', 'they own the code'), ('on_call', 'they are on call'), ('starter', 'they started the task'), ('hand_over', 'it was handed over to them'), ('opinion', 'their opinion was asked for'), ('rung', 'nobody answered in time')], max_length=20)),
                ('why', models.CharField(max_length=300)),
                ('group', models.CharField(blank=True, max_length=60)),
                ('note', models.TextField(blank=True)),
                ('at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, help_text='When it was handed over or taken back; empty while it holds.', null=True)),
                ('announce_at', models.DateTimeField(blank=True, editable=False, help_text='When the user is told of this row, or of its end; empty afterwards, and if the question itself tells them.', null=True)),
            ],
            options={
                'verbose_name_plural': 'asked',
                'ordering': ['at', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='Calendar',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source', models.CharField(blank=True, help_text='Empty if the project names none.', max_length=1000)),
                ('encrypted_url', models.TextField(blank=True, editable=False)),
                ('events', models.JSONField(blank=True, default=list, editable=False)),
                ('zone', models.CharField(default='UTC', help_text='The time zone that it names.', max_length=64)),
                ('notes', models.JSONField(blank=True, default=list, help_text='What was passed over.')),
                ('read_at', models.DateTimeField(blank=True, help_text='When it was last read.', null=True)),
                ('fault', models.TextField(blank=True, help_text='Why it cannot be read since then.')),
                ('fault_since', models.DateTimeField(blank=True, null=True)),
                ('checked_at', models.DateTimeField(blank=True, help_text='When a worker last began to read it; empty: it is due.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='MemberGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Rung',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('action', models.CharField(choices=[('ask', 'ask'), ('remind', 'remind'), ('everybody', 'everybody'), ('agent_decides', 'agent_decides'), ('recommended', 'recommended')], max_length=20)),
                ('name', models.CharField(blank=True, db_default='', default='', help_text='The name of the ladder, or the line that says the rung.', max_length=100)),
                ('at_any_hour', models.BooleanField(default=False, help_text='Also in quiet hours and at night.')),
                ('due', models.DateTimeField()),
                ('done_at', models.DateTimeField(blank=True, null=True)),
                ('outcome', models.CharField(blank=True, choices=[('done', 'done'), ('unreached', 'nobody was reached'), ('left', 'left to people')], max_length=20)),
                ('failure', models.CharField(blank=True, help_text='Why nobody was reached, or why it is left to people.', max_length=500)),
            ],
            options={
                'ordering': ['question_id', 'position'],
            },
        ),
        migrations.CreateModel(
            name='WorkingHours',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('week', models.JSONField()),
                ('absences', models.JSONField(blank=True, default=list)),
            ],
            options={
                'verbose_name_plural': 'working hours',
            },
        ),
        migrations.AddField(
            model_name='answerdraft',
            name='question',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='drafts', to='tasks_app.question'),
        ),
        migrations.AddField(
            model_name='answerdraft',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='asked',
            name='by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='asked',
            name='question',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='asked', to='tasks_app.question'),
        ),
        migrations.AddField(
            model_name='asked',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='asked_questions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='calendar',
            name='project',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='on_call_calendar', to='tasks_app.project'),
        ),
        migrations.AddField(
            model_name='calendar',
            name='user',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='absence_calendar', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='membergroup',
            name='members',
            field=models.ManyToManyField(related_name='member_groups', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='membergroup',
            name='project',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='groups', to='tasks_app.project'),
        ),
        migrations.AddField(
            model_name='rung',
            name='question',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rungs', to='tasks_app.question'),
        ),
        migrations.AddField(
            model_name='workinghours',
            name='user',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='working_hours', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='answerdraft',
            constraint=models.UniqueConstraint(fields=('question', 'user'), name='one_draft_per_user'),
        ),
        migrations.AddIndex(
            model_name='asked',
            index=models.Index(condition=models.Q(('ended_at', None)), fields=['user', 'question'], name='asked_of'),
        ),
        migrations.AddIndex(
            model_name='asked',
            index=models.Index(condition=models.Q(('announce_at__isnull', False)), fields=['announce_at'], name='asked_unannounced'),
        ),
        migrations.AddConstraint(
            model_name='asked',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('question', 'user'), name='asked_once_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='calendar',
            constraint=models.CheckConstraint(condition=models.Q(('project', None), ('user', None), _connector='XOR'), name='calendar_of_a_project_or_a_user'),
        ),
        migrations.AddConstraint(
            model_name='membergroup',
            constraint=models.UniqueConstraint(fields=('project', 'name'), name='one_group_per_name'),
        ),
        migrations.AddIndex(
            model_name='rung',
            index=models.Index(condition=models.Q(('done_at', None)), fields=['due'], name='rung_not_done'),
        ),
        migrations.AddConstraint(
            model_name='rung',
            constraint=models.UniqueConstraint(fields=('question', 'position'), name='one_rung_at_a_position'),
        ),
        migrations.AddConstraint(
            model_name='rung',
            constraint=models.CheckConstraint(condition=models.Q(('done_at', None), models.Q(('outcome', ''), _negated=True), _connector='XOR'), name='a_done_rung_has_an_outcome'),
        ),
        ]),
        migrations.RemoveConstraint(
            model_name='notice',
            name='notice_of_one_event',
        ),
        migrations.RemoveConstraint(
            model_name='question',
            name='settled_has_a_time_and_nothing_else_does',
        ),
        migrations.RemoveConstraint(
            model_name='question',
            name='only_questions_are_dismissed',
        ),
        migrations.AddField(
            model_name='delivery',
            name='notice',
            field=models.ForeignKey(blank=True, help_text='What it tells if that is nothing else: that a token was revoked.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tasks_app.notice'),
        ),
        migrations.AddField(
            model_name='publication',
            name='message',
            field=models.TextField(blank=True, db_default='', default='', help_text='Of the one commit; empty: what the task changed.'),
        ),
        migrations.AddField(
            model_name='question',
            name='answered_with',
            field=models.CharField(blank=True, db_default='', default='', help_text='The program through which it was answered, as it calls itself.', max_length=100),
        ),
        migrations.AddField(
            model_name='question',
            name='ended_by_rule',
            field=models.CharField(blank=True, db_default='', default='', help_text='The rung of the ladder that ended it without an answer.', max_length=100),
        ),
        migrations.AddField(
            model_name='question',
            name='routed_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='When it was put to people; see `Asked`. Empty: asked of all, or about to be routed.', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='needed_usd',
            field=models.FloatField(blank=True, editable=False, help_text="What its next request needed of a month's budget, which left less and so ended the run.", null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='rehearsed',
            field=models.BooleanField(blank=True, editable=False, help_text='Whether a script played the model; empty in rows from before this was stored.', null=True),
        ),
        migrations.AddField(
            model_name='sequence',
            name='ask',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='The people and groups whom the questions of all tasks are put to; else each its own.'),
        ),
        migrations.AddField(
            model_name='task',
            name='ask',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='The people and groups whom its questions are put to, by its own choice.'),
        ),
        migrations.AddField(
            model_name='task',
            name='failure_dismissed',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='Somebody said that its failure needs nobody; false again as soon as it moves.'),
        ),
        migrations.AddField(
            model_name='task',
            name='watchers',
            field=models.ManyToManyField(blank=True, help_text='Users who are notified as if it were their task and its questions were asked of them.', related_name='watched_tasks', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='transition',
            name='after_run',
            field=models.PositiveBigIntegerField(blank=True, editable=False, help_text="The task's newest run when the message was written.", null=True),
        ),
        migrations.AddField(
            model_name='transition',
            name='message',
            field=models.TextField(blank=True, db_default='', default='', help_text='What the actor wrote to the agent.'),
        ),
        migrations.AddField(
            model_name='workerbeat',
            name='ip_addresses',
            field=models.JSONField(blank=True, help_text='From where its agents may reach the portal. Older versions do not tell.', null=True),
        ),
        migrations.AddConstraint(
            model_name='question',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['answered', 'dismissed', 'unanswered']), ('answered_at', None), _connector='XOR'), name='settled_has_a_time_and_nothing_else_does'),
        ),
        migrations.AddConstraint(
            model_name='question',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['dismissed', 'unanswered']), _negated=True), ('kind', 'clarification'), _connector='OR'), name='only_questions_are_dismissed'),
        ),
        migrations.AddConstraint(
            model_name='question',
            constraint=models.CheckConstraint(condition=models.Q(('state', 'unanswered'), ('ended_by_rule', ''), _connector='XOR'), name='a_rule_ends_what_is_unanswered'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='asked',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tasks_app.asked'),
        ),
        migrations.AddField(
            model_name='notice',
            name='asked',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='tasks_app.asked'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='rung',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tasks_app.rung'),
        ),
        migrations.AddField(
            model_name='notice',
            name='rung',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='tasks_app.rung'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('rung__isnull', False), ('user__isnull', False)), fields=('rung', 'user'), name='one_message_of_a_rung_per_user'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('rung__isnull', False), ('target__isnull', False)), fields=('rung', 'target'), name='one_message_of_a_rung_per_target'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('browser__isnull', False), ('rung__isnull', False)), fields=('rung', 'browser'), name='one_message_of_a_rung_per_browser'),
        ),
        migrations.AddConstraint(
            model_name='notice',
            constraint=models.UniqueConstraint(fields=('user', 'rung'), name='one_notice_per_rung'),
        ),
        migrations.AddConstraint(
            model_name='notice',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('asked__isnull', True), ('publication__isnull', True), ('reply__isnull', True), ('review__isnull', True), ('rung__isnull', True), ('transition__isnull', False)), models.Q(('asked__isnull', True), ('publication__isnull', True), ('reply__isnull', True), ('review__isnull', False), ('rung__isnull', True), ('transition__isnull', True)), models.Q(('asked__isnull', True), ('publication__isnull', False), ('reply__isnull', True), ('review__isnull', True), ('rung__isnull', True), ('transition__isnull', True)), models.Q(('asked__isnull', True), ('publication__isnull', True), ('reply__isnull', False), ('review__isnull', True), ('rung__isnull', True), ('transition__isnull', True)), models.Q(('asked__isnull', True), ('publication__isnull', True), ('reply__isnull', True), ('review__isnull', True), ('rung__isnull', False), ('transition__isnull', True)), models.Q(('asked__isnull', False), ('publication__isnull', True), ('reply__isnull', True), ('review__isnull', True), ('rung__isnull', True), ('transition__isnull', True)), models.Q(('asked__isnull', True), ('publication__isnull', True), ('reply__isnull', True), ('review__isnull', True), ('rung__isnull', True), ('transition__isnull', True), ('event_type', 'token_seen')), _connector='OR'), name='notice_of_one_event'),
        ),
        # Their choices alone are others.
        MakeTables([
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('asked', 'asked'), ('answered', 'answered'), ('dismissed', 'skipped'), ('unanswered', 'ended without an answer'), ('approved', 'approved'), ('denied', 'denied'), ('plan_approved', 'approved the plan of'), ('plan_sent_back', 'sent back the plan of'), ('answer_taken_back', 'took back the answer to'), ('handed_over', 'handed over'), ('opinion_asked', 'asked for a second opinion on'), ('asking_taken_back', 'took back who was asked about'), ('decision_made', 'made the decision'), ('decision_proposed', 'proposed the decision'), ('decision_confirmed', 'confirmed the decision'), ('decision_kept', 'kept the decision'), ('decision_superseded', 'replaced the decision'), ('decision_changed', 'changed the decision'), ('decision_retired', 'retired the decision'), ('task_created', 'created the task'), ('task_started', 'started the task'), ('task_cancelled', 'cancelled the task'), ('task_went_on', 'resumed the task'), ('task_retried', 'retried the task'), ('task_changed', 'changed the task'), ('task_watched', 'watches the task'), ('task_unwatched', 'no longer watches the task'), ('publish_requested', 'asked to publish the result of'), ('published', 'published the result of'), ('not_published', 'could not publish the result of'), ('pull_request_opened', 'opened a pull request for'), ('pull_request_ended', 'recorded the end of the pull request of'), ('credential_stored', 'stored the credential for publishing of'), ('credential_removed', 'removed the credential for publishing of'), ('reviewed', 'reviewed the task'), ('thread_answered', 'replied in a thread of'), ('thread_resolved', 'resolved a thread of'), ('thread_reopened', 'reopened a thread of'), ('sequence_created', 'created the sequence'), ('sequence_went_on', 'resumed the sequence'), ('project_added', 'added the project'), ('project_removed', 'removed the project'), ('settings_changed', 'changed the settings of'), ('role_given', 'gave a role to'), ('role_taken', 'removed the role of'), ('invited', 'invited'), ('invitation_accepted', 'accepted the invitation of'), ('invitation_withdrawn', 'withdrew the invitation of'), ('logged_in', 'logged in'), ('logged_out', 'logged out'), ('login_failed', 'failed to log in as'), ('account_made', 'created the account'), ('account_changed', 'changed the account of'), ('password_changed', 'changed the password of'), ('second_factor_on', 'switched on the second factor of'), ('second_factor_off', 'switched off the second factor of'), ('token_made', 'created the token'), ('token_revoked', 'revoked the token'), ('token_used', 'used the token'), ('worker_token_made', 'created the token of the worker host'), ('worker_token_revoked', 'revoked the token of the worker host'), ('notifications_changed', 'changed the notifications of'), ('exported', 'exported'), ('downloaded', 'downloaded'), ('fetched', 'fetched the source of'), ('backup_made', 'made the backup'), ('refused', 'was refused'), ('token_refused', 'showed an unusable token:')], max_length=30),
        ),
        migrations.AlterField(
            model_name='auditentry',
            name='via',
            field=models.CharField(blank=True, choices=[('web', 'web'), ('terminal', 'terminal'), ('api', 'API'), ('mcp_form', 'MCP form'), ('mcp', 'MCP'), ('decision', 'decision'), ('rule', 'rule')], max_length=20),
        ),
        migrations.AlterField(
            model_name='delivery',
            name='event_type',
            field=models.CharField(choices=[('question', 'an agent asks'), ('failed', 'a task fails'), ('done', 'a task is done'), ('cancelled', 'a task is cancelled'), ('unanswered', 'a rule ends a question that nobody has answered'), ('reviewed', 'a result is reviewed or discussed'), ('not_published', 'a result cannot be published'), ('token_seen', 'an agent saw one of your API tokens'), ('test', 'a test is sent')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notice',
            name='event_type',
            field=models.CharField(choices=[('question', 'an agent asks'), ('failed', 'a task fails'), ('done', 'a task is done'), ('cancelled', 'a task is cancelled'), ('unanswered', 'a rule ends a question that nobody has answered'), ('reviewed', 'a result is reviewed or discussed'), ('not_published', 'a result cannot be published'), ('token_seen', 'an agent saw one of your API tokens'), ('test', 'a test is sent')], max_length=20),
        ),
        migrations.AlterField(
            model_name='question',
            name='answered_via',
            field=models.CharField(blank=True, choices=[('web', 'web'), ('terminal', 'terminal'), ('api', 'API'), ('mcp_form', 'MCP form'), ('mcp', 'MCP'), ('decision', 'decision'), ('rule', 'rule')], max_length=20),
        ),
        migrations.AlterField(
            model_name='question',
            name='state',
            field=models.CharField(choices=[('open', 'open'), ('answered', 'answered'), ('dismissed', 'dismissed'), ('unanswered', 'ended without an answer'), ('withdrawn', 'withdrawn')], default='open', max_length=20),
        ),
        migrations.AlterField(
            model_name='question',
            name='taken_back_at',
            field=models.DateTimeField(blank=True, help_text='When the answer of a decision or a rule was taken back, after the agent had it.', null=True),
        ),
        migrations.AlterField(
            model_name='review',
            name='via',
            field=models.CharField(blank=True, choices=[('web', 'web'), ('terminal', 'terminal'), ('api', 'API'), ('mcp_form', 'MCP form'), ('mcp', 'MCP'), ('decision', 'decision'), ('rule', 'rule')], max_length=20),
        ),
        migrations.AlterField(
            model_name='run',
            name='outcome',
            field=models.CharField(blank=True, choices=[('finished', 'finished'), ('asked', 'the agent asked and stopped'), ('failed', 'the agent ended with an error'), ('limit', 'a limit stopped it'), ('interrupted', 'it was stopped'), ('crashed', 'its worker or its process was killed'), ('lost', 'its session could not be resumed'), ('undelivered', 'an answer did not reach its model')], max_length=20),
        ),
        migrations.AlterField(
            model_name='run',
            name='reason',
            field=models.CharField(choices=[('first', 'first run'), ('answer', 'resumed with an answer'), ('no_answer', 'resumed without an answer'), ('approval', 'after an approval or denial'), ('approved', 'after an approval'), ('denied', 'after a denial'), ('plan', 'after the plan’s review'), ('set_aside', 'after its calls were set aside'), ('check_failed', 'after a failed check'), ('limit', 'after a limit'), ('crash', 'after an interruption'), ('resumed', 'resumed after it was cancelled'), ('retry', 'tried again'), ('review', 'after a review'), ('unread_question', 'its last message asked something')], max_length=20),
        ),
        migrations.AlterField(
            model_name='task',
            name='early_end',
            field=models.CharField(blank=True, choices=[('asked', 'is to be finished early'), ('ended', 'was finished early'), ('last_step', 'was finished early in its last step'), ('rehearsed', 'was only rehearsed')], db_default='', default='', editable=False, help_text='Whether it is to be finished early, or was; empty: neither.', max_length=10),
        ),
        ]),
    ]
