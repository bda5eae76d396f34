"""The pictures of the README are stored small, and not one pixel changes."""

from __future__ import annotations

import struct
import zlib

from tests.e2e.png import SIGNATURE, animated, squeezed

WIDTH, HEIGHT = 3, 5
#: One row for each filter that PNG has: none, left, above, average, Paeth.
ROWS = [bytes((20 * row + 7 * place) % 256 for place in range(3 * WIDTH)) for row in range(HEIGHT)]


def test_every_filter_is_undone() -> None:
    above, filtered = bytes(3 * WIDTH), b""
    for kind, row in enumerate(ROWS):
        filtered += bytes([kind]) + _filtered(kind, row, above)
        above = row
    assert _data(squeezed(_png(filtered))) == b"".join(b"\0" + row for row in ROWS)


def test_a_film_stores_of_each_picture_what_differs_from_the_one_before() -> None:
    changed = [bytes(row) for row in ROWS]
    changed[2] = ROWS[2][:3] + bytes(3) + ROWS[2][6:]
    first, second = (_png(b"".join(b"\0" + row for row in rows)) for rows in (ROWS, changed))
    film = animated([(first, 0.5), (second, 1.25), (second, 1)])
    chunks = dict.fromkeys(kind for kind, _ in _chunks(film))
    assert list(chunks) == [b"IHDR", b"acTL", b"fcTL", b"IDAT", b"fdAT", b"IEND"]
    places = [struct.unpack(">IIIIIHHBB", body)[:7] for kind, body in _chunks(film) if kind == b"fcTL"]
    assert places == [(0, 3, 5, 0, 0, 50, 100), (1, 1, 1, 1, 2, 125, 100), (3, 1, 1, 0, 0, 100, 100)]
    parts = [body for kind, body in _chunks(film) if kind == b"fdAT"]
    assert [struct.unpack(">I", body[:4])[0] for body in parts] == [2, 4]
    assert zlib.decompress(parts[0][4:]) == b"\0" + bytes(3)


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found, rest = [], png[len(SIGNATURE) :]
    while rest:
        length, kind = struct.unpack(">I4s", rest[:8])
        body = rest[8 : 8 + length]
        assert struct.pack(">I", zlib.crc32(kind + body)) == rest[8 + length : 12 + length]
        found.append((kind, body))
        rest = rest[12 + length :]
    return found


def _filtered(kind: int, row: bytes, above: bytes) -> bytes:
    said = bytearray()
    for place, value in enumerate(row):
        left, corner = (row[place - 3], above[place - 3]) if place >= 3 else (0, 0)
        near = [abs(above[place] - corner), abs(left - corner), abs(left + above[place] - 2 * corner)]
        paeth = (left, above[place], corner)[near.index(min(near))]
        guesses = (0, left, above[place], (left + above[place]) // 2, paeth)
        said.append((value - guesses[kind]) % 256)
    return bytes(said)


def _png(filtered: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    # In two parts, as browsers store larger ones.
    data = zlib.compress(filtered)
    parts = ((b"IHDR", header), (b"IDAT", data[:5]), (b"IDAT", data[5:]), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I4s", len(body), kind) + body + bytes(4) for kind, body in parts
    )


def _data(png: bytes) -> bytes:
    start = png.index(b"IDAT") + 4
    return zlib.decompress(png[start : png.index(b"IEND") - 8])
