"""The sandbox of this machine. Detecting it changes nothing and imports no agent."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings

from tasks_app.sandbox import EnforcedLimit, Limits, Sandbox, SandboxMode, delegated_cgroup, detect


@cache
def sandbox() -> Sandbox:
    """Detect the sandbox with its limits, once per process. Raises SandboxUnavailable."""
    found = detect(SandboxMode(settings.ENVIRONMENT.sandbox), hidden=[Path(settings.DATA_DIR)])
    return found.with_limits(_configured_limits(), cgroup=None)


def enforced_limits() -> tuple[EnforcedLimit, ...]:
    """Return how limits of agents and checks are enforced here. Raises SandboxUnavailable."""
    found = sandbox()
    return found.with_limits(found.limits, cgroup=delegated_cgroup()).enforced_limits


def _configured_limits() -> Limits:
    environment = settings.ENVIRONMENT
    return Limits(
        memory=environment.agent_memory,
        processes=environment.agent_processes,
        disk=environment.agent_disk,
        tmp=environment.agent_tmp,
        free_disk=environment.keep_free_disk,
        cpus=environment.agent_cpus,
    )
