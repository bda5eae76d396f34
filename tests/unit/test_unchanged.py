"""A workspace's fingerprint: whatever an agent changes, changes it (R1)."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks_app.git import durable
from tasks_app.git.durable import Remembered, fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "src" / "a.py").write_text("one")
    (folder / "src" / "link").symlink_to("a.py")
    os.link(folder / "src" / "a.py", tmp_path / "elsewhere")
    if fingerprint([folder]) is None:
        pytest.skip("this file system may not set the times of changes")
    return folder


def keep_times(path: Path, change: Callable[[Path], object]) -> None:
    """Change a file, and put its time of modification back as an agent could."""
    before = path.lstat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.lstat().st_mtime_ns, path.lstat().st_size) == (before.st_mtime_ns, before.st_size)


def write_through_a_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 3) as mapped:
        mapped[:3] = b"two"


def replace_it(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text("two")
    fresh.replace(path)


def lead_the_link_elsewhere(folder: Path) -> None:
    (folder / "src/link").unlink()
    (folder / "src/link").symlink_to("b")


def replace_the_folder_by_a_link(folder: Path) -> None:
    (folder / "src").rename(folder.parent / "src")
    (folder / "src").symlink_to(folder.parent / "src")


CHANGES: dict[str, Callable[[Path], object]] = {
    "content, with its old time": lambda at: keep_times(at / "src/a.py", lambda path: path.write_text("two")),
    "content through a mapping": lambda at: keep_times(at / "src/a.py", write_through_a_mapping),
    "content through a hard link outside": lambda at: keep_times(
        at / "src/a.py", lambda _: (at.parent / "elsewhere").write_text("two")
    ),
    "another file in its place": lambda at: keep_times(at / "src/a.py", replace_it),
    "rights": lambda at: (at / "src/a.py").chmod(0o755),
    "a new file": lambda at: (at / "new").touch(),
    "a new folder": lambda at: (at / "new").mkdir(),
    "a removed file": lambda at: (at / "src/a.py").unlink(),
    "a renamed file": lambda at: (at / "src/a.py").rename(at / "src/b.py"),
    "a link that leads elsewhere": lead_the_link_elsewhere,
    "a commit": lambda at: (at / ".git/HEAD").write_text("ref: refs/heads/more\n"),
    "a folder that is a link now": replace_the_folder_by_a_link,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(change: str, folder: Path) -> None:
    before = fingerprint([folder])
    wait_for_the_clock(folder.parent)
    CHANGES[change](folder)
    assert fingerprint([folder]) not in (before, None)


def wait_for_the_clock(folder: Path) -> None:
    """Wait until a file that changes now gets another time than those before: the kernel counts in ticks."""
    (folder / "first").touch()
    first = (folder / "first").stat().st_ctime_ns
    while first == (folder / "first").stat().st_ctime_ns:
        (folder / "first").touch()


def test_nothing_changes_it_but_changes(folder: Path) -> None:
    before = fingerprint([folder])
    (folder / "src" / "a.py").read_text()
    assert fingerprint([folder]) == before


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    before = fingerprint([folder])
    wait_for_the_clock(folder.parent)
    (outside / "new").touch()
    assert fingerprint([folder]) == before


def test_too_many_files_have_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "MOST_ENTRIES", 5)
    assert fingerprint([folder])
    (folder / "one more").touch()
    assert fingerprint([folder]) is None


def test_what_is_gone_has_none(folder: Path) -> None:
    shutil.rmtree(folder)
    assert fingerprint([folder]) is None


@pytest.mark.skipif(durable._file_system(Path("/dev/shm").stat().st_dev) != "tmpfs", reason="no tmpfs")
def test_a_file_system_that_does_not_tell_of_mappings_has_none() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert fingerprint([Path(folder)]) is None


def test_only_the_same_fingerprint_gives_the_result_back() -> None:
    remembered: Remembered[str] = Remembered()
    remembered.put("a", "1", "one")
    assert (remembered.get("a", "1"), remembered.get("a", "2"), remembered.get("b", "1")) == (
        "one",
        None,
        None,
    )
    remembered.put("a", None, "two")
    assert remembered.get("a", "1") is remembered.get("a", None) is None


def test_no_more_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "MOST_REMEMBERED", 2)
    remembered: Remembered[int] = Remembered()
    for number in range(3):
        remembered.put(number, "x", number)
    assert [remembered.get(number, "x") for number in range(3)] == [None, 1, 2]
