"""A worker host in this process: a mirror in a folder, and a portal that serves `/worker/` in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import uvicorn

from tasks_app.asgi_layers.body_limits import Application
from tasks_app.git import Repository
from tasks_app.git.mirror import Mirror, Portal
from tasks_app.models import Project, Task, paths
from tasks_app.services.workers.hosts import make_worker_token
from tasks_app.worker_api.application import WorkerHosts
from tests.cut_connections import CutConnections
from tests.people import acting
from tests.runner import Runner


async def no_page(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"{scope['path']} is not for worker hosts")


@contextmanager
def serving(application: Application | None = None, *, certificate: Path | None = None) -> Iterator[str]:
    """Serve `/worker/`, or an application, in a thread of this process, which has the test's database.

    With a key and a `certificate` for `localhost` in one file: over https.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    application = application or WorkerHosts(no_page)
    config = uvicorn.Config(
        application, lifespan="off", log_level="warning", ws="none", ssl_certfile=certificate
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        port = listener.getsockname()[1]
        yield f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def breaking_line() -> Iterator[CutConnections]:
    """Serve `/worker/` at the end of a line that breaks as the test says."""
    with serving() as url, CutConnections(urlsplit(url).port or 0) as line:
        yield line


@dataclass
class Host:
    """The worker host `build-2`, which holds `task`, and the portal that it uses."""

    url: str
    token: str
    task: Task
    folder: Path

    @property
    def key(self) -> tuple[int, int]:
        return self.task.pk, self.task.lease_epoch

    @property
    def portal(self) -> Portal:
        return Portal(self.url, self.token)

    @property
    def repository(self) -> Repository:
        """The portal's own."""
        return paths.repository(self.task.project)

    @property
    def mirror(self) -> Mirror:
        return Mirror(self.folder / "mirror.git", source=self.url, name="mirror", portal=self.portal)

    def git(self, *arguments: str) -> bytes:
        """Run git on the mirror with this host's token."""
        return self.portal.git(self.mirror).run(*arguments)

    def ask(self, method: str, path: str, **values: Any) -> requests.Response:
        """Send a request for the task with this host's token."""
        url = f"{self.url}/worker/tasks/{self.key[0]}/{self.key[1]}/{path}"
        headers = {"Authorization": f"Bearer {self.token}", **values.pop("headers", {})}
        return requests.request(method, url, headers=headers, timeout=60, **values)

    def change(self, *names: str, on: str) -> str:
        """Add a line to these files of a commit in the mirror, and return the new commit."""
        git = replace(self.mirror.git, variables=(("GIT_INDEX_FILE", str(self.folder / "index")),))
        git.run("read-tree", on)
        for name in names:
            text = git.run("cat-file", "blob", f"{on}:{name}") + b"added = True\n"
            blob = git.run("hash-object", "-w", "--stdin", stdin=text).decode().strip()
            git.run("update-index", "--cacheinfo", f"100644,{blob},{name}")
        tree = git.line("write-tree")
        names_of_author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return git.run(*names_of_author, "commit-tree", "-p", on, "-m", "Change", tree).decode().strip()

    def packed_bytes(self, commit: str) -> int:
        """Return how much git sends of a commit to whoever has its parent."""
        wanted = f"{commit}\n^{commit}^\n".encode()
        return len(self.mirror.git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=wanted))

    def commit(self, text: str, *, message: str = "") -> str:
        """Make a commit in the mirror that the portal does not have."""
        git = self.mirror.git
        blob = git.run("hash-object", "-w", "--stdin", stdin=text.encode()).decode().strip()
        tree = git.run("mktree", stdin=f"100644 blob {blob}\tpaint.txt\n".encode()).decode().strip()
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        words = ("commit-tree", "-p", self.task.base_commit, "-m", message or text[:50], tree)
        return git.run(*names, *words).decode().strip()


def host_at(url: str, runner: Runner, project: Project | None = None) -> Host:
    """Return the host; it holds a new task of the project."""
    task = held(runner.task(project=project), "build-2@there:7:Worker-1")
    token = make_worker_token("build-2", by=acting(runner.user))
    return Host(url, token, task, runner.folder / "there")


def held(task: Task, owner: str) -> Task:
    """Claim it for longer than a test takes on a busy machine: nothing renews the lease."""
    assert Task.objects.claim(task.pk, owner=owner, seconds=3600) is not None
    task.refresh_from_db()
    return task


def snapshot_ref(task: Task, label: str = "1-01-1") -> str:
    return f"refs/cat-herder/{task.branch}/{label}"
