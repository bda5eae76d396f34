"""Asynchronous streams of responses that are too long for the memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async

#: Pieces of a log, about a line each, that are sent together.
PIECES = 200


async def stream_text(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Yield texts, some pieces at a time."""
    while part := await sync_to_async(lambda: "".join(islice(pieces, PIECES)))():
        yield part


async def stream_bytes(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield bytes, one piece at a time."""
    while part := await sync_to_async(lambda: next(pieces, b""))():
        yield part
