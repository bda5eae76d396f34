"""The file system of a sandboxed process: only listed paths exist in it.

Every path has the same name inside as outside, except those that the placement moves. Of two nested paths
the inner one decides. For example, a data directory in /opt is hidden, the workspace in it is shown, and a
run folder in that is read-only, in whatever order they are listed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from tasks_app.core.errors import SandboxError
from tasks_app.sandbox.process_environment import search_path

#: After as many links the kernel gives up, too.
_MOST_LINKS = 40


@dataclass(frozen=True)
class Placement:
    """What is below `folder` on this host is below `shown_at` in sandboxes; other paths are the same.

    Agents find their sessions by the path of their workspace, so it must be the same on every host (M2). The
    data directory of a worker host may be anywhere: its sandboxes show it under the path of the portal's.
    Without a folder all paths are the same. "Inside" is what sandboxed processes call a path, "outside" what
    the host calls it.
    """

    folder: Path | None = None
    shown_at: Path | None = None

    @property
    def moves(self) -> bool:
        return self.folder != self.shown_at

    def inside(self, path: Path) -> Path:
        return _moved(path, self.folder, self.shown_at)

    def outside(self, path: Path) -> Path:
        return _moved(path, self.shown_at, self.folder)

    def real_path(self, path: Path) -> Path:
        """Follow the links of a path inside, as sandboxed processes do; return a path inside without links.

        As `os.path.realpath`, it accepts paths that do not exist.
        """
        if not self.moves:
            return Path(os.path.realpath(path))
        at, links = Path("/"), 0
        parts = list(reversed(_path_parts(path)))
        while parts:
            name = parts.pop()
            step = at.parent if name == ".." else at / name
            on_host = self.outside(step)
            if name != ".." and links < _MOST_LINKS and on_host.is_symlink():
                links += 1
                target = on_host.readlink()
                parts += reversed(_path_parts(target))
                if target.is_absolute():
                    at = Path("/")
            else:
                at = step
        return at


#: Sandboxes show every path as it is.
UNCHANGED = Placement()


def _moved(path: Path, source: Path | None, target: Path | None) -> Path:
    if source is None or target is None or not path.is_relative_to(source):
        return path
    return target / path.relative_to(source)


def _path_parts(path: PurePath) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


_SYSTEM = tuple(Path(p) for p in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"))
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108

# Of /etc, only what programs need to find libraries, names, certificates and their defaults. Keys, password
# hashes and the settings of services are not in the list, so they are not in the sandbox. Listed files that
# other users of the machine may not read are left out, too: the portal may be root.
_ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "maven",
    "mime.types",
    "nanorc",
    "networks",
    "npmrc",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pip.conf",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "python*",
    "redhat-release",
    "resolv.conf",
    "rpc",
    "ruby",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "texmf",
    "timezone",
    "xdg",
    "xml",
)

# bubblewrap leaves /proc/sys writable for user id 0 without capabilities. With 0.8.0 such a process could
# change kernel.core_pattern of the host, by which it can escape from any sandbox.
_PROC_READ_ONLY = tuple(
    Path("/proc", name) for name in ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
)

# A tool on PATH in X/bin or X/shims needs these neighbours, but nothing else in X: that can be ~/.local,
# which has keyrings, or ~/.cargo, which has registry passwords.
_TOOLCHAIN = ("bin", "include", "installs", "lib", "lib64", "libexec", "plugins", "pyvenv.cfg", "shims")
_TOOLCHAIN_OF_SHIMS = (*_TOOLCHAIN, "version", "versions")


@dataclass(frozen=True)
class Mount:
    """One mount at `path`, with bubblewrap's arguments for it."""

    path: Path
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class RequestedPaths:
    """The paths of a command, besides the system, that it may write or read, and those to be hidden.

    All are paths of the host; `placement` says under which paths the command sees the first two.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    placement: Placement = UNCHANGED


def mount_arguments(requested: RequestedPaths, *, tmp_size: int = 0) -> list[str]:
    """Return bubblewrap's arguments for all mounts, outer paths before inner ones.

    `tmp_size` is the maximum size of each temporary folder, shared memory included, in bytes. 0 leaves it to
    the kernel, which allows half the memory. Raises SandboxError for a path that is missing, is the root, or
    was changed to lead out of a folder that the sandboxed process can write.
    """
    _refuse_unsafe(requested)
    binds = [*_machine_binds(requested.hidden), *_requested_binds(requested)]
    mounts = [
        *_kernel(),
        *(Mount(Path(path), _tmpfs(path, tmp_size)) for path in _TEMPORARY),
        *(_mount(bind) for bind in binds),
        *_masks(binds, requested.hidden, tmp_size),
    ]
    ordered = sorted(mounts, key=lambda mount: len(mount.path.parts))
    # bubblewrap makes /dev and the root a tmpfs of unlimited size. What was written there would be lost.
    read_only = ("--remount-ro", "/dev", "--remount-ro", "/")
    return [*(word for mount in ordered for word in mount.arguments), *read_only]


@dataclass(frozen=True)
class _Bind:
    source: Path
    target: Path
    writable: bool = False


def _mount(bind: _Bind) -> Mount:
    flag = "--bind" if bind.writable else "--ro-bind"
    return Mount(bind.target, (flag, str(bind.source), str(bind.target)))


def _kernel() -> Iterator[Mount]:
    yield Mount(Path("/proc"), ("--proc", "/proc"))
    yield Mount(Path("/dev"), ("--dev", "/dev"))
    for path in filter(Path.exists, _PROC_READ_ONLY):
        yield _mount(_Bind(path, path))
    for path in filter(Path.is_symlink, _SYSTEM):
        yield Mount(path, ("--symlink", str(path.readlink()), str(path)))


def _tmpfs(path: str, size: int) -> tuple[str, ...]:
    if size:
        return ("--size", str(size), "--tmpfs", path)
    return ("--tmpfs", path)


#: What was found on this machine, when, by what it depends on. To look again takes milliseconds.
_found: dict[tuple[object, ...], tuple[float, tuple[_Bind, ...]]] = {}
_FOUND_SECONDS = 30.0
_MOST_FOUND = 16


def _machine_binds(hidden: tuple[Path, ...]) -> tuple[_Bind, ...]:
    """Return what every sandbox shows: system, settings and programs, as found at most 30 s ago.

    Found again at once if any of it is gone, because bubblewrap would fail.
    """
    key = (hidden, os.environ.get("PATH"), os.environ.get("HOME"))
    found_at, binds = _found.get(key, (0.0, ()))
    now = time.monotonic()
    there = all(os.path.exists(bind.source) for bind in binds)  # noqa: PTH110 (three times as fast)
    if not binds or now - found_at > _FOUND_SECONDS or not there:
        system = [_Bind(path, path) for path in _SYSTEM if path.is_dir() and not path.is_symlink()]
        binds = (*system, *_etc_binds(), *_program_binds(hidden))
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[key] = now, binds
    return binds


def _etc_binds() -> Iterator[_Bind]:
    etc = Path("/etc")
    for path in (found for name in _ETC for found in etc.glob(name)):
        # Follow links here: the sandbox may not have the target's folder (resolv.conf in /run).
        source = path.resolve()
        if _others_may_read(source):
            yield _Bind(source, path)


def _others_may_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:  # it does not exist, or this user may not search its folder
        return False


def _requested_binds(requested: RequestedPaths) -> Iterator[_Bind]:
    # A path in both lists stays writable: the later one of two binds takes effect.
    for path in requested.readable:
        yield _Bind(path.resolve(), requested.placement.inside(_mount_point(path)))
    for path in requested.writable:
        yield _Bind(path.resolve(), requested.placement.inside(_mount_point(path)), writable=True)


def _mount_point(path: Path) -> Path:
    """Return where to mount `path`: the target of a link in a system folder, which the sandbox shows."""
    return path.resolve() if _within(path, _SYSTEM) else path


def _program_binds(hidden: Sequence[Path]) -> Iterator[_Bind]:
    """Yield the interpreter that runs the portal's helper programs, and the programs on PATH."""
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    found = [path for folder in search_path().split(":") for path in _toolchain(Path(folder))]
    outside = [path for path in found if not _within(path.resolve(), [h.resolve() for h in hidden])]
    for path in dict.fromkeys([*sorted(prefixes), *outside]):
        # Under its name on PATH and under its real name, which its own links may use.
        real = path.resolve()
        if not _within(real, _SYSTEM) and not _within(path, _SYSTEM):
            yield _Bind(real, path)
        if not _within(real, _SYSTEM) and real != path:
            yield _Bind(real, real)


