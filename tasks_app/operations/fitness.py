"""Check whether the worker of this process can work (M6). Otherwise it takes no tasks, and fails none."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseFault
from huey.contrib.djhuey import HUEY

from tasks_app.agent.launch import bundled_cli
from tasks_app.core.errors import SandboxUnavailable, TemporaryFault
from tasks_app.models import Installation, paths
from tasks_app.operations import local_sandbox
from tasks_app.operations.health import (
    IS_SNAPSHOT,
    LEAVE_SNAPSHOT,
    SNAPSHOT,
    applied_migrations,
    needed_migrations,
)
from tasks_app.sandbox import Placement, SandboxMode
from tasks_app.sandbox.limits import format_size
from tasks_app.services.workers.hosts import follow_portal

logger = logging.getLogger(__name__)

#: On a worker host: whether the portal uses Redis. None: it has not said so; an earlier version does not.
_portal_uses_redis: bool | None = None
#: The difference that the log of this worker has already.
_logged_difference = ""


def worker_problem() -> str:
    """Return in a sentence why it cannot work, or "". One query; on a worker host two, and a request.

    What makes a worker host slower, but keeps nothing from it, is logged once.
    """
    found = _program_problem() or _disk_problem() or _schema_problem() or portal_problem()
    _log_difference()
    return found


def redis_difference() -> str:
    """Return what is slower because only one of this worker host and its portal uses Redis, or "".

    As of the last look at the portal. Nothing is lost: jobs and notices are hints, the sweeper of each worker
    finds due tasks every 10 s, and web processes look for changes every 2 s.
    """
    uses_redis = settings.ENVIRONMENT.redis_url is not None
    if _portal_uses_redis in (None, uses_redis):
        return ""
    if uses_redis:
        return (
            "This host has a REDIS_URL, but the portal uses no Redis: this host finds tasks up to 10 seconds "
            "later. Set REDIS_URL on the portal's host, too."
        )
    return (
        "The portal uses Redis, but this host has no REDIS_URL: it finds tasks up to 10 seconds later, and "
        "open pages show up to 2 seconds later what it does. Set the portal's REDIS_URL on this host."
    )


def _log_difference() -> None:
    global _logged_difference
    former, _logged_difference = _logged_difference, redis_difference()
    if _logged_difference and _logged_difference != former:
        logger.warning("%s", _logged_difference)


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
    if SNAPSHOT in applied:
        return f"{IS_SNAPSHOT} {LEAVE_SNAPSHOT}"
    if applied - needed_migrations():
        return "The database was prepared by a newer version of the portal; update this worker."
    if needed_migrations() - applied:
        return "The database is not prepared for this version; start the portal."
    return ""


def portal_problem() -> str:
    """Return why this worker host and its portal do not go together, or ""; "" on the portal's host.

    Once they do, this process uses the portal's key for the queue and keeps to the portal's limits, and its
    sandboxes show the data directory under the path that it has on the portal's host.
    """
    global _portal_uses_redis
    portal = paths.portal_of_worker_host()
    if portal is None:
        return ""
    try:
        told = portal.hello()
    except TemporaryFault as error:
        return f"{error}."
    if problem := _mismatch(told):
        return problem
    follow_portal(told)
    _portal_uses_redis = told.get("redis")
    HUEY.serializer = type(HUEY.serializer)(secret=told["queue_secret"])
    return ""


def _mismatch(told: Mapping[str, Any]) -> str:
    environment = settings.ENVIRONMENT
    if _is_of_other_database(told):
        return (
            f"The portal at {environment.address} uses another database than DATABASE_URL of this host: they "
            "are two installations."
        )
    if told["rehearsal"] != environment.rehearsal:
        if environment.rehearsal:
            return "The portal uses a real model, but this host has no ANTHROPIC_API_KEY."
        return "The portal is in rehearsal, but this host has a key of a real model."
    if set(told["git_filters"]) != {name for name, _ in environment.git_filters}:
        names = ", ".join(told["git_filters"]) or "none"
        return (
            f"CATHERDER_GIT_FILTERS must have the same Git filters as on the portal's host ({names}): what "
            "is recorded would depend on the host otherwise."
        )
    return _sandbox_problem(told) or _placement_problem(Path(told["data_dir"]))


def _is_of_other_database(told: Mapping[str, Any]) -> bool:
    """Return whether the portal uses another database than this host. An earlier version does not say."""
    try:
        own = Installation.objects.first()
    except DatabaseFault:
        return False  # then nothing can be taken, and every thread says so
    return own is not None and told.get("installation") not in (None, str(own))


def _sandbox_problem(told: Mapping[str, Any]) -> str:
    """Return why agents would run without the sandbox that the portal requires, or "".

    An older portal does not say whether it requires one: then CATHERDER_SANDBOX of this host decides.
    """
    if told.get("sandbox") != SandboxMode.REQUIRE:
        return ""
    try:
        reason = local_sandbox.sandbox().reason
    except SandboxUnavailable as error:
        reason = str(error)
    if not reason:
        return ""
    return f"The portal has CATHERDER_SANDBOX=require, but this host has no sandbox: {reason}"


def _placement_problem(portals: Path) -> str:
    """Let sandboxes show the data directory at the portal's path. Return why that is impossible, or ""."""
    own, known = paths.data_dir(), paths.placement()
    if known.shown_at == portals:
        return ""
    if known.shown_at is not None:
        return f"The portal's data directory was moved to {portals}; restart this worker."
    problem = ""
    if portals != own:
        problem = _showing_problem(Placement(own, portals))
    if problem:
        return (
            f"Agents find their sessions by the path of their workspace, and what is in {own} here is in "
            f"{portals} on the portal's host. {problem} Or set CATHERDER_DATA_DIR to that path."
        )
    paths.place_at(portals)
    return ""


def _showing_problem(placement: Placement) -> str:
    """Return why no sandbox here can show the folder elsewhere, and what to do, or ""."""
    try:
        sandbox = local_sandbox.sandbox().placed(placement)
    except SandboxUnavailable as error:
        return f"Only a sandbox can show it there. {error}"
    shown_at = placement.shown_at
    if shown_at is not None and shown_at.resolve() != shown_at:
        return f"Here {shown_at} is a link, or below one: it leads to {shown_at.resolve()}. Remove the link."
    if problem := sandbox.problem_in(paths.data_dir()):
        return f"The sandbox cannot show it there ({problem}). Create an empty folder {shown_at} here."
    return ""
