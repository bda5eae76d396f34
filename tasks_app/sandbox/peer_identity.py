"""Finding out whether a sandboxed process may be the peer of a connection to a server of this machine.

Agents share the network. A browser sends the portal's cookies to any port of the portal's host, also to a
development server that an agent started, and agents may find a token: neither must be of use to them.

An agent has many ways to hide a socket: send it over a Unix socket and never receive it, keep it in a thread
with a descriptor table of its own, in an io_uring, or in a process whose main thread has ended. So the proof
is positive: while a sandboxed process lives, a peer on this machine is accepted only if it is shown to be
outside of all sandboxes. The kernel tells which socket it is, of which user, and in which cgroup it was made
(sock_diag). It is outside if

* no sandboxed process that shares our network runs as its user,
* the socket was made in a cgroup of processes outside, which is neither the cgroup of one of those nor below
  it, or
* a process outside, in that cgroup, has it open.

A sandboxed process is in another PID namespace than we: the line `NSpid` in /proc/PID/status, which everybody
may read, has more numbers. It cannot change its user or its PID namespace. Where the cgroup is its user's, it
can make others below it, move there and back, and remove them; so the cgroup of its parent counts, too. The
first process of a sandbox is bubblewrap's own and lives as long as the sandbox, as does its parent, which is
outside and cannot be moved.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from tasks_app.core.files import process_ids, read_process_file

_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_ANY_COOKIE = b"\xff" * 8
#: struct nlmsghdr; the beginning of inet_diag_req_v2; inet_diag_sockid without its cookie.
_HEADER, _QUERY, _ENDS = struct.Struct("=LHHLL"), struct.Struct("=BBBxL"), struct.Struct("!HH16s16s4x")
#: Of struct inet_diag_msg: the cookie, then, after three numbers, user id and inode.
_FOUND, _FOUND_OFFSET, _FOUND_BYTES = struct.Struct("=Q12xLL"), 44, 72
_ATTRIBUTE, _CGROUP_ID, _CGROUP = struct.Struct("=HH"), 21, struct.Struct("=Q")
_ERRNO = struct.Struct("=l")
#: Of struct rtmsg: the family, the bits of the target's address and, in replies, the type of the route.
_ROUTE = struct.Struct("=BB5xB4x")
_GET_ROUTE, _ROUTE_TARGET, _ROUTE_DEVICE, _TO_THIS_MACHINE = 26, 1, 4, 2
#: Of struct ifaddrmsg: the number of the device. Two of its attributes.
_LISTED, _ADDRESS, _OWN_ADDRESS = struct.Struct("=4xL"), 1, 2
_GET_ADDRESS, _LIST, _DONE = 22, 0x300, 3
_PROC = Path("/proc")
_DEVICES = Path("/sys/class/net")
_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_BWRAP = b"bwrap"

#: IP address and port.
SocketAddress = tuple[str, int]


@dataclass(frozen=True)
class PeerSocket:
    """The peer's socket. All are 0 if it is closed.

    `cookie` is never used again for another socket; a later socket may have the same inode. `cgroup` is the
    id of the cgroup in which the socket was made, 0 if the kernel does not tell.
    """

    user_id: int
    inode: int
    cookie: int = 0
    cgroup: int = 0


_CLOSED = PeerSocket(user_id=0, inode=0)


def find_peer_socket(client: SocketAddress, server: SocketAddress) -> PeerSocket | None:
    """Return the socket at `client` that is connected to `server`.

    Return None if it is not on this machine, or cannot be known.
    """
    try:
        reply = _query_kernel(client, server)
        if _HEADER.unpack_from(reply)[1] != _ERROR:
            cookie, user_id, inode = _FOUND.unpack_from(reply, _HEADER.size + _FOUND_OFFSET)
            if inode:
                return PeerSocket(user_id, inode, cookie, _cgroup_in(reply))
            return _CLOSED
        is_closed = -_ERRNO.unpack_from(reply, _HEADER.size)[0] == errno.ENOENT
        if is_closed and is_own_address(client[0]):
            return _CLOSED
        return None
    except (OSError, ValueError, AttributeError, struct.error):
        return None


def _query_kernel(client: SocketAddress, server: SocketAddress) -> bytes:
    family, source, target = _pack_addresses(client[0], server[0])
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    body = query + _ENDS.pack(client[1], server[1], source, target) + _ANY_COOKIE
    return _ask_kernel(_NETLINK_SOCK_DIAG, _BY_FAMILY, body)


def _ask_kernel(subject: int, kind: int, body: bytes) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, subject) as kernel:
        kernel.settimeout(1)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST, 1, 0) + body)
        return kernel.recv(8192)


def _cgroup_in(reply: bytes) -> int:
    """Return the attribute INET_DIAG_CGROUP_ID of a reply; 0 without it (before Linux 5.9)."""
    found = dict(_attributes(reply[_HEADER.size + _FOUND_BYTES :])).get(_CGROUP_ID)
    return int(_CGROUP.unpack(found)[0]) if found else 0


def is_own_address(address: str) -> bool:
    """Return whether it is an IP address of this machine.

    The kernel's routes say so. Sockets may be bound to any address where `ip_nonlocal_bind` is set, and the
    second address of a network has the first one as its source.
    """
    plain, _, zone = address.partition("%")
    try:
        parsed = ip_address(plain)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        size, length = _ATTRIBUTE.size, len(parsed.packed)
        body = _ROUTE.pack(socket.AF_INET if parsed.version == 4 else socket.AF_INET6, length * 8, 0)
        body += _ATTRIBUTE.pack(size + length, _ROUTE_TARGET) + parsed.packed
        if zone and parsed.version == 6:
            device = int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
            body += _ATTRIBUTE.pack(size + 4, _ROUTE_DEVICE) + struct.pack("=L", device)
        reply = _ask_kernel(socket.NETLINK_ROUTE, _GET_ROUTE, body)
    except (OSError, ValueError, AttributeError, struct.error):
        return False
    is_route = len(reply) >= _HEADER.size + _ROUTE.size and _HEADER.unpack_from(reply)[1] != _ERROR
    return is_route and _ROUTE.unpack_from(reply, _HEADER.size)[2] == _TO_THIS_MACHINE


def own_addresses() -> set[str]:
    """Return the IP addresses of this machine by which others may know it; none if the kernel does not tell.

    Those of bridges are left out: they are of networks for containers, and elsewhere mean something else.
    """
    found: set[str] = set()
    with suppress(OSError, ValueError, struct.error):
        for device, addresses in _listed_addresses():
            # Of a tunnel the second is its own, and the first that of its other end.
            address = ip_address(addresses.get(_OWN_ADDRESS) or addresses[_ADDRESS])
            if not address.is_loopback and not (_DEVICES / socket.if_indextoname(device) / "bridge").exists():
                found.add(str(address))
    return found


def _listed_addresses() -> Iterator[tuple[int, dict[int, bytes]]]:
    """Yield the number of a device and the attributes of one of its addresses."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(1)
        kernel.send(
            _HEADER.pack(_HEADER.size + _LISTED.size, _GET_ADDRESS, _REQUEST | _LIST, 1, 0) + bytes(8)
        )
        while reply := kernel.recv(65536):
            while reply:
                length, kind = _HEADER.unpack_from(reply)[:2]
                if kind in (_DONE, _ERROR):
                    return
                (device,) = _LISTED.unpack_from(reply, _HEADER.size)
                yield device, dict(_attributes(reply[_HEADER.size + _LISTED.size : length]))
                reply = reply[_padded(length) :]


