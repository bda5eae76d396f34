"""How agents and checks are run on this machine. Looking changes nothing, and loads no agent."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings

from tasks_app.sandbox import Held, Limits, Sandbox, SandboxMode, delegated_group, detect


@cache
def sandbox() -> Sandbox:
    """The sandbox and its limits; found out once. Raises SandboxUnavailable."""
    found = detect(SandboxMode(settings.ENVIRONMENT.sandbox), hidden=[Path(settings.DATA_DIR)])
    return found.limited(_limits(), cgroup=None)


def holding() -> tuple[Held, ...]:
    """What holds agents and checks to their limits here. Raises SandboxUnavailable."""
    found = sandbox()
    return found.limited(found.limits, cgroup=delegated_group()).holding


def _limits() -> Limits:
    environment = settings.ENVIRONMENT
    return Limits(
        memory=environment.agent_memory,
        processes=environment.agent_processes,
        disk=environment.agent_disk,
        tmp=environment.agent_tmp,
        free_disk=environment.keep_free_disk,
    )
