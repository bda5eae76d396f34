"""URLs of the pages."""

from __future__ import annotations

from django.urls import path

from tasks_app.web.pages import (
    answers,
    dashboard,
    downloads,
    first_steps,
    history,
    inbox,
    invitations,
    live,
    me,
    me_notifications,
    members,
    navigation,
    new_task,
    notices,
    project,
    project_notifications,
    project_publishing,
    project_settings,
    projects,
    questions,
    quick_search,
    results,
    reviews,
    sequences,
    task,
    task_actions,
    task_diff,
    task_log,
    task_publishing,
    tokens,
    usage,
)

#: What shows many projects at once: that of the person who looks.
_everywhere = [
    path("", dashboard.dashboard, name="dashboard"),
    path("navigation/", navigation.navigation, name="navigation"),
    path("workers/", navigation.workers, name="workers"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("first-steps/", first_steps.first_steps_part, name="first_steps"),
    path("first-steps/dismiss/", first_steps.first_steps_dismiss, name="first_steps_dismiss"),
    path("search/", quick_search.quick_search, name="quick_search"),
    path("history/", history.history, name="history"),
    path("history/export.<str:form>", history.history_export, name="history_export"),
    path("usage/", usage.usage, name="usage"),
    path("usage/export.csv", usage.usage_export, name="usage_export"),
    path("notices/", notices.notices, name="notices"),
    path("notices/read/", notices.notices_read, name="notices_read"),
    path("live/", live.live, name="live"),
    path("live/running/", live.live_running, name="live_running"),
]

#: What is one's own.
_me = [
    path("me/", me.profile, name="me"),
    path("invitations/<str:token>/", invitations.invitation, name="invitation"),
    path("me/theme/", me.theme, name="me_theme"),
    path("me/security/", me.security, name="me_security"),
    path("me/security/sessions/end/", me.sessions_end, name="me_sessions_end"),
    path("me/security/sessions/<slug:session>/end/", me.session_end, name="me_session_end"),
    path("me/security/linked/<int:account_id>/unlink/", me.unlink, name="me_unlink"),
    path("me/notifications/", me_notifications.me_notifications, name="me_notifications"),
    path("me/notifications/test/", me_notifications.me_notifications_test, name="me_notifications_test"),
    path("me/tokens/", tokens.me_tokens, name="me_tokens"),
    path("me/tokens/<int:token_id>/revoke/", tokens.me_token_revoke, name="me_token_revoke"),
]

_projects = [
    path("projects/", projects.projects, name="projects"),
    path("projects/<int:project_id>/", project.project, name="project"),
    path("projects/<int:project_id>/fetch/", project.project_fetch, name="project_fetch"),
    path("projects/<int:project_id>/settings/", project_settings.project_settings, name="project_settings"),
    path(
        "projects/<int:project_id>/publishing/",
        project_publishing.project_publishing,
        name="project_publishing",
    ),
    path(
        "projects/<int:project_id>/publishing/credential/remove/",
        project_publishing.project_credential_remove,
        name="project_credential_remove",
    ),
    path("projects/<int:project_id>/remove/", project_settings.project_remove, name="project_remove"),
    path("projects/<int:project_id>/members/", members.project_members, name="project_members"),
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
        project_notifications.project_notifications,
        name="project_notifications",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/",
        project_notifications.target_change,
        name="target_change",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/secret/",
        project_notifications.target_secret,
        name="target_secret",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/remove/",
        project_notifications.target_remove,
        name="target_remove",
    ),
    path(
        "projects/<int:project_id>/notifications/<int:target_id>/test/",
        project_notifications.target_test,
        name="target_test",
    ),
    path(
        "projects/<int:project_id>/notifications/deliveries/<int:delivery_id>/again/",
        project_notifications.delivery_retry,
        name="delivery_retry",
    ),
]