def _attributes(block: bytes) -> Iterator[tuple[int, bytes]]:
    while len(block) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(block)
        yield kind, block[_ATTRIBUTE.size : length]
        block = block[max(_padded(length), _ATTRIBUTE.size) :]


def _padded(length: int) -> int:
    """Return the length with the bytes that fill it up to a multiple of 4."""
    return (length + 3) // 4 * 4


def _pack_addresses(client: str, server: str) -> tuple[int, bytes, bytes]:
    ends = [ip_address(address.partition("%")[0]) for address in (client, server)]
    plain = [(one.ipv4_mapped or one) if isinstance(one, IPv6Address) else one for one in ends]
    family = socket.AF_INET if all(one.version == 4 for one in plain) else socket.AF_INET6
    source, target = (one.packed.ljust(16, b"\0") for one in (plain if family == socket.AF_INET else ends))
    return family, source, target


@dataclass(frozen=True)
class _Cgroup:
    """A cgroup of version 2: its id, which sockets have, and its folder."""

    id: int
    folder: Path


@dataclass(frozen=True)
class _Process:
    """A process as /proc shows it. `inside` are the numbers of its PID namespaces, `users` its user ids."""

    pid: int
    parent: int
    inside: int
    users: frozenset[int]
    is_dead: bool


def sandbox_is_active(*, folder: Path, allow_others: bool) -> bool:
    """Return whether a sandboxed process lives that shares our network.

    `folder` is the data directory of this portal. With `allow_others`, only sandboxes of this portal count.
    """
    return bool(_sandboxed(list(_processes()), folder, allow_others=allow_others))


def maybe_sandboxed(peers: Iterable[PeerSocket], *, folder: Path, allow_others: bool) -> set[PeerSocket]:
    """Return those that are not shown to be outside of all sandboxes; see `sandbox_is_active`.

    A closed socket never is: its sandbox may have ended since.
    """
    peers = set(peers)
    processes = list(_processes())
    sandboxed = _sandboxed(processes, folder, allow_others=allow_others)
    inside = {process.pid for process in sandboxed}
    depth = None if allow_others else _own_depth()
    outside = [one.pid for one in processes if one.pid not in inside and depth in (None, one.inside)]
    unshown = {
        peer
        for peer in peers - {_CLOSED}
        if (same_user := [one for one in sandboxed if peer.user_id in one.users])
        and not _is_in_other_cgroup(peer, same_user, outside)
    }
    if unshown:
        unshown -= _held_by(outside, unshown, depth)
    return unshown | (peers & {_CLOSED})


