"""Who wants to be told of an occasion, and by which media."""

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
class Listener:
    """Somebody who sees the project. `role` is None for site admins without one."""

    user: User
    preferences: Preferences
    role: str | None
    chose_project: bool

    def wants(self, occasion: str, medium: Medium, task: Task) -> bool:
        mine = task.created_by_id == self.user.pk
        if not self._reaches(mine):
            return False
        extent = self.preferences.extent(occasion, medium)
        return extent == TaskSelection.ALL or (extent == TaskSelection.MINE and mine)

    def _reaches(self, mine: bool) -> bool:
        # Who may only look is told of other people's tasks only after asking for it.
        if self.preferences.pk is None and self.role == Role.VIEWER:
            return mine
        if self.preferences.reach == ProjectSelection.CHOSEN:
            return self.chose_project
        return self.preferences.reach == ProjectSelection.ALL or mine or self.role is not None


def preferences_of(user: User) -> Preferences:
    """What the person chose, or the defaults, which are no row yet."""
    try:
        return user.preferences
    except Preferences.DoesNotExist:
        return Preferences(user=user)


def listeners(task: Task, *, but: int | None) -> list[Listener]:
    """Everybody who sees the task's project, `but` for who did it: nobody is told what they know."""
    role = Membership.objects.filter(user=OuterRef("pk"), project=task.project_id).values("role")
    others = users_who_see(task.project_id).exclude(pk=but or 0)
    people = others.annotate(project_role=Subquery(role))
    chose = Preferences.projects.through.objects.filter(project=task.project_id)
    chosen_by = set(chose.values_list("preferences__user", flat=True))
    return [
        Listener(user, preferences_of(user), user.project_role, user.pk in chosen_by)
        for user in people.select_related("preferences", "chat_target").order_by("pk")
    ]
