"""Screenshots made small without loss, where the browser is in a hurry, and put together as a film."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def squeezed(png: bytes) -> bytes:
    """The same pixels with rows that are not filtered: text repeats itself, and so zlib finds it again."""
    header, rows = _decoded(png)
    plain = b"".join(b"\0" + row for row in rows)
    return _png([(b"IHDR", header), (b"IDAT", zlib.compress(plain, 9)), (b"IEND", b"")])


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    rest = png[len(SIGNATURE) :]
    while rest:
        length, kind = struct.unpack(">I4s", rest[:8])
        yield kind, rest[8 : 8 + length]
        rest = rest[12 + length :]


def _rows(filtered: bytes, header: bytes) -> Iterator[bytes]:
    """The rows as they were before they were filtered (PNG specification, chapter 9)."""
    pixel = _pixel(header)
    size = struct.unpack(">I", header[:4])[0] * pixel
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


def animated(frames: Sequence[tuple[bytes, float]]) -> bytes:
    """Return screenshots of one size as an animated PNG that repeats; each is shown for its seconds.

    Of each further frame only the rectangle is stored that differs from the one before.
    https://www.w3.org/TR/png-3/#apng-frame-based-animation
    """
    pictures = [_decoded(png) for png, _ in frames]
    header, _ = pictures[0]
    chunks = [(b"IHDR", header), (b"acTL", struct.pack(">II", len(frames), 0))]
    number, shown = 0, [b""] * len(pictures[0][1])
    for (_, rows), (_, seconds) in zip(pictures, frames, strict=True):
        left, top, width, height = _changed(shown, rows, header)
        size = _pixel(header)
        part = [row[left * size : (left + width) * size] for row in rows[top : top + height]]
        packed = zlib.compress(b"".join(b"\0" + row for row in part), 9)
        place = struct.pack(">IIIIIHHBB", number, width, height, left, top, round(seconds * 100), 100, 0, 0)
        chunks.append((b"fcTL", place))
        if number:
            chunks.append((b"fdAT", struct.pack(">I", number + 1) + packed))
        else:
            chunks.append((b"IDAT", packed))
        number += 2 if number else 1
        shown = rows
    return _png([*chunks, (b"IEND", b"")])


def _decoded(png: bytes) -> tuple[bytes, list[bytes]]:
    chunks = list(_chunks(png))
    header = next(body for kind, body in chunks if kind == b"IHDR")
    filtered = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    return header, list(_rows(filtered, header))


def _changed(shown: Sequence[bytes], rows: Sequence[bytes], header: bytes) -> tuple[int, int, int, int]:
    """Return left, top, width and height, in pixels, of what differs; a pixel if nothing does."""
    size, width = _pixel(header), struct.unpack(">I", header[:4])[0]
    lines = [place for place, (one, other) in enumerate(zip(shown, rows, strict=True)) if one != other]
    if not lines:
        return 0, 0, 1, 1
    if not shown[0]:
        return 0, 0, width, len(rows)
    columns = [
        column
        for column in range(width)
        if any(
            shown[line][column * size : (column + 1) * size]
            != rows[line][column * size : (column + 1) * size]
            for line in lines
        )
    ]
    return columns[0], lines[0], columns[-1] - columns[0] + 1, lines[-1] - lines[0] + 1


def _pixel(header: bytes) -> int:
    """Return the bytes of a pixel."""
    depth, colour = struct.unpack(">BB", header[8:10])
    return int({2: 3, 6: 4}[colour] * depth // 8)


def _png(chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    return SIGNATURE + b"".join(
        struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