def _toolchain(folder: Path) -> Iterator[Path]:
    if _is_home_or_above(folder):
        return
    yield folder
    prefix = folder.parent
    if folder.name in ("bin", "sbin", "shims") and not _is_home_or_above(prefix):
        names = _TOOLCHAIN_OF_SHIMS if folder.name == "shims" else _TOOLCHAIN
        yield from (prefix / name for name in names if (prefix / name).exists())


def _is_home_or_above(folder: Path) -> bool:
    real = folder.resolve()
    return real.parent in (Path("/home"), Path("/Users")) or _within(Path.home().resolve(), [real])


def _masks(binds: Iterable[_Bind], hidden: Sequence[Path], size: int) -> Iterator[Mount]:
    """Yield an empty folder or file over every hidden path that a bind would show, for each of its names."""
    secrets = [path.resolve() for path in hidden]
    for bind in binds:
        for secret in secrets:
            if secret != bind.source and _within(secret, [bind.source]) and secret.exists():
                target = bind.target / secret.relative_to(bind.source)
                if secret.is_dir():
                    yield Mount(target, _tmpfs(str(target), size))
                else:
                    yield Mount(target, ("--ro-bind", "/dev/null", str(target)))


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _refuse_unsafe(requested: RequestedPaths) -> None:
    for path in (*requested.writable, *requested.readable):
        if not path.is_absolute() or path.resolve() == Path("/"):
            raise SandboxError(f"{path} cannot be shown in the sandbox: name a folder by its full path.")
        if not path.exists():
            raise SandboxError(f"{path} cannot be shown in the sandbox: it does not exist.")
        # A sandboxed process may have replaced a folder of the next run by a link.
        for folder in requested.writable:
            if path.is_relative_to(folder) and not path.resolve().is_relative_to(folder.resolve()):
                raise SandboxError(f"{path} leads out of {folder}, to {path.resolve()}.")
