"""A repository as a person has it on their machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class GitRepository:
    path: Path

    @classmethod
    def make(cls, path: Path, **files: str) -> GitRepository:
        """A repository on branch `main`, with one commit if there are files."""
        path.mkdir(parents=True)
        repository = cls(path)
        repository.git("init", "--quiet", "--initial-branch=main")
        if files:
            repository.commit(**files)
        return repository

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.path), *_SETTINGS, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "Change")
        return self.git("rev-parse", "HEAD")
