"""Checks of the machine: programs, the sandbox, limits, memory."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from tasks_app.agent.launch import bundled_cli
from tasks_app.core.errors import SandboxUnavailable
from tasks_app.core.files import temporary_folder
from tasks_app.engine.workers.machine import toolchains_of_machine
from tasks_app.operations import local_sandbox
from tasks_app.operations.doctor import Finding, ok, problem, warning
from tasks_app.sandbox import TEMPORARY_FILES, Sandbox, run

#: The first version with `git repack --geometric`, which joins the packs of many recordings.
OLDEST_GIT = (2, 32)
#: The first version with `git merge-tree --write-tree`, by which a result is updated before it is published.
UPDATING_GIT = (2, 38)
#: Open files that a web server with many browsers needs.
OPEN_FILES = 4096
#: Bytes of memory of an agent, without the programs that it starts.
AGENT_BYTES = 300 * 1024**2
_TIMEOUT_SECONDS = 30.0
_DELEGATE = (
    "The kernel holds memory, processes and CPU at once where the portal has a cgroup to divide: "
    "Delegate=yes in its systemd unit, or systemd-run --user --scope -p Delegate=yes cat-herder up"
)
_INSTALL_NEWER = "Install bubblewrap 0.7 or newer, which can bound them."


def python() -> Iterator[Finding]:
    """Show the version; the portal does not start with an unsupported one."""
    yield ok("Python", f"{sys.version.split()[0]}, {sys.executable}")


def git() -> Iterator[Finding]:
    program = shutil.which("git")
    if program is None:
        yield problem("git", "it is not installed", "Debian and Ubuntu: apt install git")
        return
    output = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
    )
    yield _git_finding(output.stdout.strip())


def _git_finding(version: str) -> Finding:
    found = re.search(r"(\d+)\.(\d+)[.\d]*", version)
    if found is None:
        return ok("git", version)
    number = (int(found[1]), int(found[2]))
    if number < OLDEST_GIT:
        return problem("git", f"{found[0]} is too old", f"Install git {_dotted(OLDEST_GIT)} or newer.")
    if number < UPDATING_GIT:
        advice = f"Install git {_dotted(UPDATING_GIT)} or newer to update results before they are published."
        return warning("git", f"{found[0]} cannot update a result", advice)
    return ok("git", found[0])


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def sandbox() -> Iterator[Finding]:
    try:
        sandbox = local_sandbox.sandbox()
    except SandboxUnavailable as error:
        yield problem("sandbox", str(error), "Install bubblewrap: apt install bubblewrap")
        return
    if sandbox.active:
        yield ok("sandbox", "bubblewrap starts; agents see the system's programs and their workspace")
    else:
        yield warning(
            "sandbox",
            f"none: {sandbox.reason} Agents can do whatever this user can.",
            "Install bubblewrap, and set CATHERDER_SANDBOX=require so that nothing starts without it.",
        )


def network() -> Iterator[Finding]:
    """Check whether steps can be run without the network."""
    sandbox = _sandbox_or_none()
    most = settings.ENVIRONMENT.network
    if sandbox.keeps_network_out:
        yield ok("network", f"it can be kept from steps; the most that any may reach: {most}")
        return
    text = f"it cannot be kept from steps: {sandbox.reason or sandbox.network_reason}"
    if most == "full":
        yield warning("network", text, "Steps with “network: model” or “none” do not run here until then.")
    else:
        yield problem("network", text, f"CATHERDER_NETWORK={most} demands it, so no step runs here.")


def limits() -> Iterator[Finding]:
    """Check how limits are enforced from this terminal; a service may have a cgroup."""
    try:
        held = local_sandbox.enforced_limits()
    except SandboxUnavailable:
        held = Sandbox(None).enforced_limits
    shown = []
    for row in held:
        by = f" ({row.by})" if row.by else ""
        shown.append(f"{row.name} {row.value}{by}")
    by_kernel = any(row.by == "cgroup" for row in held)
    yield ok("limits", "; ".join(shown), "" if by_kernel else _DELEGATE)
    for row in held:
        if not row.by and row.is_set:
            advice = _INSTALL_NEWER if row.name == TEMPORARY_FILES else _DELEGATE
            yield warning("limits", f"nothing holds agents to {row.value} of {row.name.lower()}", advice)


def agent() -> Iterator[Finding]:
    """Check that the agent program starts in the sandbox."""
    program = bundled_cli()
    if not program.exists():
        yield problem("agent program", f"there is none at {program}", "Install it again: make clean, make up")
        return
    sandbox = _sandbox_or_none().without_free_disk_limit()
    with temporary_folder("cat-herder-doctor-") as here:
        command = sandbox.command(
            [str(program), "--version"], workspace=here, home=here, env={}, readable=[program]
        )
        done = run(command, timeout=_TIMEOUT_SECONDS, output_limit=500)
    if done.exit_code == 0:
        yield ok("agent program", f"{done.output.strip()} starts")
    else:
        reason = done.output.strip() or f"exit {done.exit_code}"
        if done.timed_out:
            reason = "it did not end in time"
        yield problem("agent program", f"{program} does not start: {reason}", "make clean, then make up")


def _sandbox_or_none() -> Sandbox:
    try:
        return local_sandbox.sandbox()
    except SandboxUnavailable:
        return Sandbox(None)


def toolchains() -> Iterator[Finding]:
    """Show which toolchains projects may ask for."""
    known = toolchains_of_machine()
    there = [name for name, why in known.items() if not why]
    yield ok("toolchains", f"projects may ask for: {', '.join(there) or 'none was found'}")
    for name, _ in settings.ENVIRONMENT.toolchains:
        if known[name]:
            yield warning("toolchains", f"{name}: {known[name]}", "Correct CATHERDER_TOOLCHAINS.")


def open_files() -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the portal raises its soft limit itself
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        yield warning(
            "open files",
            f"a process may have {hard} at most; each open browser takes some",
            f"Raise the limit to {OPEN_FILES} or more: LimitNOFILE= of systemd, ulimit -Hn, or "
            "/etc/security/limits.conf",
        )
    else:
        yield ok("open files", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")


def memory() -> Iterator[Finding]:
    found = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    workers = settings.ENVIRONMENT.workers
    shown = f"{total / 1e9:.1f} GB, {os.cpu_count()} processors for {workers} agents at the same time"
    if total and total < workers * AGENT_BYTES * 2:
        yield warning("memory", shown, "Set CATHERDER_WORKERS to fewer, or give the machine more.")
    else:
        yield ok("memory", shown)


CHECKS = (python, git, sandbox, network, limits, agent, toolchains, open_files, memory)
