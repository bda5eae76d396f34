"""Sending what is rendered piece by piece: a log may have any length."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async

#: Pieces of a log (a line or so each) that are sent at once.
PIECES = 200


async def streamed(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Rendered as it is sent, some pieces at a time."""
    while part := await sync_to_async(_joined)(pieces):
        yield part


async def streamed_bytes(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read as it is sent, one piece at a time."""
    while part := await sync_to_async(lambda: next(pieces, b""))():
        yield part


def _joined(pieces: Iterator[str]) -> str:
    return "".join(islice(pieces, PIECES))
