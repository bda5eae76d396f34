"""A repository as a person has it on their machine."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = (
    *("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgSign=false"),
    *("-c", "maintenance.auto=false"),  # each commit would start another process
)
#: The files and folders (None) of each repository that was made, by its files: to write them takes a tenth of
#: the time of four processes of git.
_made: dict[tuple[tuple[str, str], ...], dict[Path, bytes | None]] = {}


@dataclass(frozen=True)
class GitRepository:
    path: Path

    @classmethod
    def make(cls, path: Path, **files: str) -> GitRepository:
        """A repository on branch `main`, with one commit if there are files."""
        path.mkdir(parents=True)
        repository = cls(path)
        if known := _made.get(tuple(files.items())):
            for name, content in known.items():
                if content is None:
                    (path / name).mkdir()
                else:
                    (path / name).write_bytes(content)
            return repository
        repository.git("init", "--quiet", "--template=", "--initial-branch=main")
        if files:
            repository.commit(**files)
        _made[tuple(files.items())] = {
            one.relative_to(path): one.read_bytes() if one.is_file() else None for one in path.rglob("*")
        }
        return repository

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.path), *_SETTINGS, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    @classmethod
    def make_large(cls, path: Path, *, files: int = 500, commits: int = 30, **extra: str) -> GitRepository:
        """A repository of the size of a real one: folders, and a history that git packs as deltas."""
        names = [f"src/part{number % 20}/module{number}.py" for number in range(files)]
        repository = cls.make(path, **{name: _long_text(name) for name in names}, **extra)
        for number in range(commits):
            name = names[number * 7 % files]
            repository.commit(**{name: _long_text(name, line=number % 50, text=f"changed = {number}")})
        repository.git("gc", "--quiet")
        return repository

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "Change")
        return self.git("rev-parse", "HEAD")


def _long_text(name: str, *, line: int = -1, text: str = "") -> str:
    """Return 60 lines that no other file has, so that git stores a changed file as a delta."""
    lines = [f"value_{number} = {hash_of(f'{name}:{number}')}" for number in range(60)]
    if line >= 0:
        lines[line] = text
    return "\n".join([*lines, ""])


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
