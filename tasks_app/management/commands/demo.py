"""`cat-herder demo`: a sample portal for looking around."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError

from tasks_app.cli.plain_command import PlainCommand
from tasks_app.core.errors import CatHerderError
from tasks_app.management.demo import PROJECTS, fill
from tasks_app.management.first_start import ensure_admin
from tasks_app.models import Project, User


class Command(PlainCommand):
    help = (
        "Shows a sample portal to look around in: three projects, people, and twenty tasks in every phase. "
        "It needs a data directory of its own: CATHERDER_DATA_DIR=./demo cat-herder demo"
    )

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        if Project.objects.exclude(name__in=PROJECTS).exists():
            raise CommandError(
                "This installation has projects. Give the demo a data directory of its own: "
                "CATHERDER_DATA_DIR=./demo cat-herder demo",
                returncode=2,
            )
        if not Project.objects.exists():
            try:
                admin = ensure_admin()
                fill(User.objects.filter(is_superuser=True).order_by("pk")[0])
            except CatHerderError as error:
                raise CommandError(str(error), returncode=2) from None
            if admin:
                password = f" {admin.password}" if admin.password else "of CATHERDER_ADMIN_PASSWORD"
                self.stdout.write(f"Log in as “{admin.username}” with the password {password}")
        # Without a worker: nothing may take the tasks, which have no workspaces.
        call_command("up", no_sample=True, no_worker=True)
