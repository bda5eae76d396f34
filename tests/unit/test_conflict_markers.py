"""`make lint` fails on what a merge left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def look(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "-f", str(MAKEFILE), "no-conflict-markers"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("marker", ["<" * 7 + " HEAD", ">" * 7 + " 1234567 (subject)", ">" * 7])
def test_a_conflict_marker_in_any_tracked_file_is_named_with_its_line(tmp_path: Path, marker: str) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    document = tmp_path / "guide.md"
    document.write_text("Guide\n=======\n\n    " + "<" * 7 + " shown\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    assert look(tmp_path).returncode == 0
    document.write_text(f"Guide\n=======\n{marker}\n")
    done = look(tmp_path)
    assert done.returncode == 2 and f"guide.md:3:{marker}" in done.stdout


def test_a_folder_that_is_no_repository_is_not_taken_for_clean(tmp_path: Path) -> None:
    assert look(tmp_path).returncode == 2
