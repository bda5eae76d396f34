"""Recipients of notifications, and their preferences."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import OuterRef, Subquery

from tasks_app.models import (
    Medium,
    Membership,
    Preferences,
    ProjectSelection,
    Role,
    Task,
    TaskSelection,
    User,
)
from tasks_app.permissions import users_who_see


@dataclass(frozen=True)
class Recipient:
    """A user who sees the project. `role` is None for site admins without one."""

    user: User
    preferences: Preferences
    role: str | None
    chose_project: bool
    is_concerned: bool = False

    def wants(self, event_type: str, medium: Medium, task: Task) -> bool:
        """Return whether to tell them. A task is theirs if they created it or it concerns them."""
        mine = task.created_by_id == self.user.pk or self.is_concerned
        if not self._includes_project(mine):
            return False
        selected_tasks = self.preferences.selected_tasks(event_type, medium)
        return selected_tasks == TaskSelection.ALL or (selected_tasks == TaskSelection.MINE and mine)

    def _includes_project(self, mine: bool) -> bool:
        # Viewers are not notified of other users' tasks unless they choose so.
        if self.preferences.pk is None and self.role == Role.VIEWER:
            return mine
        if self.preferences.project_selection == ProjectSelection.CHOSEN:
            return self.chose_project
        return self.preferences.project_selection == ProjectSelection.ALL or mine or self.role is not None


def preferences_of(user: User) -> Preferences:
    """Return the user's preferences, or the defaults as an unsaved row."""
    try:
        return user.preferences
    except Preferences.DoesNotExist:
        return Preferences(user=user)


def recipients_of(task: Task, *, except_user: int | None, concerns: int | None = None) -> list[Recipient]:
    """Return all users who see the task's project, except the one who caused the event.

    A task concerns those who reviewed it or wrote in its threads, and the user with the id `concerns`.
    """
    role = Membership.objects.filter(user=OuterRef("pk"), project=task.project_id).values("role")
    others = users_who_see(task.project_id).exclude(pk=except_user or 0)
    users = others.annotate(project_role=Subquery(role))
    choices = Preferences.projects.through.objects.filter(project=task.project_id)
    chosen_by = set(choices.values_list("preferences__user", flat=True))
    wrote = task.threads.sent().values_list("comments__author", flat=True)
    concerned = {*task.reviews.sent().values_list("author", flat=True), *wrote, concerns}
    return [
        Recipient(user, preferences_of(user), user.project_role, user.pk in chosen_by, user.pk in concerned)
        for user in users.select_related("preferences", "chat_target").order_by("pk")
    ]
