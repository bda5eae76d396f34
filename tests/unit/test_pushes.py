"""M1: what the portal reads of a push before git resolves the deltas in it."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from pathlib import Path

import pytest

from tasks_app.git import publishing
from tasks_app.git.publishing import PushMalformed, PushReader
from tests.integration.git_repository import GitRepository

REF = f"{'0' * 40} {'1' * 40} refs/x\0report-status side-band-64k".encode()
COMMANDS = b"%04x%s0000" % (len(REF) + 4, REF)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    return GitRepository.make_large(tmp_path_factory.mktemp("push") / "large", files=60, commits=40)


def pack_of(repository: GitRepository, *revisions: str, options: tuple[str, ...] = ()) -> bytes:
    command = ["git", "-C", str(repository.path), "pack-objects", "--revs", "--stdout", "-q", *options]
    lines = "".join(f"{one}\n" for one in revisions).encode()
    return subprocess.run(command, input=lines, capture_output=True, check=True).stdout


def read(*pieces: bytes) -> PushReader:
    reader = PushReader()
    for piece in pieces:
        reader.feed(piece)
    return reader


def missing_bases(repository: GitRepository, pack: bytes, empty: Path) -> set[str]:
    """What git itself adds to the pack to complete it."""
    path = empty / "thin.pack"
    command = ["git", "-C", str(repository.path), "index-pack", "--stdin", "--fix-thin", str(path)]
    subprocess.run(command, input=pack, capture_output=True, check=True)
    with path.with_suffix(".idx").open("rb") as index:
        done = subprocess.run(["git", "show-index"], stdin=index, capture_output=True, text=True, check=True)
    in_order = sorted((int(offset), name) for offset, name, _ in map(str.split, done.stdout.splitlines()))
    return {name for _, name in in_order[int.from_bytes(pack[8:12]) :]}


@pytest.mark.parametrize("size", [1, 7, 4096, 10**9])
def test_the_bases_that_a_thin_pack_lacks_are_found_however_it_is_cut(
    repository: GitRepository, tmp_path: Path, size: int
) -> None:
    pack = pack_of(repository, "HEAD", "^HEAD~5", options=("--thin", "--delta-base-offset"))
    body = COMMANDS + pack
    reader = read(*(body[at : at + size] for at in range(0, len(body), size)))
    assert reader.bases == missing_bases(repository, pack, tmp_path) != set()
    assert reader.is_complete and reader.takes_messages


def test_a_pack_that_needs_nothing_has_no_bases(repository: GitRepository) -> None:
    pack = pack_of(repository, "HEAD", options=("--delta-base-offset",))
    reader = read(COMMANDS + pack)
    assert reader.bases == set() and reader.is_complete


def test_bases_in_the_pack_that_are_named_by_id_are_told_too(repository: GitRepository) -> None:
    """git of another kind may do so. Whether they are in the pack is only known when it was unpacked."""
    assert read(COMMANDS + pack_of(repository, "HEAD")).bases != set()


def test_large_contents_are_read_in_pieces() -> None:
    content = bytes(50_000_000)
    reader = read(COMMANDS + sealed(entry(3, content)))
    assert reader.is_complete


def test_a_push_without_a_pack_is_whole() -> None:
    assert read(b"0000").is_complete
    assert read(COMMANDS).is_complete
    assert not read(COMMANDS[:-1]).is_complete
    assert not read(COMMANDS + b"PACK").is_complete
    assert PushReader().is_complete


def sealed(*entries: bytes, version: int = 2) -> bytes:
    pack = b"PACK" + version.to_bytes(4) + len(entries).to_bytes(4) + b"".join(entries)
    return pack + hashlib.sha1(pack, usedforsecurity=False).digest()


def entry(kind: int, content: bytes, *, base: bytes = b"", size: int | None = None) -> bytes:
    size = len(content) if size is None else size
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    return bytes(head) + base + zlib.compress(content)


@pytest.mark.parametrize(
    "body",
    [
        b"000x", b"0001", b"0002", b"0003", b"+001", b"    ",
        COMMANDS + b"KCAP" + bytes(8),
        COMMANDS + sealed(version=4),
        COMMANDS + sealed(entry(3, b"a")) + b"x",
        COMMANDS + sealed() + b"0000",
        COMMANDS + sealed(entry(0, b"a")),
        COMMANDS + sealed(entry(5, b"a")),
        COMMANDS + sealed(entry(3, b"abc", size=2)),
        COMMANDS + sealed(entry(3, b"abc", size=4)),
        COMMANDS + sealed(b"\xb1" + b"\xff" * 12 + zlib.compress(b"a")),
        COMMANDS + sealed(entry(6, b"a", base=b"\xff" * 12)),
        COMMANDS + sealed(b"\x31not compressed"),
    ],
)  # fmt: skip
def test_what_git_would_not_read_in_the_same_way_is_refused(body: bytes) -> None:
    with pytest.raises(PushMalformed):
        read(body, b"more")


def test_a_bomb_is_left_where_it_is_longer_than_it_says() -> None:
    bomb = entry(3, bytes(200_000_000), size=10)
    with pytest.raises(PushMalformed, match="another size"):
        read(COMMANDS + sealed(bomb))


def test_a_push_with_deltas_to_endless_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_MOST_BASES", 3)
    deltas = [entry(7, b"x", base=bytes([number] * 20)) for number in range(4)]
    assert len(read(COMMANDS + sealed(*deltas[:3], deltas[0])).bases) == 3
    with pytest.raises(PushMalformed, match="more than 3 objects"):
        read(COMMANDS + sealed(*deltas))
