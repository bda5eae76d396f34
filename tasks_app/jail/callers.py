"""Whether a guest is at the other end of a connection to a server of this machine.

Guests share the network. A browser sends the portal's cookies to any port of the portal's host, so
to a development server that an agent started as well: what it gets must be of no use to it.

The kernel is asked which socket called (sock_diag), and /proc which processes are guests: the
descendants of the portal's own bubblewrap processes. Where the kernel cannot be asked, and for calls
from other machines, nobody is taken for a guest.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_ANY_COOKIE = b"\xff" * 8
#: struct nlmsghdr; the beginning of inet_diag_req_v2; inet_diag_sockid without its cookie.
_HEADER, _ASKED, _ENDS = struct.Struct("=LHHLL"), struct.Struct("=BBBxL"), struct.Struct("!HH16s16s4x")
#: What struct inet_diag_msg says last: user and inode.
_USER_AND_INODE, _USER_AT = struct.Struct("=LL"), 64
_ERRNO = struct.Struct("=l")
_PROC = Path("/proc")

Address = tuple[str, int]


@dataclass(frozen=True)
class Caller:
    """The socket that called: its user and its number, which no other has; both 0 once it is closed."""

    user: int
    inode: int


def caller_of(client: Address, server: Address) -> Caller | None:
    """Who called `server` from `client`; None if that is not on this machine, or cannot be known."""
    try:
        reply = _asked_kernel(client, server)
        if _HEADER.unpack_from(reply)[1] != _ERROR:
            return Caller(*_USER_AND_INODE.unpack_from(reply, _HEADER.size + _USER_AT))
        gone = -_ERRNO.unpack_from(reply, _HEADER.size)[0] == errno.ENOENT
        return Caller(user=0, inode=0) if gone and _is_own(client[0]) else None
    except (OSError, ValueError, AttributeError, struct.error):
        return None


def _asked_kernel(client: Address, server: Address) -> bytes:
    family, source, target = _packed(client[0], server[0])
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    body = asked + _ENDS.pack(client[1], server[1], source, target) + _ANY_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        return kernel.recv(8192)


def _is_own(name: str) -> bool:
    """Whether it is an address of this machine: only to such can a socket be bound."""
    address = ip_address(name.partition("%")[0])
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as attempt:
        try:
            attempt.bind((name, 0))
        except OSError:
            return False
    return True


def _packed(client: str, server: str) -> tuple[int, bytes, bytes]:
    ends = [ip_address(name.partition("%")[0]) for name in (client, server)]
    plain = [(one.ipv4_mapped or one) if isinstance(one, IPv6Address) else one for one in ends]
    family = socket.AF_INET if all(one.version == 4 for one in plain) else socket.AF_INET6
    source, target = (one.packed.ljust(16, b"\0") for one in (plain if family == socket.AF_INET else ends))
    return family, source, target


def is_guest(caller: Caller, *, folder: Path) -> bool:
    """Whether the socket belongs to a guest whose jail shows something of `folder`, the data directory.

    While there are guests, nobody else is believed to have a socket that was closed, as a guest may do
    once it has sent its request; nor one that is seen nowhere, if a guest hides its own.
    """
    if caller.inode and caller.user != os.geteuid():
        return False
    guests = _guests(folder)
    if not guests or not caller.inode:
        return bool(guests)
    held = {pid: _has(pid, caller.inode) for pid in guests}
    if any(held.values()):
        return True
    if None not in held.values():
        return False
    return not any(_has(pid, caller.inode) for pid in _pids() if pid not in guests)


def _guests(folder: Path) -> set[int]:
    """The processes in the jails of this portal, which is not in one of them itself."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    own = set(_line(os.getpid(), parents))
    jails = {pid for pid in parents if pid not in own and _is_jail(pid, folder)}
    return {pid for pid in parents if jails.intersection(_line(pid, parents))} if jails else set()


def _line(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """The process, its parent and so on; no further than the table is long, which is not of one moment."""
    for _ in range(len(parents) + 1):
        yield pid
        if pid not in parents:
            return
        pid = parents[pid]


def _is_jail(pid: int, folder: Path) -> bool:
    """Its arguments are those that `mounts.py` made."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    shown = tuple(os.fsencode(f"{path}/") for path in (folder, folder.resolve()))
    return words[0].endswith(b"bwrap") and any(word.startswith(shown) for word in words)


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def _parent(pid: int) -> int | None:
    try:
        return int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _has(pid: int, inode: int) -> bool | None:
    """Whether the process has the socket open; None if it does not let itself be looked at."""
    try:
        return any(_leads_to(path, f"socket:[{inode}]") for path in (_PROC / str(pid) / "fd").iterdir())
    except PermissionError:
        return None
    except OSError:  # it has ended
        return False


def _leads_to(link: Path, wanted: str) -> bool:
    try:
        return str(link.readlink()) == wanted
    except FileNotFoundError:  # closed since
        return False
