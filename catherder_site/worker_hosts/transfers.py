"""Bundles for worker hosts: downloads that go on where they broke off (M1).

A bundle is made once, in the background, and then downloaded in pieces.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from catherder_site.asgi_layers.body_limits import Message, Receive, Send
from catherder_site.asgi_layers.plain_text import answer
from catherder_site.worker_hosts.background import Background
from catherder_site.worker_hosts.git_service import (
    DiskFull,
    body_pieces,
    read_errors,
    require_free_disk,
    stop_process,
)
from catherder_site.worker_hosts.slow_threads import Busy, SlowThreads
from tasks_app.core.errors import BadInput, LeaseLost, WorkspaceError
from tasks_app.git.bundles import BundleOrder, find_bundle, order_bundle, remove_old_transfers
from tasks_app.git.checksums import checksum_of
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.services.workers.hosts import HeldTask, require_still_held

logger = logging.getLogger(__name__)

#: Seconds within which git must have made a bundle.
MAKING_SECONDS = 3600.0
#: Bundles that are made at the same time; each uses a processor and some gigabytes of disk.
_MOST_AT_WORK = 2
#: Bundles that are made for one worker host at the same time, and its uploads that are checked, waiting ones
#: included. A host orders one for each task that it begins.
MOST_JOBS = 8
#: Maximum bytes of the names of the commits that a mirror has.
ORDER_BYTES = 1024**2
_READ = 256 * 1024
_RANGE = re.compile(rb"bytes=(\d{1,15})-(\d{1,15})")
_BINARY = (b"content-type", b"application/octet-stream")
_NO_STORE = (b"cache-control", b"no-store")


def worker_group(held: HeldTask) -> tuple[str, int]:
    """Return the group of all background jobs of the host's token."""
    return "worker", held.worker.pk


class Bundles:
    """Makes bundles, each once at a time, and sends them."""

    def __init__(self, background: Background, threads: SlowThreads) -> None:
        self._at_work = asyncio.Semaphore(_MOST_AT_WORK)
        self._background = background
        self._threads = threads

    async def order(self, held: HeldTask, scope: Message, receive: Receive, send: Send) -> None:
        """Answer with name, size and checksum of a bundle; with 202 while it is made, 204 if nothing lacks.

        204 also if it cannot be made: then the host fetches in one go.
        """
        body = b"".join([piece async for piece in body_pieces(scope, receive, limit=ORDER_BYTES)])
        have = _texts_in(body, "have")
        wanted = await self._threads.run(lambda: order_bundle(held.repository, held.bundle_scopes, have))
        if wanted is None:
            await answer_empty(send, 204)
            return
        if not find_bundle(held.repository, list(held.bundle_scopes), wanted.name):
            making = await self._background.wait_for(
                wanted.path, lambda: self._make(wanted, held), limits={worker_group(held): MOST_JOBS}
            )
            if not wanted.path.exists():
                await answer_empty(send, 204 if making.done() else 202)
                return
        content = {
            "name": wanted.name,
            "size": wanted.path.stat().st_size,
            "checksum": checksum_of(wanted.path),
        }
        await answer(scope, send, 200, json.dumps(content).encode())

    async def _make(self, wanted: BundleOrder, held: HeldTask) -> None:
        """Make the bundle; log why it cannot be made."""
        try:
            async with self._at_work:
                await self._threads.run(lambda: require_still_held(held))
                with temporary_name(wanted.path) as fresh:
                    await asyncio.wait_for(_write_bundle(wanted, held, fresh), MAKING_SECONDS)
                    below = held.repository.path
                    await self._threads.run(lambda: move_file_into_place(fresh, wanted.path, below=below))
            await self._threads.run(lambda: remove_old_transfers(held.repository.path))
        except (LeaseLost, WorkspaceError, DiskFull, Busy, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("no bundle of %s could be made: %s", held.repository.name, reason)

    async def send(self, held: HeldTask, name: str, scope: Message, receive: Receive, send: Send) -> None:
        """Send the bundle, or a range of it if it is still the one of `If-Range`."""
        path = await asyncio.to_thread(find_bundle, held.repository, list(held.bundle_scopes), name)
        if path is None:
            await answer(scope, send, 404, b"There is no such bundle any more.\n")
            return
        await send_file(path, checksum_of(path), scope, receive, send)


async def _write_bundle(wanted: BundleOrder, held: HeldTask, fresh: Path) -> None:
    """Raises WorkspaceError, and DiskFull."""
    command, environment = held.repository.git.process("bundle", "create", "--quiet", "-", "--stdin")
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    feeding = asyncio.create_task(_feed(process, wanted.stdin))
    errors = asyncio.create_task(read_errors(process))
    try:
        assert process.stdout is not None  # noqa: S101 (PIPE was given)
        with fresh.open("wb") as file:
            while piece := await process.stdout.read(_READ):
                require_free_disk(held.repository.path)
                await asyncio.to_thread(file.write, piece)
        if await process.wait() != 0:
            raise WorkspaceError(f"git bundle failed: {await errors}")
    finally:
        for task in (feeding, errors):
            task.cancel()
        await asyncio.gather(feeding, errors, return_exceptions=True)
        await stop_process(process)


async def _feed(process: Process, body: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 (PIPE was given)
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()


async def send_file(path: Path, etag: str, scope: Message, receive: Receive, send: Send) -> None:
    """Send a file, or the range of it that the request names, with an ETag. If-Range is honoured."""
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await _send_file(path, etag, scope, send, gone)
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_file(path: Path, etag: str, scope: Message, send: Send, gone: asyncio.Task[None]) -> None:
    size, headers = path.stat().st_size, dict(scope["headers"])
    quoted = f'"{etag}"'.encode()
    found = _RANGE.fullmatch(headers.get(b"range", b""))
    if headers.get(b"if-range", quoted) != quoted:
        found = None
    first, last = (int(found[1]), min(int(found[2]), size - 1)) if found else (0, size - 1)
    if found and first > last:
        await answer(scope, send, 416, b"The file ends before.\n", {b"content-range": b"bytes */%d" % size})
        return
    begin_with = [_BINARY, _NO_STORE, (b"etag", quoted), (b"accept-ranges", b"bytes")]
    if found:
        begin_with.append((b"content-range", b"bytes %d-%d/%d" % (first, last, size)))
    begin_with.append((b"content-length", b"%d" % (last - first + 1)))
    await send({"type": "http.response.start", "status": 206 if found else 200, "headers": begin_with})
    pieces = pieces_of(path, first, last + 1)
    while not gone.done() and (piece := await asyncio.to_thread(next, pieces, b"")):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def pieces_of(path: Path, first: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `first` to before `end`."""
    with path.open("rb") as file:
        file.seek(first)
        left = end - first
        while left > 0 and (piece := file.read(min(_READ, left))):
            left -= len(piece)
            yield piece


def _texts_in(body: bytes, key: str) -> list[str]:
    given = value_in(body, key)
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise BadInput(f"{key} is a list of texts")
    return given


def value_in(body: bytes, key: str) -> Any:
    """Return what an object in JSON has under `key`. Raises BadInput."""
    try:
        return json.loads(body)[key]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise BadInput(f"send an object with {key}") from None


async def answer_empty(send: Send, status: int) -> None:
    """Answer without a body: 202 while something is made, or 204."""
    headers = [_NO_STORE] if status == 204 else [_NO_STORE, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
