"""Uploads of worker hosts: packs and contents of Git LFS that arrive in pieces (M1).

A pack is pushed from its file when it is complete: by the same git, with the same checks, as one that comes
at once. That may take longer than a request may, so it is a job, and the host asks until it has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Hashable, Iterator, Mapping
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
    BodyTooLarge,
    GitService,
    OutOfTime,
    body_pieces,
    require_free_disk,
)
from catherder_site.worker_hosts.slow_threads import SlowThreads
from catherder_site.worker_hosts.transfers import (
    MOST_JOBS,
    ORDER_BYTES,
    answer_empty,
    pieces_of,
    value_in,
    worker_group,
)
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git.lfs import is_kept, path_of
from tasks_app.git.mirror import incoming_ref
from tasks_app.git.names import valid_commit
from tasks_app.git.uploads import (
    OffsetTaken,
    append,
    begin,
    is_complete,
    is_content,
    keep_content,
    received,
    upload_path,
)
from tasks_app.services.workers.hosts import HeldTask, confirm_push, require_still_held

logger = logging.getLogger(__name__)

#: Seconds within which git must have checked and indexed an upload.
PUSH_SECONDS = 3600.0
#: Maximum bytes of a piece of an upload, and of what git says of a push.
PIECE_BYTES = 64 * 1024**2
_VERDICT_BYTES = 1024**2
_CONTENT_RANGE = re.compile(rb"bytes (\d{1,15})-\d{1,15}/(\d{1,15})")


class PieceConflict(BodyBroken):
    """The upload does not end where this piece begins, or is not the file of its name."""

    status = 409


async def send_upload_status(held: HeldTask, name: str, scope: Message, send: Send) -> None:
    """Answer with the size of the upload so far, and the largest one that is taken."""
    size = await asyncio.to_thread(_size_so_far, held, name)
    await answer(scope, send, 200, json.dumps({"size": size, "limit": BODY_LIMITS[RECEIVE]}).encode())


def _size_so_far(held: HeldTask, name: str) -> int:
    if is_content(name) and is_kept(held.repository.path, name):
        return path_of(held.repository.path, name).stat().st_size
    return received(upload_path(held.repository, held.task_id, name))


async def receive_piece(held: HeldTask, name: str, scope: Message, receive: Receive, send: Send) -> None:
    """Write a piece to the end of an upload. What has arrived stays if the connection breaks."""
    given = _CONTENT_RANGE.fullmatch(dict(scope["headers"]).get(b"content-range", b""))
    if given is None:
        raise BadInput("say with Content-Range where this piece belongs")
    offset, total = int(given[1]), int(given[2])
    if total > BODY_LIMITS[RECEIVE]:
        raise BodyTooLarge(f"The file is longer than {BODY_LIMITS[RECEIVE]:,} bytes.")
    upload = upload_path(held.repository, held.task_id, name)
    await asyncio.to_thread(begin, upload)
    try:
        async with aclosing(body_pieces(scope, receive, limit=min(PIECE_BYTES, total - offset))) as pieces:
            async for piece in pieces:
                require_free_disk(held.repository.path)
                offset = await asyncio.to_thread(append, upload, offset, piece)
    except OffsetTaken:
        raise PieceConflict("The upload does not end where this piece begins.") from None
    await answer(scope, send, 200, b"received\n")


class FinishedUploads:
    """Takes uploads that are complete, each in a job; a job that is repeated does nothing twice.

    An upload goes away only when its references are set, or git has refused it. So it outlives a portal that
    is killed during the job, and a lease that ends before it.
    """

    def __init__(
        self, background: Background, threads: SlowThreads, processes: Mapping[int, asyncio.Semaphore]
    ) -> None:
        """`processes` limits the git processes for each worker host, by the primary key of its token."""
        self._background = background
        self._threads = threads
        self._processes = processes
        # Jobs of two holders of the task may want the same file.
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def finish(self, held: HeldTask, name: str, scope: Message, receive: Receive, send: Send) -> None:
        """Answer with what git says of the push, or with 202 while the job runs."""
        body = b"".join([piece async for piece in body_pieces(scope, receive, limit=ORDER_BYTES)])
        upload = upload_path(held.repository, held.task_id, name)
        limits: dict[Hashable, int] = {worker_group(held): MOST_JOBS, (upload, held.epoch): 1}
        if is_content(name):
            key: tuple[Any, ...] = (upload,)
            job = await self._background.wait_for(key, lambda: self._keep(held, upload), limits=limits)
        else:
            target = _commit_in(body)
            key = (upload, target, held.epoch)
            job = await self._background.wait_for(
                key, lambda: self._push(held, upload, target), limits=limits
            )
        if job.done():
            await answer(scope, send, 200, job.result())
        else:
            await answer_empty(send, 202)

    async def _keep(self, held: HeldTask, upload: Path) -> bytes:
        if not await self._threads.run(lambda: keep_content(held.repository, upload)):
            raise PieceConflict("This is not the content that was to be uploaded.")
        return b""

    async def _push(self, held: HeldTask, upload: Path, target: str) -> bytes:
        lock = self._locks.setdefault(upload, asyncio.Lock())
        async with lock:
            ref = incoming_ref(held.key)
            verdict = b""
            now = await self._threads.run(lambda: held.repository.refs(ref))
            if now != (target,):
                await self._require_complete(upload)
                await self._threads.run(lambda: require_still_held(held))
                verdict = await self._run_git(held, upload, now[0] if now else 40 * "0", target)
            await self._threads.run(lambda: confirm_push(held))
            await asyncio.to_thread(upload.unlink, missing_ok=True)
            return verdict

    async def _require_complete(self, upload: Path) -> None:
        if not await self._threads.run(lambda: is_complete(upload)):
            await asyncio.to_thread(upload.unlink, missing_ok=True)
            raise PieceConflict("This is not the pack that was to be uploaded.")

    async def _run_git(self, held: HeldTask, upload: Path, old: str, target: str) -> bytes:
        """Push the upload, and return what git says of it. Raises RequestRefused."""
        head = f"{old} {target} {incoming_ref(held.key)}\0report-status side-band-64k"
        line = b"%04x%s0000" % (len(head) + 4, head.encode())

        def request() -> Iterator[bytes]:
            yield line
            yield from pieces_of(upload, 0, received(upload))

        verdict = _Verdict()
        service = GitService(held, RECEIVE, uploaded=request, seconds=PUSH_SECONDS)
        async with self._processes[held.worker.pk]:
            if not await service.respond({}, _wait_for_ever, verdict):
                raise OutOfTime(f"git did not end within {PUSH_SECONDS:g} seconds.")
        return bytes(verdict.body)


class _Verdict:
    """Takes git's response to a push in the place of a client."""

    def __init__(self) -> None:
        self.body = bytearray()

    async def __call__(self, message: Mapping[str, Any]) -> None:
        self.body += message.get("body", b"")[: _VERDICT_BYTES - len(self.body)]


async def _wait_for_ever() -> Mapping[str, Any]:
    """Receive as from a client that stays."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


def _commit_in(body: bytes) -> str:
    given = value_in(body, "target")
    try:
        return valid_commit(given if isinstance(given, str) else "")
    except WorkspaceError as error:
        raise BadInput(str(error), where="target") from None
