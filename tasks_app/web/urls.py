"""URLs of the pages."""

from __future__ import annotations

from django.urls import path

from tasks_app.web import (
    app,
    audit,
    frame,
    help,
    installation,
    notifications,
    publishing,
    reviews,
    search,
    sequences,
    usage,
)
from tasks_app.web.accounts import me, working_hours
from tasks_app.web.inbox import inbox
from tasks_app.web.projects import asked, members, projects, settings
from tasks_app.web.questions import answers, asking, decisions
from tasks_app.web.tasks import all_tasks, diff, first_steps, lists, log, new_task, task

#: What shows many projects at once: that of the person who looks.
_everywhere = [
    path("navigation/", frame.navigation, name="navigation"),
    path("workers/", frame.workers, name="workers"),
    path("inbox/", inbox, name="inbox"),
    path("first-steps/", first_steps.first_steps_part, name="first_steps"),
    path("first-steps/dismiss/", first_steps.first_steps_dismiss, name="first_steps_dismiss"),
    path("manifest.webmanifest", app.manifest, name="manifest"),
    path("service-worker.js", app.service_worker, name="service_worker"),
    path("offline/", app.offline, name="offline"),
    path("installation/", installation.workers, name="installation"),
    path("installation/people/", installation.people, name="people"),
    path("installation/settings/", installation.installation_settings, name="installation_settings"),
    path("help/", help.help_index, name="help"),
    path("help/<slug:page>/", help.help_page, name="help_page"),
    path("audit/", audit.audit, name="audit"),
    path("audit/export.csv", audit.audit_export, name="audit_export"),
    path("search/", search.quick_search, name="quick_search"),
    path("usage/", usage.usage, name="usage"),
    path("usage/export.csv", usage.usage_export, name="usage_export"),
    path("usage/questions.csv", usage.usage_questions_export, name="usage_questions_export"),
    path("usage/answer-times.csv", usage.usage_answer_times_export, name="usage_answer_times_export"),
    path("notices/", notifications.notices, name="notices"),
    path("notices/read/", notifications.notices_read, name="notices_read"),
]

#: Addresses of earlier versions, and the way in. They lead to the lists of tasks, with their filters.
_moved = [
    path("", lists.moved, {"to": "tasks"}, name="home"),
    path("live/", lists.moved, {"to": "tasks", "group": "working"}, name="former_live"),
    path("queue/", lists.moved, {"to": "tasks_queue"}, name="former_queue"),
    path("history/", lists.moved, {"to": "tasks_all"}, name="former_history"),
    path("history/export.<str:form>", lists.moved, {"to": "tasks_export"}, name="former_export"),
]

#: What is one's own.
_me = [
    path("me/", me.profile, name="me"),
    path("invitations/<str:token>/", members.invitation, name="invitation"),
    path("me/theme/", me.theme, name="me_theme"),
    path("me/security/", me.security, name="me_security"),
    path("me/security/sessions/end/", me.sessions_end, name="me_sessions_end"),
    path("me/security/sessions/<slug:session>/end/", me.session_end, name="me_session_end"),
    path("me/security/linked/<int:account_id>/unlink/", me.unlink, name="me_unlink"),
    path("me/working-hours/", working_hours.working_hours, name="me_working_hours"),
    path("me/notifications/", notifications.me_notifications, name="me_notifications"),
    path("me/notifications/test/", notifications.me_notifications_test, name="me_notifications_test"),
    path("me/browsers/", app.push_subscribe, name="push_subscribe"),
    path("me/browsers/<int:subscription_id>/remove/", app.push_remove, name="push_remove"),
    path("me/browsers/<int:subscription_id>/test/", app.push_test, name="push_test"),
    path("me/tokens/", me.me_tokens, name="me_tokens"),
    path("me/tokens/<int:token_id>/revoke/", me.me_token_revoke, name="me_token_revoke"),
]

