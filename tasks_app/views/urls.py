"""Addresses of the pages."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from tasks_app.views import (
    dashboard,
    downloads,
    inbox,
    live,
    navigation,
    new_task,
    project,
    questions,
    sequences,
    task,
    task_actions,
    task_diff,
    task_log,
)

urlpatterns = [
    path("", dashboard.dashboard, name="dashboard"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("navigation/", navigation.navigation, name="navigation"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("projects/<int:project_id>/settings/", project.project_settings, name="project_settings"),
    path("live/", live.live, name="live"),
    path("live/questions/", questions.live_questions, name="live_questions"),
    path("live/running/", live.live_running, name="live_running"),
    path("tasks/new/", new_task.task_new, name="task_new"),
    path("tasks/<int:task_id>/", task.task_page, name="task"),
    path("tasks/<int:task_id>/header/", task.task_header, name="task_header"),
    path("tasks/<int:task_id>/timeline/", task.task_timeline, name="task_timeline"),
    path("tasks/<int:task_id>/history/", task.task_history, name="task_history"),
    path("tasks/<int:task_id>/questions/", questions.task_questions, name="task_questions"),
    path("tasks/<int:task_id>/log/", task_log.task_log, name="task_log"),
    path("tasks/<int:task_id>/diff/", task_diff.task_diff, name="task_diff"),
    path("tasks/<int:task_id>/start/", task_actions.task_start, name="task_start"),
    path("tasks/<int:task_id>/cancel/", task_actions.task_cancel, name="task_cancel"),
    path("tasks/<int:task_id>/go-on/", task_actions.task_go_on, name="task_go_on"),
    path("tasks/<int:task_id>/steps/<int:position>/<str:kind>.log", downloads.step_log, name="step_log"),
    path("sequences/<int:sequence_id>/", sequences.sequence_page, name="sequence"),
    path("sequences/<int:sequence_id>/start/", sequences.sequence_start, name="sequence_start"),
    path("sequences/<int:sequence_id>/cancel/", sequences.sequence_cancel, name="sequence_cancel"),
    path("sequences/<int:sequence_id>/go-on/", sequences.sequence_go_on, name="sequence_go_on"),
    path("questions/<int:question_id>/", questions.question, name="question"),
    path("questions/<int:question_id>/answer/", questions.question_answer, name="question_answer"),
]
