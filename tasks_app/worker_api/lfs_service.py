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

from tasks_app.asgi_layers.body_limits import Message, Receive, Send
from tasks_app.asgi_layers.requests import answer
from tasks_app.core.errors import BadInput
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.lfs import NOT_KEPT, TOO_LARGE, LfsContents, is_kept, path_of
from tasks_app.git.mirror import URL_HEADER
from tasks_app.services.workers.hosts import HeldTask, require_still_held
from tasks_app.worker_api.bodies import BodyBroken, body_pieces, require_free_disk
from tasks_app.worker_api.git_service import BODY_LIMITS, RECEIVE
from tasks_app.worker_api.slow_threads import Busy, SlowThreads

#: Seconds that one request waits for contents; then the host asks again. Proxies give up after 60 seconds.
WAIT_SECONDS = 20.0
#: Seconds that an outcome is kept for a host that is just asking again.
_KEPT_SECONDS = 60.0
_MEDIA_TYPE = b"application/vnd.git-lfs+json"
_BATCH_BYTES = 4 * 1024**2
_PIECE = 256 * 1024
_NAME = re.compile(r"[0-9a-f]{64}")
_BASE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,300}(?:/[A-Za-z0-9._~/-]{0,300})?")


class ContentFetches:
    """Fetches contents from sources, for each repository one commit's at a time.

    A slow source takes one thread, however many tasks its project has; the others wait without one.
    """

    def __init__(self, threads: SlowThreads) -> None:
        self._threads = threads
        self._jobs: dict[tuple[Path, str], asyncio.Task[str]] = {}
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, held: HeldTask, scope: Message, send: Send) -> None:
        """Fetch what a new workspace of the task needs from the source; answer 202 while that lasts.

        The answer has what went wrong, or "". The host then asks for what the portal has. A fetch goes on if
        nobody waits for it any more.
        """
        key = (held.repository.path, held.contents_of)
        job = self._jobs.get(key)
        if job is None:
            if sum(not one.done() for one in self._jobs.values()) >= self._threads.most_asked:
                raise Busy("The portal fetches from as many sources as it may. Ask again later.")
            job = self._jobs[key] = asyncio.create_task(self._fetch(held))
            job.add_done_callback(
                lambda ended: ended.get_loop().call_later(_KEPT_SECONDS, self._forget, key, ended)
            )
        await asyncio.wait([job], timeout=WAIT_SECONDS)
        if job.done():
            self._forget(key, job)
            await answer(scope, send, 200, json.dumps({"problem": job.result()}).encode())
        else:
            await answer(scope, send, 202, b"It is being fetched.\n")

    def _forget(self, key: tuple[Path, str], job: asyncio.Task[str]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]

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
        if size > BODY_LIMITS[RECEIVE]:
            return {**found, "error": {"code": 422, "message": f"It {TOO_LARGE}."}}
        if is_there:
            return found
        return {**found, "actions": {"upload": {"href": href}}}
    if not is_there:
        return {**found, "error": {"code": 404, "message": f"{NOT_KEPT}."}}
    return {**found, "size": kept.stat().st_size, "actions": {"download": {"href": href}}}


async def send_content(held: HeldTask, name: str, scope: Message, receive: Receive, send: Send) -> None:
    """Send a whole content: git-lfs begins anew where it is not given a range."""
    kept = path_of(held.repository.path, name)
    if not kept.is_file():
        await answer(scope, send, 404, f"{NOT_KEPT}.\n".encode())
        return
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % kept.stat().st_size),
    ]
    gone = asyncio.create_task(_disconnected(receive))
    try:
        with kept.open("rb") as file:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not gone.done() and (piece := await asyncio.to_thread(file.read, _PIECE)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def receive_content(
    threads: SlowThreads, held: HeldTask, name: str, scope: Message, receive: Receive, send: Send
) -> None:
    """Keep a content. Raises BodyBroken if its SHA-256 is not its name, and LeaseLost."""
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

        def keep() -> None:
            require_still_held(held)
            move_file_into_place(fresh, kept, below=held.repository.path)

        await threads.run(keep)
    await answer(scope, send, 200, b"")
