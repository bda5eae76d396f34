"""The bodies of requests from worker hosts, and why a request is refused."""

from __future__ import annotations

import asyncio
import shutil
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path

from django.conf import settings

from tasks_app.asgi_layers.body_limits import Message, Receive

#: Seconds without a byte after which a client counts as gone: of a line that is cut nothing else is seen.
SILENT_SECONDS = 300.0
_PIECE = 64 * 1024


class RequestRefused(Exception):
    """A request that cannot be served; the message says why. `status` and `headers` are the response's."""

    status = 400
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BodyBroken(RequestRefused):
    """The request's body cannot be decompressed, or git refuses it."""


class BodyTooLarge(RequestRefused):
    """The request's body is longer than allowed."""

    status = 413


class DiskFull(RequestRefused):
    """A push would use the space that the portal keeps free."""

    status = 507


class OutOfTime(RequestRefused):
    """The client or git took longer than it may."""

    status = 504


class ClientGone(Exception):
    """The client has closed the connection."""


def require_free_disk(folder: Path) -> None:
    """Raise DiskFull if too little is free. Other pushes may arrive meanwhile, so check it for each piece."""
    if shutil.disk_usage(folder).free < settings.ENVIRONMENT.keep_free_disk:
        raise DiskFull("The portal's disk is full (CATHERDER_KEEP_FREE_DISK).")


async def body_pieces(scope: Message, receive: Receive, *, limit: int) -> AsyncGenerator[bytes]:
    """Yield the request's body, decompressed, of at most `limit` bytes."""
    encoding = dict(scope["headers"]).get(b"content-encoding", b"")
    unpacker = None
    if encoding in (b"gzip", b"x-gzip"):
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    seen, more = 0, True
    while more:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                message = await receive()
        except TimeoutError:
            raise OutOfTime(f"Nothing came for {SILENT_SECONDS:g} seconds.") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        received = message.get("body", b"")
        while received:
            piece, received = received, b""
            if unpacker is not None:
                piece = _decompressed(unpacker, piece)
                received = unpacker.unconsumed_tail
            seen += len(piece)
            if seen > limit:
                raise BodyTooLarge(f"The body is longer than {limit:,} bytes.")
            yield piece
    if unpacker is not None:
        yield unpacker.flush()
        if not unpacker.eof:
            raise BodyBroken("The body is not complete.")


def _decompressed(unpacker: zlib._Decompress, received: bytes) -> bytes:
    """Return the next piece; the rest is in `unpacker.unconsumed_tail`. Raises BodyBroken."""
    try:
        piece = unpacker.decompress(received, _PIECE)
    except zlib.error as error:
        raise BodyBroken(f"The body cannot be decompressed ({error}).") from error
    if unpacker.unused_data:  # it would grow by all that follows
        raise BodyBroken("The body goes on after its end.")
    return piece
