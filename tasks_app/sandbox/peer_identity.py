"""Finding out whether a sandboxed process is the peer of a connection to a server of this machine.

Agents share the network. A browser sends the portal's cookies to any port of the portal's host, also to a
development server that an agent started: these cookies must be of no use to the agent.

The kernel tells which socket is the peer (sock_diag), and /proc which process has it open. This portal's own
agents are the descendants of its bubblewrap processes. Agents of another portal on this machine, and other
sandboxes or containers that share our network, are in another PID namespace: the line `NSpid` in
/proc/PID/status, which everybody may read, has more numbers for them than for us. If the kernel cannot be
asked, and for connections from other machines, the peer does not count as sandboxed.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from tasks_app.core.process_files import process_ids, read_process_file

_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_ANY_COOKIE = b"\xff" * 8
#: struct nlmsghdr; the beginning of inet_diag_req_v2; inet_diag_sockid without its cookie.
_HEADER, _QUERY, _ENDS = struct.Struct("=LHHLL"), struct.Struct("=BBBxL"), struct.Struct("!HH16s16s4x")
#: The last fields of struct inet_diag_msg: user id and inode.
_USER_AND_INODE, _USER_OFFSET = struct.Struct("=LL"), 64
_ERRNO = struct.Struct("=l")
_PROC = Path("/proc")
_BWRAP = b"bwrap"

#: IP address and port.
SocketAddress = tuple[str, int]


class Peer(Enum):
    """What kind of process the peer is."""

    AGENT = auto()  # it runs in a sandbox of this portal
    SANDBOXED = auto()  # it runs in another sandbox or container of this machine
    OTHER = auto()  # no sandbox was found: an ordinary program, or one of another machine


@dataclass(frozen=True)
class PeerSocket:
    """The peer's socket: its user id and its inode, which no other socket has. Both are 0 if it is closed."""

    user_id: int
    inode: int


def find_peer_socket(client: SocketAddress, server: SocketAddress) -> PeerSocket | None:
    """Return the socket at `client` that is connected to `server`.

    Return None if it is not on this machine, or cannot be known.
    """
    try:
        reply = _query_kernel(client, server)
        if _HEADER.unpack_from(reply)[1] != _ERROR:
            return PeerSocket(*_USER_AND_INODE.unpack_from(reply, _HEADER.size + _USER_OFFSET))
        is_closed = -_ERRNO.unpack_from(reply, _HEADER.size)[0] == errno.ENOENT
        return PeerSocket(user_id=0, inode=0) if is_closed and _is_local(client[0]) else None
    except (OSError, ValueError, AttributeError, struct.error):
        return None


def _query_kernel(client: SocketAddress, server: SocketAddress) -> bytes:
    family, source, target = _pack_addresses(client[0], server[0])
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    body = query + _ENDS.pack(client[1], server[1], source, target) + _ANY_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        return kernel.recv(8192)


def _is_local(address: str) -> bool:
    """Return whether it is an IP address of this machine: sockets can be bound only to those."""
    version = ip_address(address.partition("%")[0]).version
    with socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6) as attempt:
        try:
            attempt.bind((address, 0))
        except OSError:
            return False
    return True


def _pack_addresses(client: str, server: str) -> tuple[int, bytes, bytes]:
    ends = [ip_address(address.partition("%")[0]) for address in (client, server)]
    plain = [(one.ipv4_mapped or one) if isinstance(one, IPv6Address) else one for one in ends]
    family = socket.AF_INET if all(one.version == 4 for one in plain) else socket.AF_INET6
    source, target = (one.packed.ljust(16, b"\0") for one in (plain if family == socket.AF_INET else ends))
    return family, source, target


def identify(peer_socket: PeerSocket, *, folder: Path) -> Peer:
    """Return what kind of process has the socket; `folder` is the data directory of this portal."""
    if _is_of_own_agent(peer_socket, folder=folder):
        return Peer.AGENT
    return Peer.SANDBOXED if _is_in_nested_namespace(peer_socket) else Peer.OTHER


def _is_of_own_agent(peer_socket: PeerSocket, *, folder: Path) -> bool:
    """Return whether the socket belongs to a process whose sandbox shows a part of `folder`.

    While such processes exist, a closed socket counts as theirs: they may close it after sending a request.
    So does a socket that no process seems to have, if one of them hides its sockets.
    """
    if peer_socket.inode and peer_socket.user_id != os.geteuid():
        return False
    agents = _agent_pids(folder)
    if not agents or not peer_socket.inode:
        return bool(agents)
    found = {pid: _has_socket(pid, peer_socket.inode) for pid in agents}
    if any(found.values()):
        return True
    if None not in found.values():
        return False
    return not any(_has_socket(pid, peer_socket.inode) for pid in process_ids() if pid not in agents)


