"""What a sandboxed process sees of the file system: a list of what is shown, all else is absent.

Every path has the same name inside as outside, and where one lies within another the innermost
decides. A data directory in /opt is hidden, the workspace in it is shown, and a run folder in that
is read-only, whatever the order in which they were named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import SandboxError
from tasks_app.sandbox.environment import search_path

_SYSTEM = tuple(Path(p) for p in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"))

# Of /etc, only what programs need to find libraries, names, certificates and their defaults. Keys,
# password hashes and the settings of services are not in the list, so they are not in the sandbox. A
# listed file that other users of the machine may not read is left out too: the portal may be root.
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

# bubblewrap leaves /proc/sys writable to a user number 0 without capabilities: seen with 0.8.0, where
# such a guest changed kernel.core_pattern of the host, which is a way out of any sandbox.
_PROC_READ_ONLY = tuple(
    Path("/proc", name) for name in ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")
)

# A tool on PATH in X/bin or X/shims needs these neighbours, and nothing else that X may hold: X can be
# ~/.local, which has keyrings, or ~/.cargo, which has registry passwords.
_TOOLCHAIN = ("bin", "include", "installs", "lib", "lib64", "libexec", "plugins", "pyvenv.cfg", "shims")
_TOOLCHAIN_OF_SHIMS = (*_TOOLCHAIN, "version", "versions")


@dataclass(frozen=True)
class Mount:
    """One thing shown at `path`; `arguments` are bubblewrap's own words for it."""

    path: Path
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """What a command asks for beyond the system: paths to write, to read, and to keep out of sight."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]


def mount_arguments(shown: Shown, *, tmp_size: int = 0) -> list[str]:
    """bubblewrap's arguments for the whole view, outer paths before those within them.

    `tmp_size` is how many bytes each temporary folder may hold, shared memory included; 0 leaves it to the
    kernel: half the memory.

    Raises SandboxError for a path that is missing, is the root, or was made to lead out of a folder
    which the guest can write.
    """
    _refuse_unsafe(shown)
    binds = [*_system(), *_etc(), *_tools(shown.hidden), *_asked_for(shown)]
    mounts = [
        *_kernel(),
        *_temporary(tmp_size),
        *(_mount(bind) for bind in binds),
        *_masks(binds, shown.hidden, tmp_size),
    ]
    ordered = sorted(mounts, key=lambda mount: len(mount.path.parts))
    # bubblewrap makes /dev a tmpfs that nothing bounds.
    return [*(word for mount in ordered for word in mount.arguments), "--remount-ro", "/dev"]


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


def _temporary(size: int) -> Iterator[Mount]:
    for path in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        yield Mount(Path(path), _tmpfs(path, size))


def _tmpfs(path: str, size: int) -> tuple[str, ...]:
    return (*(("--size", str(size)) if size else ()), "--tmpfs", path)


def _system() -> Iterator[_Bind]:
    return (_Bind(path, path) for path in _SYSTEM if path.is_dir() and not path.is_symlink())


def _etc() -> Iterator[_Bind]:
    etc = Path("/etc")
    for path in (found for name in _ETC for found in etc.glob(name)):
        # A link is followed here, as its target may lie where the sandbox has nothing (resolv.conf in /run).
        source = path.resolve()
        if _others_may_read(source):
            yield _Bind(source, path)


def _others_may_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:  # it is not there, or in a folder that this user may not look into
        return False


def _asked_for(shown: Shown) -> Iterator[_Bind]:
    # A path named both ways stays writable: the later bind of one place is the one that is seen.
    for path in shown.readable:
        yield _Bind(path.resolve(), _place(path))
    for path in shown.writable:
        yield _Bind(path.resolve(), _place(path), writable=True)


def _place(path: Path) -> Path:
    """Where to mount so that `path` works: beyond a link that the sandbox shows, its target."""
    return path.resolve() if _within(path, _SYSTEM) else path


def _tools(hidden: Sequence[Path]) -> Iterator[_Bind]:
    """The interpreter that runs the portal's helpers, and the programs of PATH."""
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    found = [path for folder in search_path().split(":") for path in _toolchain(Path(folder))]
    outside = [path for path in found if not _within(path.resolve(), [h.resolve() for h in hidden])]
    for path in dict.fromkeys([*sorted(prefixes), *outside]):
        if not _within(path.resolve(), _SYSTEM):
            yield from _both_names(path)


def _both_names(path: Path) -> Iterator[_Bind]:
    """A tool is found by the name on PATH, and its own links may use the real one."""
    real = path.resolve()
    if not _within(path, _SYSTEM):
        yield _Bind(real, path)
    if real != path:
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
    """An empty folder over every hidden place that some bind would show, under each of its names."""
    for bind in binds:
        for secret in (path.resolve() for path in hidden):
            if secret != bind.source and _within(secret, [bind.source]) and secret.exists():
                yield _mask(secret, bind.target / secret.relative_to(bind.source), size)


def _mask(secret: Path, place: Path, size: int) -> Mount:
    if secret.is_dir():
        return Mount(place, _tmpfs(str(place), size))
    return Mount(place, ("--ro-bind", "/dev/null", str(place)))


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _refuse_unsafe(shown: Shown) -> None:
    for path in (*shown.writable, *shown.readable):
        if not path.is_absolute() or path.resolve() == Path("/"):
            raise SandboxError(f"{path} cannot be shown in the sandbox: name a folder by its full path.")
        if not path.exists():
            raise SandboxError(f"{path} cannot be shown in the sandbox: it does not exist.")
        _refuse_leading_out(path, shown.writable)


def _refuse_leading_out(path: Path, writable: Sequence[Path]) -> None:
    """A guest may have put a link where the next run is to be given a folder."""
    for folder in writable:
        if path.is_relative_to(folder) and not path.resolve().is_relative_to(folder.resolve()):
            raise SandboxError(f"{path} leads out of {folder}, to {path.resolve()}.")
