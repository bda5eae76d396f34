"""Create the first admin and the sample project of a new installation."""

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
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task

SAMPLE_NAME = "sample"


@dataclass(frozen=True)
class NewAdmin:
    """The first admin. `password` is set only if it was generated."""

    username: str
    password: str | None


def ensure_admin() -> NewAdmin | None:
    """Create the first site admin, or return None if there is one. Raises BadInput on a weak password."""
    if User.objects.filter(is_superuser=True).exists():
        return None
    environment = settings.ENVIRONMENT
    if environment.admin_password:
        _validate_password(environment.admin_password, User(username=environment.admin_user))
    generated = None if environment.admin_password else secrets.token_urlsafe(12)
    User.objects.update_or_create(
        username=environment.admin_user,
        defaults={
            "password": make_password(environment.admin_password or generated),
            "is_superuser": True,
            "is_staff": True,
            "is_active": True,
        },
    )
    return NewAdmin(environment.admin_user, generated)


def _validate_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise BadInput(" ".join(error.messages), where="CATHERDER_ADMIN_PASSWORD") from None


def ensure_sample() -> Project | None:
    """Create the sample project with its task, not started, or return None if there are projects."""
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