_projects = [
    path("projects/", projects.projects, name="projects"),
    path("projects/<int:project_id>/", projects.project, name="project"),
    path("projects/<int:project_id>/fetch/", projects.project_fetch, name="project_fetch"),
    path("projects/<int:project_id>/settings/", settings.project_settings, name="project_settings"),
    path(
        "projects/<int:project_id>/publishing/",
        publishing.project_publishing,
        name="project_publishing",
    ),
    path(
        "projects/<int:project_id>/publishing/credential/remove/",
        publishing.project_credential_remove,
        name="project_credential_remove",
    ),
    path(
        "projects/<int:project_id>/publishing/webhook/",
        publishing.project_webhook_create,
        name="project_webhook_create",
    ),
    path(
        "projects/<int:project_id>/publishing/webhook/remove/",
        publishing.project_webhook_remove,
        name="project_webhook_remove",
    ),
    path("webhooks/forge/<int:project_id>/", publishing.forge_webhook, name="forge_webhook"),
    path("projects/<int:project_id>/remove/", settings.project_remove, name="project_remove"),
    path("projects/<int:project_id>/decisions/", decisions.decisions, name="decisions"),
    path("projects/<int:project_id>/decisions/new/", decisions.decision_new, name="decision_new"),
    path(
        "projects/<int:project_id>/decisions/import/",
        decisions.decision_import,
        name="decision_import",
    ),
    path(
        "projects/<int:project_id>/decisions/export/",
        decisions.decision_export,
        name="decision_export",
    ),
    path("projects/<int:project_id>/decisions/<int:number>/", decisions.decision, name="decision"),
    path(
        "projects/<int:project_id>/decisions/<int:number>/revise/",
        decisions.decision_revise,
        name="decision_revise",
    ),
    path(
        "projects/<int:project_id>/decisions/<int:number>/confirm/",
        decisions.decision_confirm,
        name="decision_confirm",
    ),
    path(
        "projects/<int:project_id>/decisions/<int:number>/keep/",
        decisions.decision_keep,
        name="decision_keep",
    ),
    path(
        "projects/<int:project_id>/decisions/<int:number>/retire/",
        decisions.decision_retire,
        name="decision_retire",
    ),
    path(
        "projects/<int:project_id>/decisions/<int:number>/restore/",
        decisions.decision_restore,
        name="decision_restore",
    ),
    path(
        "projects/<int:project_id>/decisions/<int:number>/file/",
        decisions.decision_file,
        name="decision_file",
    ),
    path("projects/<int:project_id>/members/", members.project_members, name="project_members"),
    path("projects/<int:project_id>/asked/", asked.project_asked, name="project_asked"),
    path("projects/<int:project_id>/calendar/", asked.project_calendar, name="project_calendar"),
    path("projects/<int:project_id>/groups/", members.project_groups, name="project_groups"),
    path(
        "projects/<int:project_id>/members/<int:member_id>/role/",
        members.member_role,
        name="project_member_role",
    ),
    path(
        "projects/<int:project_id>/members/<int:member_id>/remove/",
        members.member_remove,
        name="project_member_remove",
    ),
    path(
        "projects/<int:project_id>/invitations/<int:invitation_id>/again/",
        members.invitation_again,
        name="invitation_again",
    ),
    path(
        "projects/<int:project_id>/invitations/<int:invitation_id>/withdraw/",
        members.invitation_withdraw,
        name="invitation_withdraw",
    ),
    path(
        "projects/<int:project_id>/notifications/",
        notifications.project_notifications,
        name="project_notifications",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/",
        notifications.target_change,
        name="target_change",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/secret/",
        notifications.target_secret,
        name="target_secret",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/remove/",
        notifications.target_remove,
        name="target_remove",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/test/",
        notifications.target_test,
        name="target_test",
    ),
    path(
        "projects/<int:project_id>/notifications/deliveries/<int:delivery_id>/again/",
        notifications.delivery_retry,
        name="delivery_retry",
    ),
]

