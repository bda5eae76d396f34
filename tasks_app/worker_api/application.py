"""`/worker/`: what workers on hosts of their own use the portal for (M1), handled before Django.

Each request shows the token of its host. A task's repository is reached by the task's id and the epoch of its
lease, and only while a worker of that host holds it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from typing import Any

from django.conf import settings

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.proxies import parsed_address
from tasks_app.asgi_layers.requests import answer, bearer_token
from tasks_app.core.environment import queue_secret
from tasks_app.core.errors import BadInput, LeaseLost, WorkspaceError
from tasks_app.models import Installation, WorkerToken
from tasks_app.services.workers.hosts import (
    HeldTask,
    ensure_base_ref,
    held_task,
    set_task_refs,
    worker_token_of,
)
from tasks_app.worker_api import lfs_service
from tasks_app.worker_api.bodies import ClientGone, RequestRefused, body_pieces
from tasks_app.worker_api.git_service import MOST_PROCESSES, RECEIVE, UPLOAD, GitService
from tasks_app.worker_api.slow_threads import SlowThreads, in_thread

PREFIX = "/worker/"
_TASK = re.compile(
    r"tasks/([1-9]\d{0,17})/([1-9]\d{0,8})"
    r"(|/refs|/contents|/repository\.git/(?:info/refs|git-[a-z-]+|info/lfs/objects/(?:batch|[0-9a-f]{64})))"
)
_JSON_BYTES = 10_000
#: Sources from which contents of Git LFS are fetched at the same time, for up to half an hour each.
MOST_FETCHES = 2
#: Threads in which git looks for commits in a whole history, or a large file is written to the disk.
MOST_SLOW = 4
#: How much work may wait for one of these threads.
MOST_WAITING = 32
_NOT_FOUND = b"There is nothing here.\n"
_NEEDS_TOKEN = b"This needs the token of a worker host, as in Authorization: Bearer TOKEN.\n"


class WorkerHosts:
    """Serves what is below `/worker/`, and passes on all else."""

    def __init__(self, application: Application) -> None:
        self._application = application
        # One for each token, by its primary key: a host whose clients are slow must not keep out the others.
        self._exchanges: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_PROCESSES)
        )
        # Sources may be slow. They must not delay what is quicker, and nothing here the check of a token.
        self._contents = lfs_service.ContentFetches(SlowThreads(most=MOST_FETCHES, waiting=MOST_WAITING))
        self._threads = SlowThreads(most=MOST_SLOW, waiting=MOST_WAITING)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope.get("path", "").startswith(PREFIX):
            await self._application(scope, receive, send)
            return
        token = bearer_token(scope).decode("ascii", "replace")
        worker = await in_thread(lambda: worker_token_of(token))
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
        if own := scope.get("state", {}).get("connection"):
            own.is_of_worker_host = True  # its body may be large and slow: it makes no room for others
        path, method = scope["path"].removeprefix(PREFIX), scope["method"]
        if (method, path) == ("GET", "hello"):
            described = await in_thread(portal_description)
            seen = parsed_address((scope.get("client") or ("",))[0])
            described["seen_address"] = str(seen or "")
            await answer(scope, send, 200, json.dumps(described).encode())
            return
        found = _TASK.fullmatch(path)
        if found is None:
            await answer(scope, send, 404, _NOT_FOUND)
            return
        task_id, epoch = int(found[1]), int(found[2])
        held = await in_thread(lambda: held_task(worker, task_id, epoch))
        if (method, found[3]) == ("GET", ""):
            await answer(scope, send, 200, b"held\n")
        elif (method, found[3]) == ("POST", "/refs"):
            await self._set_refs(held, scope, receive, send)
        elif (method, found[3]) == ("POST", "/contents"):
            await self._contents.prepare(held, scope, send)
        else:
            async with self._exchanges[worker.pk]:
                await self._exchange(held, found[3].partition("repository.git/")[2], scope, receive, send)

    async def _exchange(
        self, held: HeldTask, rest: str, scope: Message, receive: Receive, send: Send
    ) -> None:
        """Exchange what git or Git LFS asks for below the URL of the repository."""
        method, name = scope["method"], rest.rpartition("/")[2]
        is_content = rest.startswith("info/lfs/") and name != "batch"
        if (method, rest) == ("POST", "info/lfs/objects/batch"):
            await lfs_service.batch(held, scope, receive, send)
        elif method == "GET" and is_content:
            await lfs_service.send_content(held, name, scope, receive, send)
        elif method == "PUT" and is_content:
            await lfs_service.receive_content(self._threads, held, name, scope, receive, send)
        elif service := self._git_service(held, method, rest, scope):
            if service.advertise and service.service == UPLOAD:
                await self._threads.run(lambda: ensure_base_ref(held))
            await service.respond(scope, receive, send)
        else:
            await answer(scope, send, 404, _NOT_FOUND)

    def _git_service(self, held: HeldTask, method: str, rest: str, scope: Message) -> GitService | None:
        if (method, rest) == ("GET", "info/refs"):
            for service in (UPLOAD, RECEIVE):
                if scope["query_string"] == f"service={service}".encode():
                    return GitService(held, service, self._threads, advertise=True)
        if method == "POST" and rest in (UPLOAD, RECEIVE):
            return GitService(held, rest, self._threads)
        return None

    async def _set_refs(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        body = b"".join([piece async for piece in body_pieces(scope, receive, limit=_JSON_BYTES)])
        target, refs = _target_and_refs(body)
        if await self._threads.run(lambda: set_task_refs(held, target, refs)):
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


def _target_and_refs(body: bytes) -> tuple[str, list[str]]:
    try:
        given = json.loads(body)
        target, refs = given["target"], given["refs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput("send an object with target and refs") from None
    if not isinstance(target, str) or not isinstance(refs, list) or not all(isinstance(r, str) for r in refs):
        raise BadInput("target is a text, refs a list of texts")
    return target, refs
