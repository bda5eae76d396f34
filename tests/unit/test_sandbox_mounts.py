"""What every sandbox shows of the machine is looked for once in a while, not for each command (R4)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks_app.sandbox import mounts
from tasks_app.sandbox.mounts import RequestedPaths, mount_arguments


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that the machine was looked at."""
    made: list[str] = []
    look = mounts._etc_binds

    def noted() -> Iterator[Any]:
        made.append("look")
        return look()

    monkeypatch.setattr(mounts, "_found", {})
    monkeypatch.setattr(mounts, "_etc_binds", noted)
    return made


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, beside which are the libraries of its programs."""
    prefix = tmp_path / "tools"
    for name in ("bin", "lib"):
        (prefix / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{prefix / 'bin'}:/usr/bin")
    return prefix


def shown(folder: Path, *hidden: Path) -> list[str]:
    return mount_arguments(RequestedPaths((folder,), (), hidden))


def test_the_machine_is_not_looked_at_again_for_each_command(looks: list[str], tmp_path: Path) -> None:
    assert shown(tmp_path) == shown(tmp_path)
    assert len(looks) == 1


def test_it_is_looked_at_again_after_a_while(
    looks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_FOUND_SECONDS", -1.0)
    assert shown(tmp_path) == shown(tmp_path)
    assert len(looks) == 2


def test_what_is_gone_meanwhile_is_not_shown(looks: list[str], tools: Path, tmp_path: Path) -> None:
    """bubblewrap would not start."""
    assert str(tools / "lib") in shown(tmp_path)
    shutil.rmtree(tools / "lib")
    assert str(tools / "lib") not in shown(tmp_path)
    assert len(looks) == 2


def test_another_search_path_is_looked_at_at_once(
    looks: list[str], tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(tools / "bin") in shown(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    assert str(tools / "bin") not in shown(tmp_path)


def test_folders_that_are_hidden_are_kept_apart(looks: list[str], tools: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    assert str(tools / "bin") in shown(workspace)
    assert str(tools / "bin") not in shown(workspace, tools)