_tasks = [
    path("tasks/", lists.now, name="tasks"),
    path("tasks/queue/", lists.queue, name="tasks_queue"),
    path("tasks/all/", all_tasks.all_tasks, name="tasks_all"),
    path("tasks/export.<str:form>", all_tasks.tasks_export, name="tasks_export"),
    path("tasks/bulk/", lists.tasks_bulk, name="tasks_bulk"),
    path("tasks/new/", new_task.task_new, name="task_new"),
    path("tasks/new/project/", new_task.task_new_project, name="task_new_project"),
    path("tasks/new/files/", new_task.task_new_files, name="task_new_files"),
    path("tasks/new/preview/", new_task.task_preview, name="task_preview"),
    path("tasks/<int:task_id>/", task.task_page, name="task"),
    path("tasks/<int:task_id>/header/", task.task_header, name="task_header"),
    path("tasks/<int:task_id>/activity/", task.task_activity, name="task_activity"),
    path("tasks/<int:task_id>/timeline/", task.task_timeline, name="task_timeline"),
    path("tasks/<int:task_id>/result/", task.task_result, name="task_result"),
    path("tasks/<int:task_id>/questions/", task.task_questions, name="task_questions"),
    path("tasks/<int:task_id>/history/", task.task_moved, name="former_task_history"),
    path("tasks/<int:task_id>/details/", task.task_details, name="task_details"),
    path("tasks/<int:task_id>/log/", log.task_log, name="task_log"),
    path("tasks/<int:task_id>/events/<int:event_id>/", log.task_event, name="task_event"),
    path("tasks/<int:task_id>/diff/", diff.task_diff, name="task_diff"),
    path("tasks/<int:task_id>/diff/lines/", diff.diff_lines, name="diff_lines"),
    path("tasks/<int:task_id>/diff/image/", diff.diff_image, name="diff_image"),
    path("tasks/<int:task_id>/diff/threads/", diff.diff_threads, name="diff_threads"),
    path("tasks/<int:task_id>/diff/viewed/", diff.diff_viewed, name="diff_viewed"),
    path("tasks/<int:task_id>/review/", reviews.review_part, name="review_part"),
    path("tasks/<int:task_id>/review/send/", reviews.review_send, name="review_send"),
    path("tasks/<int:task_id>/review/threads/", reviews.thread_add, name="thread_add"),
    path(
        "tasks/<int:task_id>/review/threads/<int:thread_id>/change/",
        reviews.thread_change,
        name="thread_change",
    ),
    path(
        "tasks/<int:task_id>/review/threads/<int:thread_id>/remove/",
        reviews.thread_remove,
        name="thread_remove",
    ),
    path("tasks/<int:task_id>/threads/<int:number>/reply/", reviews.thread_reply, name="thread_reply"),
    path("tasks/<int:task_id>/threads/<int:number>/resolve/", reviews.thread_resolve, name="thread_resolve"),
    path("tasks/<int:task_id>/changes.patch", diff.task_patch, name="task_patch"),
    path("tasks/<int:task_id>/start/", task.task_start, name="task_start"),
    path("tasks/<int:task_id>/cancel/", task.task_cancel, name="task_cancel"),
    path("tasks/<int:task_id>/dismiss/", task.task_dismiss, name="task_dismiss"),
    path("tasks/<int:task_id>/resume/", task.task_resume, name="task_resume"),
    path("tasks/<int:task_id>/publish/", publishing.task_publish, name="task_publish"),
    path("tasks/<int:task_id>/merge/", publishing.task_merge, name="task_merge"),
    path("tasks/<int:task_id>/threshold/", task.task_threshold, name="task_threshold"),
    path("tasks/<int:task_id>/priority/", task.task_priority, name="task_priority"),
    path("tasks/<int:task_id>/watch/", task.task_watch, name="task_watch"),
    path("tasks/<int:task_id>/steps/<int:position>/retry/", task.task_retry, name="task_retry"),
    path("tasks/<int:task_id>/setup.log", diff.setup_log, name="setup_log"),
    path("tasks/<int:task_id>/plan/", task.task_plan, name="task_plan"),
    path("tasks/<int:task_id>/steps/<int:position>/plan.md", diff.step_plan, name="step_plan"),
    path("tasks/<int:task_id>/steps/<int:position>/<str:kind>.log", diff.step_log, name="step_log"),
    path("sequences/<int:sequence_id>/", sequences.sequence_page, name="sequence"),
    path("sequences/<int:sequence_id>/changes.patch", diff.sequence_patch, name="sequence_patch"),
    path("sequences/<int:sequence_id>/start/", sequences.sequence_start, name="sequence_start"),
    path("sequences/<int:sequence_id>/cancel/", sequences.sequence_cancel, name="sequence_cancel"),
    path("sequences/<int:sequence_id>/resume/", sequences.sequence_resume, name="sequence_resume"),
    path("sequences/<int:sequence_id>/publish/", sequences.sequence_publish, name="sequence_publish"),
    path("sequences/<int:sequence_id>/merge/", sequences.sequence_merge, name="sequence_merge"),
]

_questions = [
    path("questions/<int:question_id>/", answers.question, name="question"),
    path("questions/<int:question_id>/claim/", answers.question_claim, name="question_claim"),
    path("questions/<int:question_id>/asked/", asking.question_asking, name="question_asking"),
    path("questions/<int:question_id>/answer/", answers.question_answer, name="question_answer"),
    path("questions/<int:question_id>/dismiss/", answers.question_dismiss, name="question_dismiss"),
    path("questions/<int:question_id>/decide/", answers.question_decide, name="question_decide"),
    path("questions/<int:question_id>/decide/pushed/", app.question_push_decide, name="question_push_decide"),
    path("questions/<int:question_id>/undo/", answers.question_undo, name="question_undo"),
]

urlpatterns = [*_moved, *_everywhere, *_me, *_projects, *_tasks, *_questions]
