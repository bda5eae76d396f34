"""Screenshots made small without loss: the browser, in a hurry, stores them about a quarter larger."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def squeezed(png: bytes) -> bytes:
    """The same pixels with rows that are not filtered: text repeats itself, and so zlib finds it again."""
    chunks = list(_chunks(png))
    header = next(body for kind, body in chunks if kind == b"IHDR")
    filtered = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    plain = b"".join(b"\0" + row for row in _rows(filtered, header))
    return SIGNATURE + b"".join(
        struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(plain, 9)), (b"IEND", b""))
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    rest = png[len(SIGNATURE) :]
    while rest:
        length, kind = struct.unpack(">I4s", rest[:8])
        yield kind, rest[8 : 8 + length]
        rest = rest[12 + length :]


def _rows(filtered: bytes, header: bytes) -> Iterator[bytes]:
    """The rows as they were before they were filtered (PNG specification, chapter 9)."""
    width, _, depth, colour = struct.unpack(">IIBB", header[:10])
    pixel = {2: 3, 6: 4}[colour] * depth // 8
    size = width * pixel
    above = bytes(size)
    for start in range(0, len(filtered), size + 1):
        above = _unfiltered(filtered[start], bytearray(filtered[start + 1 : start + 1 + size]), above, pixel)
        yield above


def _unfiltered(kind: int, row: bytearray, above: bytes, pixel: int) -> bytes:
    for place in range(len(row)) if kind else ():
        left = row[place - pixel] if place >= pixel else 0
        corner = above[place - pixel] if place >= pixel else 0
        guess = (left, above[place], (left + above[place]) // 2, _paeth(left, above[place], corner))[kind - 1]
        row[place] = (row[place] + guess) % 256
    return bytes(row)


def _paeth(left: int, above: int, corner: int) -> int:
    """Whichever neighbour is nearest to where the three of them point."""
    target = left + above - corner
    return min((left, above, corner), key=lambda one: abs(target - one))
