"""Whether the worker of this process can work (M6). One that cannot takes nothing and fails no task."""

from __future__ import annotations

import os
import shutil

from django.conf import settings
from django.db import Error as DatabaseFault

from tasks_app.agent.claude import bundled_cli
from tasks_app.models import paths
from tasks_app.operations.health import applied_migrations, needed_migrations
from tasks_app.sandbox.limits import format_size


def worker_problem() -> str:
    """Return in a sentence why it cannot work, or "". One query."""
    return _program_problem() or _disk_problem() or _schema_problem()


def _program_problem() -> str:
    program = bundled_cli()
    if os.access(program, os.X_OK):
        return ""
    return f"The agent's program {program} is missing or cannot be run; install the portal again."


def _disk_problem() -> str:
    folder = paths.data_dir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return f"The data directory {folder} cannot be read: {error.strerror}."
    if not os.access(folder, os.W_OK):
        return f"The data directory {folder} cannot be written."
    if free < settings.ENVIRONMENT.keep_free_disk:
        kept = format_size(settings.ENVIRONMENT.keep_free_disk)
        return f"Only {format_size(free)} is free in {folder}, less than CATHERDER_KEEP_FREE_DISK ({kept})."
    return ""


def _schema_problem() -> str:
    try:
        applied = applied_migrations()
    except DatabaseFault:
        return ""  # then nothing can be taken, and every thread says so
    if applied - needed_migrations():
        return "The database was prepared by a newer version of the portal; update this worker."
    if needed_migrations() - applied:
        return "The database is not prepared for this version; start the portal, or run `manage.py migrate`."
    return ""
