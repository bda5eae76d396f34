"""Portals in processes of their own: the web server alone, or everything that `make up` starts."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

from tasks_app.agent.leftover_processes import WORKSPACE_VARIABLE
from tests import forkserver
from tests.databases import copy_migrated, copy_migrated_to_postgres
from tests.forkserver import PATIENCE
from tests.installation import Installation

PASSWORD = "a long enough password"


class WebServer(Installation):
    """An installation that is migrated at once, and its web server without a worker."""

    def __init__(self, data_dir: Path, **variables: str) -> None:
        super().__init__(data_dir, **variables)
        self._server: forkserver.Forked | None = None
        self.address = ""
        database = variables.get("DATABASE_URL", "")
        if database.startswith("postgres"):
            copy_migrated_to_postgres(database)
        elif not database:
            copy_migrated(data_dir)

    def start(self, *options: str) -> Self:
        """Start it, with more options for uvicorn, and wait until it listens."""
        arguments = ["-m", "uvicorn", "catherder_site.asgi:application", "--port", "0", *options]
        reading, writing = os.pipe()
        with Path(os.devnull).open("r+b") as nothing:
            streams = (nothing.fileno(), nothing.fileno(), writing)
            self._server = forkserver.start(arguments, self.env(), streams=streams)
        os.close(writing)
        self._errors = os.fdopen(reading, encoding="utf-8", errors="replace")
        said = []
        for line in self._errors:
            said.append(line)
            if found := re.search(r"running on http://(\S+)", line):
                self.address = found[1]
                return self
        raise AssertionError(f"the server did not start:\n{''.join(said)}")

    @property
    def pid(self) -> int:
        """The process of the server, while it runs."""
        assert self._server
        return self._server.pid

    def kill(self) -> None:
        """Kill it, as a crash does. It can be started again."""
        assert self._server
        self._server.kill()
        self._server.wait()
        self._errors.close()
        self._server = None

    def stop(self) -> str:
        """End it; return what it said since it listened, and "" if there is none."""
        if self._server is None:
            return ""
        self._server.terminate()
        said = self._errors.read()
        self._server.wait()
        self._errors.close()
        self._server = None
        return said


class UpPortal(Installation):
    """The whole portal as its users have it: `cat-herder up`. Start and stop it as often as wanted."""

    def __init__(self, data_dir: Path, **variables: str) -> None:
        own = {
            "CATHERDER_BIND": "127.0.0.1:0",
            "CATHERDER_ADMIN_PASSWORD": PASSWORD,
            "PYTHONUNBUFFERED": "1",
        }
        super().__init__(data_dir, **own, **variables)
        self.process: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        self.url = ""

    @classmethod
    def migrated(cls, data_dir: Path, **variables: str) -> Self:
        """Return a portal that need not migrate at its first start, which takes 3 s of CPU time."""
        copy_migrated(data_dir)
        return cls(data_dir, **variables)

    def env(self, **variables: str) -> dict[str, str]:
        env = super().env(**variables)
        del env["CATHERDER_USER"]  # its only user is the first site admin
        return env

    @property
    def port(self) -> str:
        """The port of the address that it listens on."""
        return self.variables["CATHERDER_BIND"].rpartition(":")[2]

    def start(self, *options: str, open_files: int = 0) -> Self:
        """Start it, if given with at most so many open files for each of its processes."""
        limits = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (open_files, open_files))
        self.said = []
        begin = limits if open_files else None
        self.process = self.popen("up", *options, stdin=subprocess.DEVNULL, begin=begin)
        lines = self._lines()
        for line in lines:
            if "Cat Herder is ready at" in line:  # its public address, which a test may have made up
                self.url = (self.data_dir / "address").read_text().strip()
                # The next start has the same address, as it would behind a fixed CATHERDER_BIND.
                self.variables["CATHERDER_BIND"] = self.url.removeprefix("http://")
                break
        else:
            raise AssertionError("the portal did not start:\n" + "".join(self.said))
        threading.Thread(target=list, args=(lines,), daemon=True).start()
        return self

    def _lines(self) -> Iterator[str]:
        assert self.process and self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            yield line

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
            assert self.process.stdout
            self.process.stdout.close()
            self.process = None

    def new_task(self, text: str, *, started: bool = True) -> int:
        """A task on the sample project, made as the page would make it; its number."""
        return int(
            self.rows(
                "from tasks_app.services.tasks import create_task, start_task\n"
                "from tasks_app.permissions import Principal\n"
                "admin = Principal.unrestricted(User.objects.get(username='admin'))\n"
                f"task = create_task(Project.objects.get(name='sample'), {text!r}, by=admin, where='test')\n"
                f"{'start_task(task, by=admin)' if started else ''}\n"
                "result = task.pk"
            )
        )

    def session(self, username: str) -> str:
        """The cookie of a session that was made on the rows."""
        return str(
            self.rows(
                "from importlib import import_module\n"
                "from django.conf import settings\n"
                "from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY\n"
                f"user = User.objects.get(username={username!r})\n"
                "session = import_module(settings.SESSION_ENGINE).SessionStore()\n"
                "session[SESSION_KEY] = str(user.pk)\n"
                "session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]\n"
                "session[HASH_SESSION_KEY] = user.get_session_auth_hash()\n"
                "session.create()\nresult = session.session_key"
            )
        )

    def agents(self) -> list[int]:
        """Processes of agents at work for this portal, wherever they descend from."""
        mark = f"{WORKSPACE_VARIABLE}={self.data_dir}".encode()
        running = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in running if mark in _environment(pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
