"""What the portal reads of a workspace while the agent is at work in it (R4)."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tasks_app.git import working_names, working_text

_EXCHANGE = 2


@contextmanager
def changing_places(one: Path, other: Path) -> Iterator[None]:
    """Each has the other's name from one moment to the next, as fast as can be."""
    over, kernel = threading.Event(), ctypes.CDLL(None)

    def change() -> None:
        while not over.is_set():
            kernel.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _EXCHANGE)

    agent = threading.Thread(target=change)
    agent.start()
    try:
        yield
    finally:
        over.set()
        agent.join()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a folder that is what it seems, and beside it a link that leads out."""
    for folder, file in (("work/a/tasks", "own.md"), ("portal/tasks", "secret.md")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).write_text(folder)
        (tmp_path / folder / "both.md").write_text(folder)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "portal")
    return tmp_path / "work"


def test_a_folder_that_becomes_a_link_while_it_is_looked_at_leads_nowhere(workspace: Path) -> None:
    seen: set[str] = set()
    with changing_places(workspace / "a", workspace / "link"):
        for _ in range(20_000):
            with suppress(OSError):
                seen.update(working_names(workspace, "a/tasks"))
    assert seen == {"own.md", "both.md"}


def test_nor_does_the_folder_of_a_file(workspace: Path) -> None:
    seen: set[str | None] = set()
    with changing_places(workspace / "a", workspace / "link"):
        for _ in range(20_000):
            with suppress(OSError):
                seen.add(working_text(workspace, "a/tasks/both.md"))
    assert seen == {None, "work/a/tasks"}


@pytest.mark.parametrize("path", ["../portal/tasks", "/etc", "link/tasks", "a/tasks/own.md", "", ".", "a\0b"])
def test_a_path_that_is_not_a_folder_of_the_workspace_has_no_names(workspace: Path, path: str) -> None:
    assert "secret.md" not in working_names(workspace, path)
    assert "passwd" not in working_names(workspace, path)
