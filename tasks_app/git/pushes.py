"""Reading what a worker host pushes before git does: which other objects its deltas are based on (M1).

A pack may contain deltas to objects that are not in it, so that a change of a line is sent as one.
`receive-pack` takes such bases from anywhere in the repository, also from work that the host may not fetch.
The host could read that back, or learn of it by what git says of the result. So the bases are read from the
pack on its way, and git gets the end of the pack only if the host may read all of them: before that it
resolves no delta.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Collection, Generator

from tasks_app.git.repository import Repository

#: Bytes with which a pack ends: its checksum. git looks at no delta before it has them.
TRAILER_BYTES = 20
_READ, _INFLATED = 4 * 1024, 64 * 1024
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_COMMIT, _TREE, _BLOB, _TAG, _OFFSET_DELTA, _ID_DELTA = 1, 2, 3, 4, 6, 7
_LONGEST_NUMBER = 10
#: They are kept in memory, and a host could name as many as fit into a pack.
_MOST_BASES = 1_000_000

Reading = Generator[None, None, bytes]


class PushMalformed(Exception):
    """A push that git would not read either, or not in the same way."""


class PushReader:
    """Reads the body of a request to `git-receive-pack`, in pieces of any size.

    `bases` are the ids of the objects on which deltas are based by their id. git names objects of the same
    pack by their offset, which the portal offers, so these are others.
    """

    def __init__(self) -> None:
        self._bases: set[bytes] = set()
        #: Whether the client shows messages (`side-band-64k`).
        self.takes_messages = False
        #: Whether the body may end here: before a pack, or after it.
        self.is_complete = True
        self._data, self._at = b"", 0
        self._reading = self._read()
        next(self._reading)

    @property
    def bases(self) -> set[str]:
        return {one.hex() for one in self._bases}

    def feed(self, piece: bytes) -> None:
        """Read the next piece. Raises PushMalformed."""
        self._data, self._at = self._data[self._at :] + piece, 0
        try:
            self._reading.send(None)
        except StopIteration:
            raise PushMalformed("the push goes on after its end") from None

    def _read(self) -> Generator[None]:
        yield
        yield from self._read_commands()
        while self._at == len(self._data):
            yield
        self.is_complete = False
        header = yield from self._take(12)
        if header[:4] != b"PACK" or header[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
            raise PushMalformed("this is no pack of a known version")
        for _ in range(int.from_bytes(header[8:])):
            yield from self._read_object()
        yield from self._take(TRAILER_BYTES)
        self.is_complete = True
        if self._at < len(self._data):
            raise PushMalformed("the push goes on after its end")
        yield

    def _read_commands(self) -> Generator[None]:
        """Read the names of references, each in a line with its length, up to the empty line."""
        while True:
            length = yield from self._take(4)
            self.is_complete = False
            if not _LENGTH.fullmatch(length) or 0 < int(length, 16) < 4:
                raise PushMalformed("a line has no length")
            if length == b"0000":
                self.is_complete = True
                return
            line = yield from self._take(int(length, 16) - 4)
            self.takes_messages |= b"side-band-64k" in line.partition(b"\0")[2].split()

    def _read_object(self) -> Generator[None]:
        byte = (yield from self._take(1))[0]
        kind, size, bits = byte >> 4 & 7, byte & 15, 4
        while byte & 128:
            byte = (yield from self._take(1))[0]
            size, bits = size | (byte & 127) << bits, bits + 7
            if bits > 7 * _LONGEST_NUMBER:
                raise PushMalformed("an object has no size")
        if kind == _ID_DELTA:
            self._bases.add((yield from self._take(20)))
            if len(self._bases) > _MOST_BASES:
                raise PushMalformed(f"it has deltas to more than {_MOST_BASES:,} objects by their id")
        elif kind == _OFFSET_DELTA:
            for _ in range(_LONGEST_NUMBER):
                if not (yield from self._take(1))[0] & 128:
                    break
            else:
                raise PushMalformed("a delta has no base")
        elif kind not in (_COMMIT, _TREE, _BLOB, _TAG):
            raise PushMalformed(f"there are no objects of kind {kind}")
        yield from self._inflate(size)

    def _inflate(self, size: int) -> Generator[None]:
        """Read compressed data of this size to find its end."""
        unpacker, rest, seen = zlib.decompressobj(), b"", 0
        while not unpacker.eof:
            if not rest:
                rest = yield from self._some()
            try:
                seen += len(unpacker.decompress(rest, _INFLATED))
            except zlib.error as error:
                raise PushMalformed(f"an object cannot be decompressed: {error}") from error
            rest = unpacker.unconsumed_tail
            if seen > size:
                break
        if seen != size:
            raise PushMalformed("an object has another size than it says")
        self._at -= len(unpacker.unused_data)

    def _some(self) -> Reading:
        """Return the next bytes, at least one."""
        while self._at == len(self._data):
            yield
        start, self._at = self._at, min(self._at + _READ, len(self._data))
        return self._data[start : self._at]

    def _take(self, size: int) -> Reading:
        while len(self._data) - self._at < size:
            yield
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


def unreadable(repository: Repository, ids: Collection[str], refs: Collection[str]) -> set[str]:
    """Return the objects among `ids` to which none of the references, or folders of them, leads."""
    left = set(ids)
    if not left:
        return left
    tips = repository.git.run("for-each-ref", "--format=%(objectname)", *refs)
    # Bases are nearly always files of the newest commits. The whole history takes long.
    for extent in ("--no-walk", "--do-walk"):
        with tempfile.TemporaryFile() as order:
            order.write(tips)
            order.seek(0)
            words = ("rev-list", "--objects", "--no-object-names", extent, "--stdin")
            line = b""
            for piece in repository.git.stream(*words, stdin=order):
                *lines, line = (line + piece).split(b"\n")
                left.difference_update(one.decode() for one in lines)
                if not left:
                    return left
    return left
