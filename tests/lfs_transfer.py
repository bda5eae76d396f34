"""A `git-lfs-transfer` for the ssh server of the tests: it takes contents over ssh itself.

Run as `python lfs_transfer.py PATH upload`. It knows the commands of an upload, and keeps contents in the
folder `lfs-over-ssh` beside the repository. https://github.com/git-lfs/git-lfs/blob/main/docs/proposals/ssh_adapter.md
"""

from __future__ import annotations

import sys
from pathlib import Path

_FLUSH, _DELIMITER = b"0000", b"0001"


def main() -> None:
    store = Path(sys.argv[1]).parent / "lfs-over-ssh"
    store.mkdir(exist_ok=True)
    send(b"version=1", _FLUSH)
    while command := read():
        words, data = arguments()
        name = command.split()[-1].decode()
        answer: list[bytes] = []
        if command.startswith(b"batch"):
            answer = [_DELIMITER, *(line.strip() + b" upload" for line in data)]
        elif command.startswith(b"put-object"):
            (store / name).write_bytes(b"".join(data))
        elif command.startswith(b"verify-object"):
            assert f"size={(store / name).stat().st_size}".encode() in words
        send(b"status 200", *answer, _FLUSH)
        if command == b"quit":
            return


def arguments() -> tuple[list[bytes], list[bytes]]:
    """Read the rest of a command: its arguments, and the packets of its data."""
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    at = 0
    while (packet := read(raw=at == 1)) != _FLUSH:
        if packet == _DELIMITER:
            at = 1
        else:
            parts[at].append(packet)
    return parts


def read(*, raw: bool = False) -> bytes:
    """Read one packet; a line of text without its end. "" at the end of the input."""
    head = sys.stdin.buffer.read(4)
    if head in (_FLUSH, _DELIMITER, b""):
        return head
    content = sys.stdin.buffer.read(int(head, 16) - 4)
    return content if raw else content.removesuffix(b"\n")


def send(*packets: bytes) -> None:
    for packet in packets:
        mark = packet in (_FLUSH, _DELIMITER)
        sys.stdout.buffer.write(packet if mark else b"%04x%s\n" % (len(packet) + 5, packet))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
