"""Groups of a project's members, who can be asked together."""

from __future__ import annotations

import re
from collections.abc import Collection

from django.db import transaction

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, MemberGroup, Project, User
from tasks_app.permissions import Principal, require_maintainer
from tasks_app.services.projects.members import MANAGE_MEMBERS

#: A name without @ and slashes, so that the last part of a team's name at a forge can be one.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def save_group(project: Project, name: str, usernames: Collection[str], *, by: Principal) -> MemberGroup:
    """Create a group, or give the group of that name these members. Raises NotAllowed or BadInput."""
    require_maintainer(by, project, MANAGE_MEMBERS)
    if not _NAME.fullmatch(name):
        raise BadInput("must be up to 60 letters, digits, dots, dashes and underscores", where="name")
    users = list(User.objects.filter(memberships__project=project, username__in=usernames))
    if unknown := sorted(set(usernames) - {user.username for user in users}):
        raise BadInput(f"{', '.join(unknown)[:200]}: no members of {project}", where="members")
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        group = MemberGroup.objects.filter(project=project, name__iexact=name).first()
        before = _members_in_words(group) if group else ""
        if group is None:
            group = MemberGroup.objects.create(project=project, name=name)
        group.members.set(users)
        _record_change(group, before, _members_in_words(group), by=by)
    return group


def remove_group(group: MemberGroup, *, by: Principal) -> None:
    """Remove a group; its members stay in the project. Raises NotAllowed."""
    require_maintainer(by, group.project, MANAGE_MEMBERS)
    with transaction.atomic():
        _record_change(group, _members_in_words(group), "", by=by)
        group.delete()


def _members_in_words(group: MemberGroup) -> str:
    return ", ".join(group.members.order_by("username").values_list("username", flat=True))


def _record_change(group: MemberGroup, before: str, after: str, *, by: Principal) -> None:
    if before != after:
        changed = {f"group {group.name}": [before, after]}
        record(Action.SETTINGS_CHANGED, by=by.user, project=group.project, changed=changed)
