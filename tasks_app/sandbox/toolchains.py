"""Toolchains of the machine that a project may ask for by name, such as `rust` or `node` (M5).

A repository names toolchains and never paths. Those of rustup, nvm, pyenv and SDKMAN are found in the home of
the worker's user, or where their own variables lead; the installation may list others. Of a folder that a
version manager keeps, only programs, libraries and headers are shown, and nothing that is reached through a
link out of it: registry passwords and tokens are in the same folders (`~/.cargo/credentials.toml`,
`etc/npmrc` and `pip.conf` of a version).

A folder that projects may read (CATHERDER_READABLE) is asked for in the same way, by its path: it counts as a
toolchain without programs. Only listed folders are shown, and none that holds more than they should see.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tasks_app.core.environment_values import is_readable_folder
from tasks_app.sandbox.process_environment import search_path

#: What is shown of one installed version, if it has it.
_OF_A_VERSION = ("bin", "include", "lib", "lib64", "libexec", "share", "pyvenv.cfg")
_OF_A_JDK = (
    "bin", "conf/logging.properties", "conf/net.properties", "conf/security", "include", "jmods", "jre",
    "legal", "lib", "release",
)  # fmt: skip
_NUMBERS = re.compile(r"\d+")
_PREFIX = re.compile(r"v?\d+(\.\d+)*")


class NoToolchain(Exception):
    """The machine does not have a toolchain; the text says what was looked for, as part of a sentence."""


@dataclass(frozen=True)
class Toolchain:
    """A toolchain: what a sandboxed process may read, its folders for PATH, and its variables.

    `version` has texts that change when another version would be used.
    """

    readable: tuple[Path, ...]
    programs: tuple[Path, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    version: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolchains:
    """The toolchains of one task. `variables` include PATH. `versions` differ if any version differs."""

    readable: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, chosen: Iterable[Toolchain]) -> Toolchains:
        found = list(chosen)
        if not found:
            return cls()
        programs = [str(folder) for one in found for folder in one.programs]
        variables = {name: value for one in found for name, value in one.variables.items()}
        readable = dict.fromkeys(path for one in found for path in one.readable)
        path = os.pathsep.join([*programs, search_path()])
        return cls(tuple(readable), {**variables, "PATH": path}, tuple(one.version for one in found))


def find_toolchain(name: str, listed: Mapping[str, str], *, hidden: Sequence[Path] = ()) -> Toolchain:
    """Return the toolchain of that name: one that is `listed` with its folder, or a found one.

    Folders in `hidden` are never shown. Raises NoToolchain.
    """
    if is_readable_folder(name):
        return _readable(name, listed, hidden)
    if name in listed:
        return _listed(name, Path(listed[name]), hidden)
    if name not in _FOUND:
        known = ", ".join(sorted({*_FOUND, *listed}))
        raise NoToolchain(f"it knows {known}, and CATHERDER_TOOLCHAINS lists others")
    return _FOUND[name]()


def known_toolchains(listed: Mapping[str, str], *, hidden: Sequence[Path] = ()) -> dict[str, str]:
    """Return every toolchain by name, with why the machine does not have it; "" if it does."""
    return {name: why_missing(name, listed, hidden=hidden) for name in sorted({*_FOUND, *listed})}


def why_missing(name: str, listed: Mapping[str, str], *, hidden: Sequence[Path] = ()) -> str:
    try:
        find_toolchain(name, listed, hidden=hidden)
    except NoToolchain as error:
        return str(error)
    return ""


def _listed(name: str, folder: Path, hidden: Sequence[Path]) -> Toolchain:
    if not folder.is_dir():
        raise NoToolchain(f"{folder}, which CATHERDER_TOOLCHAINS names, is no folder")
    real, home = folder.resolve(), Path.home().resolve()
    if home.is_relative_to(real) or any(one.resolve().is_relative_to(real) for one in hidden):
        raise NoToolchain(f"{folder}, which CATHERDER_TOOLCHAINS names, holds more than a toolchain")
    programs = folder / "bin"
    if not programs.is_dir():
        programs = folder
    variable = re.sub(r"\W", "_", name).upper() + "_HOME"
    # Nobody knows how it tells its version; a new one in the same folder changes these times.
    changed = [str(path.stat().st_mtime_ns) for path in (folder, programs)]
    return Toolchain((folder,), (programs,), {variable: str(folder)}, (str(real), *changed))


def _readable(name: str, listed: Mapping[str, str], hidden: Sequence[Path]) -> Toolchain:
    if name not in listed:
        folders = ", ".join(filter(is_readable_folder, sorted(listed))) or "none"
        raise NoToolchain(f"CATHERDER_READABLE does not list it, but: {folders}")
    folder = Path(listed[name]).expanduser()
    if not folder.is_dir():
        raise NoToolchain(f"{folder} is no folder")
    real, home = folder.resolve(), Path.home().resolve()
    secret = [one.resolve() for one in hidden]
    if home.is_relative_to(real) or any(
        one.is_relative_to(real) or real.is_relative_to(one) for one in secret
    ):
        raise NoToolchain(f"{folder} holds more than agents may see")
    return Toolchain((folder,), (), {}, (str(real),))


def _rust() -> Toolchain:
    """Rust of rustup, whose programs read which version a project's rust-toolchain.toml names."""
    root, cargo = _root("RUSTUP_HOME", ".rustup"), _root("CARGO_HOME", ".cargo")
    programs = list(_inside(cargo, ["bin"]))
    toolchains = list(_inside(root, ["toolchains"]))
    if not toolchains or not programs or not (programs[0] / "cargo").exists():
        raise NoToolchain(f"rustup has no toolchain in {root}, or no programs in {cargo / 'bin'}")
    # rustup does not start if it cannot make this folder; it holds digests of downloads.
    own = _inside(root, ["settings.toml", "update-hashes"])
    readable = (*toolchains, *own, *programs)
    version = (*_file_names(root / "toolchains"), *_texts(root, ["settings.toml"]))
    updated = [f"update-hashes/{name}" for name in _file_names(root / "update-hashes")]
    return Toolchain(
        readable, tuple(programs), {"RUSTUP_HOME": str(root)}, (*version, *_texts(root, updated))
    )


