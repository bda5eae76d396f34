"""R1: what the portal's repository says is recorded survives a power cut.

Two proofs. A real file system in a file, which is copied at the cut: what was not synced by then is not in
the copy. And, where no file system may be mounted, a list of the calls that must sync.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks_app.git import Repository, Workspace, branch_name, durable, program
from tasks_app.sandbox import Sandbox
from tests.integration.git_repository import GitRepository


@dataclass
class Disk:
    """An ext4 file system in a file. Nothing is written to it before somebody syncs."""

    folder: Path
    cuts: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "disk"

    def mount(self, image: Path, at: Path) -> None:
        at.mkdir()
        _run("mount", "-o", "loop,commit=600", str(image), str(at))

    def cut_power(self) -> Path:
        """Where the file system as it would be after a power cut at this moment can be looked at."""
        self.cuts += 1
        image, at = self.folder / f"cut-{self.cuts}", self.folder / f"after-{self.cuts}"
        shutil.copyfile(self.folder / "image", image)
        self.mount(image, at)
        return at


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 64 * 1024**2)
    _run("mkfs.ext4", "-q", str(image))
    disk = Disk(tmp_path)
    disk.mount(image, disk.root)
    try:
        yield disk
    finally:
        for folder in (disk.root, *tmp_path.glob("after-*")):
            _run("umount", str(folder))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def repository_at(root: Path, source: GitRepository) -> Repository:
    return Repository(root / "repositories" / "1.git", str(source.path), "shop")


def recorded(root: Path, source: GitRepository) -> tuple[Workspace, str]:
    """A task's work, as the portal records it."""
    repository = repository_at(root, source)
    workspace = Workspace(root / "tasks" / "1" / "workspace", repository, branch_name("fix"))
    workspace.create(base=repository.head("main"))
    (workspace.path / "new").write_text("made by the agent\n")
    return workspace, workspace.snapshot(label="do", sandbox=Sandbox(None), publish=True).commit


@pytest.mark.disk
def test_what_was_fetched_and_recorded_is_there_after_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    """The repository, each reference, each object, and the clone with its files."""
    source = GitRepository.make(tmp_path / "source", a="one\n", **{"deep/er": "two\n"})
    repository_at(disk.root, source).fetch()
    after = repository_at(disk.cut_power(), source)
    assert after.problems() == []
    assert after.head("main") == source.git("rev-parse", "HEAD")

    newest = source.commit(a="changed\n")
    repository_at(disk.root, source).fetch()
    assert repository_at(disk.cut_power(), source).head("main") == newest

    workspace, commit = recorded(disk.root, source)
    root = disk.cut_power()
    after = repository_at(root, source)
    assert after.problems() == []
    assert (
        after.commit("refs/heads/cat-herder/fix")
        == after.commit("refs/cat-herder/cat-herder/fix/do")
        == commit
    )
    clone = root / workspace.path.relative_to(disk.root)
    assert (clone / "a").read_text() == "changed\n" and (clone / "deep/er").read_text() == "two\n"

    assert workspace.repository.problems() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks_app.git.repository.PACKS", 0)
        assert workspace.repository.tidy()
    after = repository_at(disk.cut_power(), source)
    assert after.problems() == [] and after.commit("refs/heads/cat-herder/fix") == commit


@pytest.mark.disk
def test_without_syncing_it_would_be_lost_and_a_fetch_repairs_it(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the syncs: the cut is a real one. And what an older portal left behind is repaired."""
    source = GitRepository.make(tmp_path / "source", a="one\n")
    repository_at(disk.root, source).fetch()
    monkeypatch.setattr(program, "_SETTINGS", (*program._SETTINGS, "core.fsync=none"))
    monkeypatch.setattr("tasks_app.git.repository.sync_folders", lambda folders: None)
    monkeypatch.setattr("tasks_app.git.repository.sync_tree", lambda folder, **_: None)
    source.commit(a="changed\n")
    repository = repository_at(disk.root, source)
    repository.git.run("config", "core.fsync", "none")
    repository.fetch()
    durable.sync_folder(repository.path)  # as any other process may: the names come, their content does not
    after = repository_at(disk.cut_power(), source)
    assert after.problems()
    monkeypatch.undo()
    assert after.fetch(thorough=True).repaired
    assert after.problems() == []
    assert after.head("main") == source.git("rev-parse", "HEAD")


def test_every_call_that_must_sync_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by git, which counts its own syncs; folders by the portal, because git syncs none."""
    events = tmp_path / "events"
    monkeypatch.setitem(program._FIXED, "GIT_TRACE2_EVENT", str(events))
    folders: list[Path] = []
    real = durable.sync_folder

    def noted(folder: Path) -> None:
        folders.append(folder)
        real(folder)

    monkeypatch.setattr(durable, "sync_folder", noted)
    source = GitRepository.make(tmp_path / "source", a="one\n")
    repository = repository_at(tmp_path, source)

    repository.fetch()
    assert _syncs(events) >= 3, "a pack, its index and a reference"
    at = repository.path
    assert {at / "objects/pack", at / "refs/source", at / "refs", at.parent} <= set(folders)

    for number in range(300):  # as after 300 tasks
        (at / f"refs/heads/cat-herder-old/{number}").mkdir(parents=True)
    for where, _, _ in os.walk(at):
        os.utime(where, (1e9, 1e9))
    folders.clear()
    repository.fetch()
    assert len(folders) < 10, "what is on the disk anyway is not synced with each fetch"

    folders.clear()
    _, commit = recorded(tmp_path, source)
    assert _syncs(events) >= 4
    names = {at / "objects/pack", at / "refs/heads/cat-herder", at / "refs/heads"}
    assert names | {at / "refs/cat-herder/cat-herder/fix"} <= set(folders)

    folders.clear()
    repository.set_refs(commit, "refs/heads/one", "refs/heads/two")
    assert _syncs(events) == 2
    assert at / "refs/heads" in folders

    folders.clear()
    monkeypatch.setattr("tasks_app.git.repository.PACKS", 0)
    assert repository.tidy()
    assert _syncs(events) >= 3
    assert {at / "objects/pack", at / "refs"} <= set(folders)


def _syncs(events: Path) -> int:
    """How many files git has synced since the last look."""
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    events.write_text("")
    found = [
        line for line in lines if line.get("category") == "fsync" and line["key"] == "fsync/hardware-flush"
    ]
    return sum(int(line["value"]) for line in found)
