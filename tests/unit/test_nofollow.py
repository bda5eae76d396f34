"""Files that others can replace are opened in one place, which follows no link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks_app.core.files import NotRegularFile, create_file, open_file, open_folder

APP = Path(__file__).parents[2] / "tasks_app"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Beside a secret, to which links lead: as the file, as its folder, and as the root itself."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("own")
    (root / "a" / "link").symlink_to(tmp_path / "secret" / "file")
    (root / "a" / "folder").symlink_to(tmp_path / "secret")
    (root / "a" / "inside").symlink_to("b")
    os.mkfifo(root / "a" / "pipe")
    return root


def read(root: Path | int, path: str) -> str:
    with open_file(root, path) as file:
        return file.read().decode()


def test_a_file_is_opened_below_a_path_or_a_descriptor(root: Path) -> None:
    assert read(root, "a/b/file") == "own"
    with open_folder(root, "a/b") as folder:
        assert read(folder, "file") == "own"
        assert os.listdir(folder) == ["file"]  # noqa: PTH208
        with open_folder(folder) as same:
            assert same == folder
        assert os.fstat(folder)


def test_the_root_is_trusted(root: Path, tmp_path: Path) -> None:
    (tmp_path / "to-root").symlink_to(root)
    assert read(tmp_path / "to-root", "a/b/file") == "own"


@pytest.mark.parametrize(
    "path",
    [
        "a/link",
        "a/folder/file",
        "a/inside/file",
        "a/none",
        "none/file",
        "a/b/file/x",
        "a\0b",
        "../secret/file",
        "a/../../secret/file",
        "/etc/passwd",
        "//etc/passwd",
        "",
        ".",
    ],
)
def test_nothing_else_is_opened(root: Path, path: str) -> None:
    with pytest.raises(OSError):
        read(root, path)


@pytest.mark.parametrize("path", ["a/b", "a/pipe"])
def test_a_path_that_is_not_a_file_is_refused_at_once(root: Path, path: str) -> None:
    with pytest.raises(NotRegularFile):
        read(root, path)


@pytest.mark.parametrize("path", ["a/folder", "a/inside", "a/link", "a/b/file", "a/pipe", "..", "/etc"])
def test_only_a_folder_is_opened_as_one(root: Path, path: str) -> None:
    with pytest.raises(OSError), open_folder(root, path):
        pass


def test_a_file_is_created_and_replaces_nothing(root: Path) -> None:
    with create_file(root, "new", mode=0o600) as file:
        file.write(b"first")
    assert (root / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        create_file(root, "new", mode=0o600)
    with create_file(root, "new", mode=0o600, overwrite=True) as file:
        file.write(b"2")
    assert (root / "new").read_text() == "2"


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_not_created_through_a_link(root: Path, overwrite: bool) -> None:
    with pytest.raises(OSError), open_folder(root, "a") as folder:
        create_file(folder, "link", mode=0o600, overwrite=overwrite)
    assert (root.parent / "secret" / "file").read_text() == "secret"


def test_no_descriptor_stays_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in ("a/b/file", "a/link", "a/folder/file", "a/pipe", "a/b"):
        for _ in range(3):
            try:
                read(root, path)
            except OSError:
                continue
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_no_other_module_opens_without_following_links() -> None:
    found = [
        path.relative_to(APP).as_posix() for path in APP.rglob("*.py") if "O_NOFOLLOW" in path.read_text()
    ]
    assert found == ["core/files.py"]