def _is_in_other_cgroup(peer: PeerSocket, sandboxed: Iterable[_Process], outside: Iterable[int]) -> bool:
    """Return whether the socket was made in a cgroup of processes outside that is not below a sandbox's."""
    theirs = {_cgroup_of(pid) for process in sandboxed for pid in (process.pid, process.parent)}
    if not peer.cgroup or None in theirs:
        return False
    others = (cgroup for pid in outside if (cgroup := _cgroup_of(pid)) and cgroup.id == peer.cgroup)
    made_in = next(others, None)
    return made_in is not None and not any(made_in.folder.is_relative_to(one.folder) for one in theirs if one)


def _processes() -> Iterator[_Process]:
    for pid in process_ids():
        status = _read(pid, "status")
        if inside := _numbers_in(status, b"NSpid"):
            threads = _numbers_in(status, b"Threads")
            is_dead = b"\nState:\tZ" in status and threads in ([0], [1])
            parent = sum(_numbers_in(status, b"PPid"))
            yield _Process(pid, parent, len(inside), frozenset(_numbers_in(status, b"Uid")), is_dead)


def _sandboxed(processes: Collection[_Process], folder: Path, *, allow_others: bool) -> list[_Process]:
    depth = _own_depth()
    nested = [one for one in processes if one.inside > depth and not one.is_dead and _shares_network(one.pid)]
    if allow_others and nested:
        own = _agent_pids(folder)
        return [one for one in nested if one.pid in own]
    return nested


def _held_by(pids: Iterable[int], peers: Collection[PeerSocket], depth: int | None) -> set[PeerSocket]:
    """Return the sockets that one of the processes has open.

    Everything is read below one descriptor of /proc/PID, so that it is of one process even if another one
    gets its number meanwhile. With `depth`, the process must have that many numbers.
    """
    left = {f"socket:[{peer.inode}]": peer for peer in peers}
    cgroups = {peer.cgroup for peer in peers}
    found: set[PeerSocket] = set()
    for pid in pids:
        if len(found) == len(left):
            break
        if 0 not in cgroups and (cgroup := _cgroup_of(pid)) and cgroup.id not in cgroups:
            continue
        with suppress(OSError):  # it has ended, or may not be examined
            folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                found.update(left[name] for name in _open_files(folder, depth) if name in left)
            finally:
                os.close(folder)
    return found


def _open_files(folder: int, depth: int | None) -> list[str]:
    """Return what the process has open whose folder in /proc this is."""
    names = []
    descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        for descriptor in os.listdir(descriptors):  # noqa: PTH208 - pathlib takes no descriptor
            with suppress(FileNotFoundError):  # closed meanwhile
                names.append(os.readlink(descriptor, dir_fd=descriptors))
    finally:
        os.close(descriptors)
    status = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(status, "rb") as file:
        inside = len(_numbers_in(file.read(), b"NSpid"))
    return names if depth in (None, inside) else []


def _own_depth() -> int:
    return len(_numbers_in(_read("self", "status"), b"NSpid"))


def _numbers_in(status: bytes, name: bytes) -> list[int]:
    """Return the numbers in a line of /proc/PID/status; none if the process has ended."""
    _, _, rest = status.partition(b"\n" + name + b":")
    return [int(word) for word in rest.partition(b"\n")[0].split()]


def _read(pid: int | str, name: str) -> bytes:
    """Return a file of the process in /proc, b"" if the process has ended."""
    try:
        return read_process_file(pid, name)
    except OSError:
        return b""


@cache
def _cgroup_root() -> Path:
    return next((one for one in _CGROUPS if (one / "cgroup.controllers").exists()), _CGROUPS[0])


def _cgroup_of(pid: int) -> _Cgroup | None:
    """Return the process's cgroup, None if it cannot be known."""
    for line in _read(pid, "cgroup").splitlines():
        path = os.fsdecode(line.removeprefix(b"0::/"))
        if line.startswith(b"0::/") and ".." not in path.split("/"):  # not outside of our own root
            with suppress(OSError):
                folder = _cgroup_root() / path
                return _Cgroup(folder.stat().st_ino, folder)
    return None


def _shares_network(pid: int) -> bool:
    """Return whether its network namespace is ours, or may not be examined."""
    try:
        return (_PROC / str(pid) / "ns/net").readlink() == (_PROC / "self/ns/net").readlink()
    except OSError:
        return True


def _agent_pids(folder: Path) -> set[int]:
    """Return the processes in sandboxes of this portal, without a sandbox that the portal itself runs in."""
    stats = {pid: stat for pid in process_ids() if (stat := _name_and_parent(pid)) is not None}
    parents = {pid: parent for pid, (_, parent) in stats.items()}
    own = set(_ancestry(os.getpid(), parents))
    shown = tuple(os.fsencode(f"{path}/") for path in (folder, folder.resolve()))
    sandboxes = {
        pid for pid, (name, _) in stats.items() if _BWRAP in name and pid not in own and _shows(pid, shown)
    }
    if sandboxes:
        return {pid for pid in parents if sandboxes.intersection(_ancestry(pid, parents))}
    return set()


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
