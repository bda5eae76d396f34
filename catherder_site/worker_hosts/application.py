"""`/worker/`: what workers on hosts of their own use the portal for (M1), handled before Django.

Each request shows the token of its host. A task's repository is reached by the task's id and the epoch of its
lease, and only while a worker of that host holds it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection

from catherder_site.asgi_layers.bearer_token import bearer_token
from catherder_site.asgi_layers.body_limits import Application, Message, Receive, Send
from catherder_site.asgi_layers.plain_text import answer
from catherder_site.worker_hosts import lfs_service, transfers, upload_service
from catherder_site.worker_hosts.background import Background
from catherder_site.worker_hosts.git_service import (
    MOST_PROCESSES,
    RECEIVE,
    UPLOAD,
    ClientGone,
    GitService,
    RequestRefused,
    body_pieces,
)
from catherder_site.worker_hosts.slow_threads import Busy, SlowThreads
from tasks_app.core.environment import queue_secret
from tasks_app.core.errors import BadInput, LeaseLost, WorkspaceError
from tasks_app.models import Installation, WorkerToken
from tasks_app.services.workers.hosts import (
    HeldTask,
    ensure_base_ref,
    held_task,
    remove_all_old_transfers,
    set_task_refs,
    worker_token_of,
)

PREFIX = "/worker/"
_TASK = re.compile(
    r"tasks/([1-9]\d{0,17})/([1-9]\d{0,8})"
    r"(|/refs|/repository\.git/(?:info/refs|git-[a-z-]+)|/bundles(?:/[0-9a-f]{64})?|/uploads/(?:[0-9a-f]{40}|[0-9a-f]{64})|/contents"
    r"|/repository\.git/info/lfs/objects/(?:batch|[0-9a-f]{64}))"
)
_JSON_BYTES = 10_000
#: Sources from which contents of Git LFS are fetched at the same time, for up to half an hour each.
MOST_FETCHES = 2
#: Threads that check uploads, as many that answer orders of bundles, and as many that set references.
MOST_SLOW = 3
#: How much work may wait for one of these threads.
MOST_WAITING = 32
_REMOVE_OLD_SECONDS = 3600.0
_NOT_FOUND = b"There is nothing here.\n"
_NEEDS_TOKEN = b"This needs the token of a worker host, as in Authorization: Bearer TOKEN.\n"

T = TypeVar("T")


class WorkerHosts:
    """Serves what is below `/worker/`, and passes on all else."""

    def __init__(self, application: Application) -> None:
        self._application = application
        # One for each token, by its primary key: a host whose clients are slow must not keep out the others.
        self._processes: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_PROCESSES)
        )
        self._background = Background()
        # Sources may be slow. They must not delay what is quick, and nothing here the check of a token.
        # Checks of uploads must not delay orders of bundles, with which tasks begin.
        self._fetches = SlowThreads(most=MOST_FETCHES, waiting=MOST_WAITING)
        self._uploads = SlowThreads(most=MOST_SLOW, waiting=MOST_WAITING)
        self._orders = SlowThreads(most=MOST_SLOW, waiting=MOST_WAITING)
        self._references = SlowThreads(most=MOST_SLOW, waiting=MOST_WAITING)
        self._contents = lfs_service.ContentFetches(self._background, self._fetches)
        self._bundles = transfers.Bundles(self._background, self._orders)
        self._finished_uploads = upload_service.FinishedUploads(
            self._background, self._uploads, self._processes
        )
        self._old_removed_at = -_REMOVE_OLD_SECONDS

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope.get("path", "").startswith(PREFIX):
            await self._application(scope, receive, send)
            return
        token = bearer_token(scope).decode("ascii", "replace")
        worker = await _in_a_thread(lambda: worker_token_of(token))
        if worker is None:
            await answer(scope, send, 401, _NEEDS_TOKEN, {b"www-authenticate": b"Bearer"})
            return
        try:
            await self._serve(worker, scope, receive, send)
        except LeaseLost as lost:
            await answer(scope, send, 403, f"{lost}\n".encode())
        except BadInput as error:
            await answer(scope, send, 400, f"{error}\n".encode())
        except RequestRefused as error:
            await answer(scope, send, error.status, f"{error}\n".encode(), dict(error.headers))
        except WorkspaceError as error:
            await answer(scope, send, 500, f"{error}\n".encode())
        except OSError as error:
            await answer(scope, send, 500, f"A file cannot be read or written: {error.strerror}.\n".encode())
        except ClientGone:
            pass

    async def _serve(self, worker: WorkerToken, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"].removeprefix(PREFIX), scope["method"]
        if (method, path) == ("GET", "hello"):
            described = await _in_a_thread(portal_description)
            await answer(scope, send, 200, json.dumps(described).encode())
            await self._remove_old_transfers()
            return
        found = _TASK.fullmatch(path)
        if found is None:
            await answer(scope, send, 404, _NOT_FOUND)
            return
        task_id, epoch = int(found[1]), int(found[2])
        held = await _in_a_thread(lambda: held_task(worker, task_id, epoch))
        await self._serve_task(held, found[3], scope, receive, send)

    async def _serve_task(
        self, held: HeldTask, rest: str, scope: Message, receive: Receive, send: Send
    ) -> None:
        method = scope["method"]
        if (method, rest) == ("GET", ""):
            await answer(scope, send, 200, b"held\n")
        elif (method, rest) == ("POST", "/refs"):
            await self._set_refs(held, scope, receive, send)
        elif method == "POST" and (rest in ("/contents", "/bundles") or rest.startswith("/uploads/")):
            await self._poll(held, scope, receive, send)
        elif "/lfs/objects/" in rest:
            async with self._processes[held.worker.pk]:
                await self._exchange_contents(held, scope, receive, send)
        elif rest.startswith(("/bundles", "/uploads/")):
            async with self._processes[held.worker.pk]:
                await self._transfer(held, scope, receive, send)
        elif service := _git_service(held, method, rest.rpartition("repository.git/")[2], scope):
            if service.advertise and service.service == UPLOAD:
                await self._references.run(lambda: ensure_base_ref(held))
            async with self._processes[held.worker.pk]:
                await service.respond(scope, receive, send)
        else:
            await answer(scope, send, 404, _NOT_FOUND)

    async def _remove_old_transfers(self) -> None:
        """Do it now and then: each host says hello every 30 seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._old_removed_at >= _REMOVE_OLD_SECONDS:
            self._old_removed_at = now
            with suppress(Busy):  # then in an hour
                await self._uploads.run(remove_all_old_transfers)

    async def _poll(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        """Begin a job, or wait for its end. A request that waits uses no place of its host."""
        if scope["path"].endswith("/contents"):
            await self._contents.prepare(held, scope, send)
        elif scope["path"].endswith("/bundles"):
            await self._bundles.order(held, scope, receive, send)
        else:
            name = scope["path"].rpartition("/")[2]
            await self._finished_uploads.finish(held, name, scope, receive, send)

    async def _exchange_contents(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        name, method = scope["path"].rpartition("/")[2], scope["method"]
        if (method, name) == ("POST", "batch"):
            await lfs_service.batch(held, scope, receive, send)
        elif method == "GET" and name != "batch":
            await lfs_service.send_content(held, name, scope, receive, send)
        elif method == "PUT" and name != "batch":
            await lfs_service.receive_content(self._uploads, held, name, scope, receive, send)
        else:
            await answer(scope, send, 404, _NOT_FOUND)

    async def _transfer(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        kind, name = scope["path"].split("/")[-2:]
        method = scope["method"]
        if (method, kind) == ("GET", "uploads"):
            await upload_service.send_upload_status(held, name, scope, send)
        elif (method, kind) == ("PUT", "uploads"):
            await upload_service.receive_piece(held, name, scope, receive, send)
        elif (method, kind) == ("GET", "bundles"):
            await self._bundles.send(held, name, scope, receive, send)
        else:
            await answer(scope, send, 404, _NOT_FOUND)

    async def _set_refs(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        body = b"".join([piece async for piece in body_pieces(scope, receive, limit=_JSON_BYTES)])
        target, refs = _target_and_refs(body)
        if await self._references.run(lambda: set_task_refs(held, target, refs)):
            await answer(scope, send, 200, b"set\n")
        else:
            await answer(scope, send, 404, b"Push this object first.\n")


def portal_description() -> dict[str, Any]:
    """Return what a worker host must know of its portal."""
    environment = settings.ENVIRONMENT
    installation = Installation.objects.first()
    return {
        "data_dir": str(settings.DATA_DIR),
        "installation": str(installation) if installation else None,
        "rehearsal": environment.rehearsal,
        "redis": environment.redis_url is not None,
        "git_filters": [name for name, _ in environment.git_filters],
        "sandbox": environment.sandbox,
        "network": environment.network,
        "tasks_per_person": environment.tasks_per_person,
        "queue_secret": queue_secret(environment),
    }


def _git_service(held: HeldTask, method: str, rest: str, scope: Message) -> GitService | None:
    if (method, rest) == ("GET", "info/refs"):
        for service in (UPLOAD, RECEIVE):
            if scope["query_string"] == f"service={service}".encode():
                return GitService(held, service, advertise=True)
    if method == "POST" and rest in (UPLOAD, RECEIVE):
        return GitService(held, rest)
    return None


def _target_and_refs(body: bytes) -> tuple[str, list[str]]:
    try:
        given = json.loads(body)
        target, refs = given["target"], given["refs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput("send an object with target and refs") from None
    if not isinstance(target, str) or not isinstance(refs, list) or not all(isinstance(r, str) for r in refs):
        raise BadInput("target is a text, refs a list of texts")
    return target, refs


async def _in_a_thread(call: Callable[[], T]) -> T:
    def closing() -> T:
        try:
            return call()
        finally:
            connection.close()  # each thread has its own connection

    return await asyncio.to_thread(closing)