def _node() -> Toolchain:
    """Node.js of nvm, in nvm's default version; `nvm use` chooses another."""
    root = _root("NVM_DIR", ".nvm")
    versions = _versions(root, "versions/node", program="bin/node")
    if not versions:
        raise NoToolchain(f"nvm has no version of Node.js in {root}")
    default = _default_of_nvm(root, versions)
    readable = [path for one in versions for path in _inside(root, _names_below(root, one, _OF_A_VERSION))]
    own = _inside(root, ["nvm.sh", "nvm-exec", "alias"])
    version = (default.name, *(one.name for one in versions))
    return Toolchain((*readable, *own), (default / "bin",), {"NVM_DIR": str(root)}, version)


def _default_of_nvm(root: Path, versions: Sequence[Path]) -> Path:
    """Return the version that nvm's alias `default` names: a version or its beginning, else the newest."""
    newest = max(versions, key=lambda one: _numbers(one.name))
    try:
        wanted = (root / "alias/default").read_text(encoding="utf-8")[:100].strip()
    except (OSError, UnicodeDecodeError):
        return newest
    if not _PREFIX.fullmatch(wanted):
        return newest
    numbers = _numbers(wanted)
    fitting = [one for one in versions if _numbers(one.name)[: len(numbers)] == numbers]
    return max(fitting, key=lambda one: _numbers(one.name), default=newest)


def _python() -> Toolchain:
    """Python of pyenv, whose programs read which version a project's .python-version names."""
    root = _root("PYENV_ROOT", ".pyenv")
    versions = _versions(root, "versions", program="bin/python")
    programs = list(_inside(root, ["shims", "bin"]))
    if not versions or not programs:
        raise NoToolchain(f"pyenv has no version of Python in {root}")
    readable = [path for one in versions for path in _inside(root, _names_below(root, one, _OF_A_VERSION))]
    own = _inside(root, ["libexec", "pyenv.d", "version"])
    version = (*(one.name for one in versions), *_texts(root, ["version"]))
    return Toolchain((*readable, *programs, *own), tuple(programs), {"PYENV_ROOT": str(root)}, version)


def _java() -> Toolchain:
    """A JDK of SDKMAN, in the version that is its current one."""
    root = _root("SDKMAN_DIR", ".sdkman")
    versions = _versions(root, "candidates/java", program="bin/java")
    current = (root / "candidates/java/current").resolve()
    chosen = next((one for one in versions if one.resolve() == current), None)
    if chosen is None:
        raise NoToolchain(f"SDKMAN has no current version of Java in {root}")
    readable = tuple(_inside(root, _names_below(root, chosen, _OF_A_JDK)))
    return Toolchain(readable, (chosen / "bin",), {"JAVA_HOME": str(chosen)}, (chosen.name,))


_FOUND: Mapping[str, Callable[[], Toolchain]] = {
    "java": _java, "node": _node, "python": _python, "rust": _rust,
}  # fmt: skip


def _root(variable: str, folder: str) -> Path:
    """Return where a version manager keeps its files. Raises NoToolchain."""
    given = os.environ.get(variable, "")
    root = Path(given or Path.home() / folder)
    if not root.is_absolute() or not root.is_dir():
        raise NoToolchain(f"there is no folder {root}, and {variable} names no other")
    if Path.home().resolve().is_relative_to(root.resolve()):
        raise NoToolchain(f"{variable} names {root}, which holds more than a toolchain")
    return root


def _versions(root: Path, folder: str, *, program: str) -> list[Path]:
    """Return the folders of installed versions that have the program; links are other names of them."""
    found = sorted((root / folder).glob("*"))
    return [one for one in found if not one.is_symlink() and one.is_dir() and (one / program).exists()]


def _names_below(root: Path, version: Path, names: Sequence[str]) -> list[str]:
    return [(version / name).relative_to(root).as_posix() for name in names]


def _inside(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the names that exist and do not lead out of the root through a link."""
    real = root.resolve()
    for name in names:
        path = root / name
        if path.exists() and path.resolve() == real / name:
            yield path


def _file_names(folder: Path) -> list[str]:
    if folder.is_dir():
        return sorted(path.name for path in folder.iterdir())
    return []


def _texts(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the beginnings of small files, without following links out of the root."""
    for path in _inside(root, names):
        with suppress(OSError):
            yield path.read_bytes()[:10_000].decode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(version)))
