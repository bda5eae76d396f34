"""The diff by which people judge what an agent did: it shows all of it, under its own name."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.template.loader import render_to_string

from tasks_app.core.text import in_one_line
from tasks_app.git import Repository, diff
from tasks_app.web.rendering.diff import FileDiff, parse_diff
from tasks_app.web.reviews import ThreadsBeside
from tasks_app.web.tasks.diff_files import FileBody, Row
from tests.integration.git_repository import GitRepository


def changed(folder: Path, **files: str) -> list[FileDiff]:
    """The diff of a commit that adds these files, as git writes it."""
    source = GitRepository.make(folder, **{"first.txt": "1\n"})
    base, head = source.git("rev-parse", "HEAD"), source.commit(**files)
    return parse_diff(diff(Repository(folder / ".git", str(folder)), base=base, head=head))


@pytest.mark.parametrize(
    "name",
    [
        "evil b/README.md",
        "a b/a b/a",
        'quo"te.py',
        "new\nline b/README.md",
        "back\\slash",
        "bell\x07.py",
        "ä ☃.md",
    ],
)
def test_no_name_passes_for_another(tmp_path: Path, name: str) -> None:
    (file,) = changed(tmp_path / "shop", **{name: "1\n"})
    assert file.path == name
    assert file.name.isprintable()


def test_a_renamed_file_has_its_own_names(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "shop", **{"old b/x": "1\n" * 20})
    base = source.git("rev-parse", "HEAD")
    source.git("mv", "old b", "new b")
    source.git("mv", "new b/x", 'new b/"y"')
    head = source.commit()
    (file,) = parse_diff(diff(Repository(source.path / ".git", str(source.path)), base=base, head=head))
    assert (file.old_path, file.path) == ("old b/x", 'new b/"y"')


def test_nothing_hides_in_a_diff(tmp_path: Path) -> None:
    """Signs that turn direction show other code than what runs (CVE-2021-42574)."""
    hidden = 'if admin: #\u202e { \u2066 \u200bx\u2069\r = "\x1b[8m"'
    (file,) = changed(tmp_path / "shop", **{"a\u202eyp.b": f"{hidden}\n@@ -1 +1 @@ \u202e\n"})
    rows = [Row(line=line) for line in ThreadsBeside().lines_of(file)]
    lines = render_to_string("tasks/_diff_file.html", {"body": FileBody(file, rows, [])})
    page = f"{in_one_line(file.path)} {lines}"
    assert not {"\u202e", "\u2066", "\u2069", "\u200b", "\x1b", "\r"} & set(page)
    assert "a⟨U+202E⟩yp.b" in page and "#⟨U+202E⟩ { ⟨U+2066⟩ ⟨U+200B⟩x⟨U+2069⟩␍ =" in page


def test_the_line_ends_of_another_system_are_no_noise(tmp_path: Path) -> None:
    (file,) = changed(tmp_path / "shop", **{"dos.txt": "one\r\ntwo\r\n"})
    assert [line.text for line in file.lines] == ["one", "two"]
