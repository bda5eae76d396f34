"""When a file that somebody writes is taken for written (P12, `watch_tasks`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks_app.cli.repository import FileState, StableFiles, task_file_states


def state(modified: int = 1, size: int = 10) -> FileState:
    return FileState(modified, size, inode=7)


class TestSettling:
    @pytest.fixture
    def stable_files(self) -> StableFiles:
        return StableFiles(1.0)

    def test_a_file_is_named_once_after_it_kept_still(self, stable_files: StableFiles) -> None:
        found = {"a.md": state()}
        assert stable_files.update(found, now=0.0) == []
        assert stable_files.has_unstable
        assert stable_files.update(found, now=0.9) == []
        assert stable_files.update(found, now=1.0) == ["a.md"]
        assert not stable_files.has_unstable
        assert stable_files.update(found, now=9.0) == []

    def test_each_write_begins_the_wait_anew(self, stable_files: StableFiles) -> None:
        stable_files.update({"a.md": state(1)}, now=0.0)
        stable_files.update({"a.md": state(2)}, now=0.9)
        assert stable_files.update({"a.md": state(2)}, now=1.5) == []
        assert stable_files.update({"a.md": state(2)}, now=2.0) == ["a.md"]

    def test_a_change_is_named_again(self, stable_files: StableFiles) -> None:
        for now, size in ((0.0, 10), (1.0, 10), (2.0, 11)):
            stable_files.update({"a.md": state(size=size)}, now=now)
        assert stable_files.has_unstable
        assert stable_files.update({"a.md": state(size=11)}, now=3.0) == ["a.md"]

    def test_an_empty_file_is_not_written_yet(self, stable_files: StableFiles) -> None:
        """Editors empty a file before they write it."""
        for now in (0.0, 5.0):
            assert stable_files.update({"a.md": state(size=0)}, now=now) == []
        assert not stable_files.has_unstable

    def test_a_file_that_was_away_is_named_again(self, stable_files: StableFiles) -> None:
        """Editors that save by renaming take it away for a moment; what ran already is told by the rows."""
        found = {"a.md": state()}
        for now in (0.0, 1.0):
            stable_files.update(found, now=now)
        stable_files.update({}, now=2.0)
        stable_files.update(found, now=3.0)
        assert stable_files.update(found, now=4.0) == ["a.md"]

    def test_files_come_in_the_order_of_their_names(self, stable_files: StableFiles) -> None:
        found = {name: state() for name in ("b.md", "a.md", "10.md")}
        stable_files.update(found, now=0.0)
        assert stable_files.update(found, now=1.0) == ["10.md", "a.md", "b.md"]


class TestStates:
    def test_only_task_files_are_there(self, tmp_path: Path) -> None:
        for name in ("a.md", "_b.md", ".c.md", "d.txt", "e.md~", "f.md.swp"):
            (tmp_path / name).write_text("x")
        (tmp_path / "folder.md").mkdir()
        (tmp_path / "broken.md").symlink_to(tmp_path / "nowhere")
        os.mkfifo(tmp_path / "pipe.md")
        assert list(task_file_states(tmp_path)) == ["a.md"]

    def test_a_folder_that_is_gone_has_none(self, tmp_path: Path) -> None:
        assert task_file_states(tmp_path / "nowhere") == {}

    def test_a_file_written_over_is_in_another_state(self, tmp_path: Path) -> None:
        (tmp_path / "a.md").write_text("one")
        before = task_file_states(tmp_path)
        (tmp_path / "new").write_text("two")
        (tmp_path / "new").replace(tmp_path / "a.md")
        assert task_file_states(tmp_path) != before
