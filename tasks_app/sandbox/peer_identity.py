"""Whether a sandboxed process is at the other end of a connection to a server of this machine.

Agents share the network. A browser sends the portal's cookies to any port of the portal's host, so
to a development server that an agent started as well: what it gets must be of no use to it.

The kernel is asked which socket called (sock_diag), and /proc which process holds it. This portal's own
agents are the descendants of its bubblewrap processes. Agents of another portal on this machine, and
anything else in a sandbox or container that shares our network, live in another PID namespace: the line
`NSpid` in /proc/PID/status has more numbers than ours, and everybody may read it. Where the kernel cannot
be asked, and for calls from other machines, nobody is taken for sandboxed.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
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


class Peer(Enum):
    """What is known of the process that called."""

    AGENT = auto()  # it runs in a sandbox of this portal
    SANDBOXED = auto()  # it runs in some other sandbox or container of this machine
    OTHER = auto()  # neither was seen: an ordinary program, or one of another machine


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


def identify(caller: Caller, *, folder: Path) -> Peer:
    """Say which kind of process called; `folder` is the data directory of this portal. See `Peer`."""
    if is_guest(caller, folder=folder):
        return Peer.AGENT
    return Peer.SANDBOXED if _in_another_namespace(caller) else Peer.OTHER


def is_guest(caller: Caller, *, folder: Path) -> bool:
    """Whether the socket belongs to a guest whose sandbox shows something of `folder`, the data directory.

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


def _in_another_namespace(caller: Caller) -> bool:
    """Whether the socket belongs to a process of a PID namespace below our own.

    Sockets of other users can be looked at by root only. Without root such a caller counts as sandboxed if
    all processes of its user are; else it is let through, because a reverse proxy is often another user.
    A closed socket has no user any more: it counts as sandboxed while our own user has a sandboxed process
    in our network.
    """
    depth = len(_status("self", "NSpid"))
    nested = {pid: user for pid in _pids() if (user := _nested_user(pid, depth)) is not None}
    if not caller.inode:
        return any(user == os.geteuid() and _shares_network(pid) for pid, user in nested.items())
    held = {pid: _has(pid, caller.inode) for pid in nested}
    if any(held.values()):
        return True
    if not any(found is None and nested[pid] == caller.user for pid, found in held.items()):
        return False
    others = [pid for pid in _pids() if pid not in nested]
    if caller.user != os.geteuid():
        return all(_user(pid) != caller.user for pid in others)
    return not any(_has(pid, caller.inode) for pid in others)


def _nested_user(pid: int, depth: int) -> int | None:
    """The user of a process in a PID namespace below our own, which is `depth` deep; None for others."""
    return _user(pid) if len(_status(pid, "NSpid")) > depth else None


def _user(pid: int) -> int | None:
    users = _status(pid, "Uid")
    return int(users[1]) if len(users) > 1 else None


def _status(pid: int | str, name: str) -> list[str]:
    """The values of a line in /proc/PID/status, empty if there is none: the process may have ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(f"{name}:")), [])


def _shares_network(pid: int) -> bool:
    """Whether its network namespace is ours, or may not be looked at."""
    try:
        return (_PROC / str(pid) / "ns/net").readlink() == (_PROC / "self/ns/net").readlink()
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False


def _guests(folder: Path) -> set[int]:
    """The processes in the sandboxes of this portal, which is not in one of them itself."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    own = set(_line(os.getpid(), parents))
    sandboxes = {pid for pid in parents if pid not in own and _is_sandbox(pid, folder)}
    return {pid for pid in parents if sandboxes.intersection(_line(pid, parents))} if sandboxes else set()


def _line(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """The process, its parent and so on; no further than the table is long, which is not of one moment."""
    for _ in range(len(parents) + 1):
        yield pid
        if pid not in parents:
            return
        pid = parents[pid]


def _is_sandbox(pid: int, folder: Path) -> bool:
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
