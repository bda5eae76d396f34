"""What this machine has of the things that tests need, and how to get what it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import psycopg
import redis

from tasks_app.sandbox import Sandbox, SandboxMode, detect

POSTGRES = os.environ.get("CATHERDER_TEST_POSTGRES") or "postgresql://postgres@127.0.0.1:5432/postgres"
REDIS = os.environ.get("CATHERDER_TEST_REDIS") or "redis://127.0.0.1:6379/15"
#: Debian keeps these where only root's PATH leads.
SSHD, NGINX = (
    shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") for name in ("sshd", "nginx")
)
CADDY = shutil.which("caddy")
#: Tests that use the database use PostgreSQL instead of SQLite.
ON_POSTGRES = os.environ.get("CATHERDER_TEST_DATABASE") == "postgres"
#: The part of the suite that is run, `test` or `long` (`rings.py`); empty for all that pytest is given.
RING = os.environ.get("CATHERDER_TEST_RING", "")
#: Set by `.ci/run`: whoever promises to have everything may not skip anything.
STRICT = bool(os.environ.get("CATHERDER_TEST_STRICT"))

# GIT_ because a test run started by a git hook would work in that hook's repository.
_FOREIGN = ("CATHERDER_", "ANTHROPIC_", "CLAUDE", "CAT_HERDER_", "DATABASE_URL", "REDIS_URL", "GIT_", "OTEL_")


def forget_this_machine(environment: MutableMapping[str, str]) -> None:
    """Take away keys that a test could spend and databases that it could write to."""
    for name in list(environment):
        if name.startswith(_FOREIGN) and not name.startswith("CATHERDER_TEST_"):
            del environment[name]


def chromium() -> Path | None:
    """Return the browser. The one without a window of its own comes first: it takes half of the CPU time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = map(shutil.which, names)
    return next((Path(path) for path in found if path), None)


def missing_browser() -> str:
    return "" if chromium() else "Chromium is not installed; on Debian: apt install chromium-headless-shell"


@cache
def _sandbox() -> Sandbox:
    return detect(SandboxMode.AUTO)


def sandbox(*hidden: Path) -> Sandbox:
    """Return the sandbox of this machine, in which these folders are hidden. It is tried out only once.

    For tests with the mark `bubblewrap`.
    """
    assert _sandbox().active, _sandbox().reason
    return replace(_sandbox(), hidden=hidden)


def missing_bubblewrap() -> str:
    return _sandbox().reason


def missing_git_lfs() -> str:
    return "" if shutil.which("git-lfs") else "Git LFS is not installed; on Debian: apt install git-lfs"


def missing_caddy() -> str:
    return "" if CADDY else "Caddy is not installed; on Debian: apt install caddy"


def missing_nginx() -> str:
    return "" if NGINX else "nginx is not installed; on Debian: apt install nginx-light"


def missing_npm() -> str:
    return "" if shutil.which("npm") else "npm is not installed; on Debian: apt install npm"


def missing_sshd() -> str:
    return "" if SSHD and shutil.which("ssh") else "no SSH server; on Debian: apt install openssh-server"


def missing_postgres() -> str:
    try:
        psycopg.connect(POSTGRES, connect_timeout=3).close()
    except psycopg.Error as error:
        return (
            f"no PostgreSQL ({str(error).splitlines()[0]}); on Debian: apt install postgresql, then set "
            "CATHERDER_TEST_POSTGRES to the address of a role that may create databases"
        )
    return ""


def missing_redis() -> str:
    try:
        with redis.Redis.from_url(REDIS, socket_connect_timeout=3) as client:
            client.ping()
    except redis.RedisError as error:
        return f"no Redis ({error}); on Debian: apt install redis-server, or set CATHERDER_TEST_REDIS"
    return ""


def missing_tmux() -> str:
    return "" if shutil.which("tmux") else "tmux is not installed; on Debian: apt install tmux"


def missing_systemd() -> str:
    return "" if shutil.which("systemd-analyze") else "no systemd-analyze; on Debian: apt install systemd"


def missing_disk() -> str:
    """A file system of one's own, in a file, whose power can be cut by copying the file."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    if not shutil.which("mkfs.ext4"):
        return "mkfs.ext4 is not installed; on Debian: apt install e2fsprogs"
    with tempfile.TemporaryDirectory() as name:
        image, folder = Path(name) / "image", Path(name) / "disk"
        folder.mkdir()
        image.touch()
        os.truncate(image, 8 * 1024**2)
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
        done = subprocess.run(
            ["mount", "-o", "loop", str(image), str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"a file system in a file cannot be mounted: {done.stderr.strip()}"
        subprocess.run(["umount", str(folder)], check=True)
    return ""


def missing_hosts() -> str:
    """Hosts in namespaces, see `hosts.py`."""
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if not shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"):
            return f"{program} is not installed; on Debian: apt install {package}"
    if os.geteuid() != 0:
        return "only root may join the network of another process"
    words = "ip link add name bridge type bridge && ip link add name cable type veth peer name eth0"
    done = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", words],
        capture_output=True,
        text=True,
        check=False,
    )
    reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return f"hosts in namespaces are not permitted: {reason}" if done.returncode else ""


#: By marker: why tests with that marker cannot run here; empty if they can. Found out once, when needed.
MISSING: dict[str, Callable[[], str]] = {
    "browser": cache(missing_browser),
    "bubblewrap": cache(missing_bubblewrap),
    "caddy": cache(missing_caddy),
    "disk": cache(missing_disk),
    "git_lfs": cache(missing_git_lfs),
    "hosts": cache(missing_hosts),
    "nginx": cache(missing_nginx),
    "npm": cache(missing_npm),
    "postgres": cache(missing_postgres),
    "redis": cache(missing_redis),
    "sshd": cache(missing_sshd),
    "systemd": cache(missing_systemd),
    "tmux": cache(missing_tmux),
}
