"""Contents of Git LFS for worker hosts: its batch API with basic transfers, for the holder of a task (M1).

Contents belong to the project, as in workspaces of the portal's own worker: every task of it may read them.
They are known by their SHA-256.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from catherder_site.asgi_layers.body_limits import Message, Receive, Send
from catherder_site.asgi_layers.plain_text import answer
from catherder_site.worker_hosts.background import Background
from catherder_site.worker_hosts.git_service import (
    BODY_LIMITS,
    RECEIVE,
    BodyBroken,
    body_pieces,
    require_free_disk,
)
from catherder_site.worker_hosts.slow_threads import SlowThreads
from catherder_site.worker_hosts.transfers import send_file
from tasks_app.core.errors import BadInput
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.lfs import NOT_KEPT, is_kept, path_of
from tasks_app.git.lfs_contents import LfsContents
from tasks_app.git.mirror import URL_HEADER
from tasks_app.services.workers.hosts import HeldTask

_MEDIA_TYPE = b"application/vnd.git-lfs+json"
_BATCH_BYTES = 4 * 1024**2
_NAME = re.compile(r"[0-9a-f]{64}")
_BASE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,300}(?:/[A-Za-z0-9._~/-]{0,300})?")


class ContentFetches:
    """Fetches contents from sources, for each repository one commit's at a time.

    A slow source takes one thread, however many tasks its project has; the others wait without one.
    """

    def __init__(self, background: Background, threads: SlowThreads) -> None:
        self._background = background
        self._threads = threads
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, held: HeldTask, scope: Message, send: Send) -> None:
        """Fetch what a new workspace of the task needs from the source; answer 202 while that lasts.

        The answer has what went wrong, or "". The host then asks for what the portal has.
        """
        job = await self._background.wait_for(
            (held.repository.path, held.contents_of),
            lambda: self._fetch(held),
            limits={"contents": self._threads.most_asked},
        )
        status, found = (200, job.result()) if job.done() else (202, "")
        await answer(scope, send, status, json.dumps({"problem": found}).encode())

    async def _fetch(self, held: HeldTask) -> str:
        contents = LfsContents(held.repository, held.repository.source, held.contents_of)
        lock = self._locks.setdefault(held.repository.path, asyncio.Lock())
        async with lock:
            return await self._threads.run(contents.fetch_needed)


async def batch(held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
    """Say from where each content can be downloaded, or where one that lacks can be uploaded to."""
    body = b"".join([piece async for piece in body_pieces(scope, receive, limit=_BATCH_BYTES)])
    operation, wanted = _asked(body)
    url = _own_url(scope).removesuffix("/batch")
    objects = await asyncio.to_thread(
        lambda: [_batch_object(held, operation, name, size, f"{url}/{name}") for name, size in wanted]
    )
    text = json.dumps({"transfer": "basic", "hash_algo": "sha256", "objects": objects}).encode()
    headers = [(b"content-type", _MEDIA_TYPE), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _asked(body: bytes) -> tuple[str, list[tuple[str, int]]]:
    try:
        given = json.loads(body)
        operation, objects = given["operation"], [(one["oid"], one["size"]) for one in given["objects"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput("send an object with operation and objects") from None
    for name, size in objects:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or type(size) is not int or size < 0:
            raise BadInput("each object has an oid of 64 digits and a size", where="objects")
    if operation not in ("download", "upload"):
        raise BadInput("use download or upload", where="operation")
    return operation, objects


def _own_url(scope: Message) -> str:
    """Return the URL of this request as the client wrote it, so that it sends its token to those below.

    The host says where it reaches the portal. Host and scheme are what a proxy has made of them.
    """
    headers = dict(scope["headers"])
    told = headers.get(URL_HEADER.lower().encode(), b"").decode("ascii", "replace")
    if _BASE_URL.fullmatch(told):
        return f"{told}{scope['path']}"
    host = headers.get(b"host", b"").decode("ascii", "replace")
    return f"{scope['scheme']}://{host}{scope['path']}"


def _batch_object(held: HeldTask, operation: str, name: str, size: int, href: str) -> dict[str, Any]:
    kept = path_of(held.repository.path, name)
    found: dict[str, Any] = {"oid": name, "size": size, "authenticated": True}
    is_there = is_kept(held.repository.path, name)
    if operation == "upload":
        return found if is_there else {**found, "actions": {"upload": {"href": href}}}
    if not is_there:
        return {**found, "error": {"code": 404, "message": f"{NOT_KEPT}."}}
    return {**found, "size": kept.stat().st_size, "actions": {"download": {"href": href}}}


async def send_content(held: HeldTask, name: str, scope: Message, receive: Receive, send: Send) -> None:
    """Send a content, or a range of it."""
    kept = path_of(held.repository.path, name)
    if not kept.is_file():
        await answer(scope, send, 404, f"{NOT_KEPT}.\n".encode())
        return
    await send_file(kept, name, scope, receive, send)


async def receive_content(
    threads: SlowThreads, held: HeldTask, name: str, scope: Message, receive: Receive, send: Send
) -> None:
    """Keep a content. Raises BodyBroken if it is not the one of its name."""
    kept = path_of(held.repository.path, name)
    digest = hashlib.sha256()
    with temporary_name(kept) as fresh:
        with fresh.open("wb") as file:
            async with aclosing(body_pieces(scope, receive, limit=BODY_LIMITS[RECEIVE])) as pieces:
                async for piece in pieces:
                    require_free_disk(held.repository.path)
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        if digest.hexdigest() != name:
            raise BodyBroken("This is not the content of its name.")
        await threads.run(lambda: move_file_into_place(fresh, kept, below=held.repository.path))
    await answer(scope, send, 200, b"")