_tasks = [
    path("tasks/new/", new_task.task_new, name="task_new"),
    path("tasks/new/project/", new_task.task_new_project, name="task_new_project"),
    path("tasks/new/files/", new_task.task_new_files, name="task_new_files"),
    path("tasks/bulk/", dashboard.tasks_bulk, name="tasks_bulk"),
    path("tasks/new/preview/", new_task.task_preview, name="task_preview"),
    path("tasks/<int:task_id>/", task.task_page, name="task"),
    path("tasks/<int:task_id>/header/", task.task_header, name="task_header"),
    path("tasks/<int:task_id>/activity/", task.task_activity, name="task_activity"),
    path("tasks/<int:task_id>/timeline/", task.task_timeline, name="task_timeline"),
    path("tasks/<int:task_id>/result/", results.task_result, name="task_result"),
    path("tasks/<int:task_id>/history/", task.task_history, name="task_history"),
    path("tasks/<int:task_id>/questions/", questions.task_questions, name="task_questions"),
    path("tasks/<int:task_id>/log/", task_log.task_log, name="task_log"),
    path("tasks/<int:task_id>/events/<int:event_id>/", task_log.task_event, name="task_event"),
    path("tasks/<int:task_id>/diff/", task_diff.task_diff, name="task_diff"),
    path("tasks/<int:task_id>/diff/lines/", task_diff.diff_lines, name="diff_lines"),
    path("tasks/<int:task_id>/diff/image/", task_diff.diff_image, name="diff_image"),
    path("tasks/<int:task_id>/diff/threads/", task_diff.diff_threads, name="diff_threads"),
    path("tasks/<int:task_id>/diff/viewed/", task_diff.diff_viewed, name="diff_viewed"),
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
    path("tasks/<int:task_id>/changes.patch", downloads.task_patch, name="task_patch"),
    path("tasks/<int:task_id>/start/", task_actions.task_start, name="task_start"),
    path("tasks/<int:task_id>/cancel/", task_actions.task_cancel, name="task_cancel"),
    path("tasks/<int:task_id>/go-on/", task_actions.task_go_on, name="task_go_on"),
    path("tasks/<int:task_id>/publish/", task_publishing.task_publish, name="task_publish"),
    path("tasks/<int:task_id>/threshold/", task_actions.task_threshold, name="task_threshold"),
    path("tasks/<int:task_id>/steps/<int:position>/retry/", task_actions.task_retry, name="task_retry"),
    path("tasks/<int:task_id>/plan/", task.task_plan, name="task_plan"),
    path("tasks/<int:task_id>/steps/<int:position>/plan.md", downloads.step_plan, name="step_plan"),
    path("tasks/<int:task_id>/steps/<int:position>/<str:kind>.log", downloads.step_log, name="step_log"),
    path("sequences/<int:sequence_id>/", sequences.sequence_page, name="sequence"),
    path("sequences/<int:sequence_id>/questions/", sequences.sequence_questions, name="sequence_questions"),
    path("sequences/<int:sequence_id>/changes.patch", downloads.sequence_patch, name="sequence_patch"),
    path("sequences/<int:sequence_id>/start/", sequences.sequence_start, name="sequence_start"),
    path("sequences/<int:sequence_id>/cancel/", sequences.sequence_cancel, name="sequence_cancel"),
    path("sequences/<int:sequence_id>/go-on/", sequences.sequence_go_on, name="sequence_go_on"),
]

_questions = [
    path("questions/<int:question_id>/", questions.question, name="question"),
    path("questions/<int:question_id>/claim/", questions.question_claim, name="question_claim"),
    path("questions/<int:question_id>/answer/", answers.question_answer, name="question_answer"),
    path("questions/<int:question_id>/dismiss/", answers.question_dismiss, name="question_dismiss"),
    path("questions/<int:question_id>/decide/", answers.question_decide, name="question_decide"),
    path("questions/<int:question_id>/undo/", answers.question_undo, name="question_undo"),
]

urlpatterns = [*_everywhere, *_me, *_projects, *_tasks, *_questions]
