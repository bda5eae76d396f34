"""Checksums: the SHA-1 with which git ends a pack, its index and so a bundle, and the SHA-256 of Git LFS."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1024**2
_HASH_BYTES = 20


def checksum_of(path: Path) -> str:
    """Return the checksum with which git ended the file. It says nothing about files that are not git's."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _HASH_BYTES, 0))
        return file.read().hex()


def is_intact(path: Path) -> bool:
    """Return whether a pack, or its index, ends with the checksum of its content. Raises OSError."""
    digest = hashlib.sha1(usedforsecurity=False)
    with path.open("rb") as file:
        left = path.stat().st_size - _HASH_BYTES
        while left > 0 and (piece := file.read(min(_PIECE, left))):
            digest.update(piece)
            left -= len(piece)
        return left == 0 and file.read() == digest.digest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the whole file, which is what Git LFS names a content by."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