def _is_in_nested_namespace(peer_socket: PeerSocket) -> bool:
    """Return whether the socket belongs to a process of a PID namespace inside our own.

    Only root can examine sockets of other users. Without root such a socket counts as sandboxed if all
    processes of its user are sandboxed; otherwise it is accepted, because a reverse proxy is often another
    user. A closed socket has no user: it counts as sandboxed while our own user has a sandboxed process in
    our network.
    """
    depth = len(_status("self", "NSpid"))
    nested = {pid: user_id for pid in process_ids() if (user_id := _nested_user_id(pid, depth)) is not None}
    if not peer_socket.inode:
        return any(user_id == os.geteuid() and _shares_network(pid) for pid, user_id in nested.items())
    found = {pid: _has_socket(pid, peer_socket.inode) for pid in nested}
    if any(found.values()):
        return True
    if not any(has is None and nested[pid] == peer_socket.user_id for pid, has in found.items()):
        return False
    others = [pid for pid in process_ids() if pid not in nested]
    if peer_socket.user_id != os.geteuid():
        return all(_user_id(pid) != peer_socket.user_id for pid in others)
    return not any(_has_socket(pid, peer_socket.inode) for pid in others)


def _nested_user_id(pid: int, depth: int) -> int | None:
    """Return the user of a process in a PID namespace deeper than `depth`, and None for other processes."""
    return _user_id(pid) if len(_status(pid, "NSpid")) > depth else None


def _user_id(pid: int) -> int | None:
    users = _status(pid, "Uid")
    return int(users[1]) if len(users) > 1 else None


def _status(pid: int | str, name: str) -> list[str]:
    """Return the values of a line in /proc/PID/status; none if the process has ended."""
    _, found, rest = _read(pid, "status").partition(f"\n{name}:".encode())
    return rest.partition(b"\n")[0].decode(errors="replace").split() if found else []


def _read(pid: int | str, name: str) -> bytes:
    """Return a file of the process in /proc, b"" if the process has ended."""
    try:
        return read_process_file(pid, name)
    except OSError:
        return b""


def _shares_network(pid: int) -> bool:
    """Return whether its network namespace is ours, or may not be examined."""
    try:
        return (_PROC / str(pid) / "ns/net").readlink() == (_PROC / "self/ns/net").readlink()
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False


def _agent_pids(folder: Path) -> set[int]:
    """Return the processes in sandboxes of this portal; the portal's own ancestors are no such sandboxes."""
    stats = {pid: stat for pid in process_ids() if (stat := _name_and_parent(pid)) is not None}
    parents = {pid: parent for pid, (_, parent) in stats.items()}
    own = set(_ancestry(os.getpid(), parents))
    shown = tuple(os.fsencode(f"{path}/") for path in (folder, folder.resolve()))
    sandboxes = {
        pid for pid, (name, _) in stats.items() if _BWRAP in name and pid not in own and _shows(pid, shown)
    }
    return {pid for pid in parents if sandboxes.intersection(_ancestry(pid, parents))} if sandboxes else set()


def _ancestry(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Yield the process, its parent, and so on.

    The table was not read at one moment and may have a circle, so its length limits the number of steps.
    """
    for _ in range(len(parents) + 1):
        yield pid
        if pid not in parents:
            return
        pid = parents[pid]


def _shows(pid: int, shown: tuple[bytes, ...]) -> bool:
    """Return whether it is a bubblewrap process whose arguments begin with one of the paths in `shown`."""
    words = _read(pid, "cmdline").split(b"\0")
    return words[0].endswith(_BWRAP) and any(word.startswith(shown) for word in words)


def _name_and_parent(pid: int) -> tuple[bytes, int] | None:
    """Return the name of the process's program, of at most 15 bytes, and its parent."""
    before, _, after = _read(pid, "stat").rpartition(b") ")
    try:
        return before.partition(b" (")[2], int(after.split(None, 2)[1])
    except (ValueError, IndexError):
        return None


def _has_socket(pid: int, inode: int) -> bool | None:
    """Return whether the process has the socket open, or None if it may not be examined."""
    try:
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if str(descriptor.readlink()) == f"socket:[{inode}]":
                    return True
    except PermissionError:
        return None
    except OSError:  # it has ended
        return False
    return False
