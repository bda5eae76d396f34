"""What a new installation needs before anybody can log in."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from tasks_app.core.errors import BadInput
from tasks_app.models import Project, User
from tasks_app.permissions import Principal
from tasks_app.rehearsal.sample import SAMPLE_TASK_FILE, create_sample_repository
from tasks_app.services.projects import add_project
from tasks_app.services.tasks import create_task

SAMPLE_NAME = "sample"


@dataclass(frozen=True)
class NewAdmin:
    """The first admin, just made. `password` is known only if it was made up here."""

    username: str
    password: str | None


def ensure_admin() -> NewAdmin | None:
    """Make the first site admin; None if there is one. An existing password is never changed.

    Raises BadInput if the password that was given would not be taken from anybody else.
    """
    if User.objects.filter(is_superuser=True).exists():
        return None
    environment = settings.ENVIRONMENT
    if environment.admin_password:
        _require_good(environment.admin_password, User(username=environment.admin_user))
    made_up = None if environment.admin_password else secrets.token_urlsafe(12)
    User.objects.update_or_create(
        username=environment.admin_user,
        defaults={
            "password": make_password(environment.admin_password or made_up),
            "is_superuser": True,
            "is_staff": True,
            "is_active": True,
        },
    )
    return NewAdmin(environment.admin_user, made_up)


def _require_good(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise BadInput(" ".join(error.messages), where="CATHERDER_ADMIN_PASSWORD") from None


def ensure_sample() -> Project | None:
    """The sample project with its task, not started; None if any project was ever there."""
    if Project.objects.exists():
        return None
    admin = User.objects.filter(is_superuser=True).order_by("pk")[0]
    source = Path(settings.DATA_DIR) / "sample"
    create_sample_repository(source)
    project = add_project(SAMPLE_NAME, str(source), by=admin, is_sample=True)
    text = (source / SAMPLE_TASK_FILE).read_text(encoding="utf-8")
    principal = Principal.unrestricted(admin)
    create_task(project, text, by=principal, where=SAMPLE_TASK_FILE, slug=Path(SAMPLE_TASK_FILE).stem)
    return project
