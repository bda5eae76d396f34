"""R4: what a sandboxed process gets of the portal's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.sandbox import clean_env


def test_only_listed_names_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "DJANGO_SECRET_KEY",
        "ANTHROPIC_API_KEY",
        "DATABASE_URL",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        "PYTHONPATH",
    ):
        monkeypatch.setenv(name, "x")
    allowed = {"PATH", "LANG", "TZ", "TERM", "HOME", "TMPDIR", "USER", "LOGNAME", "UV_LINK_MODE"}
    assert {name for name in clean_env(Path("/h"), {}) if not name.startswith("LC_")} <= allowed


def test_language_and_time_zone_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    environment = clean_env(Path("/h"), {})
    assert (environment["LC_TIME"], environment["TZ"]) == ("de_DE.UTF-8", "Europe/Berlin")


def test_relative_empty_and_missing_folders_leave_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ".::bin:/no/such:/usr/bin:/bin")
    assert clean_env(Path("/h"), {})["PATH"] == "/h/.local/bin:/usr/bin:/bin"


def test_a_folder_that_cannot_be_looked_at_leaves_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: root's PATH after `su`, say. A name that is too long fails in the same way, for root too."""
    monkeypatch.setenv("PATH", f"/{'x' * 300}:/usr/bin:/usr/bin/env")
    assert clean_env(Path("/h"), {})["PATH"] == "/h/.local/bin:/usr/bin"


def test_an_empty_path_becomes_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert "/usr/bin" in clean_env(Path("/h"), {})["PATH"]


def test_what_is_installed_into_the_home_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install --user` said that its folder is not on PATH; beside a toolchain too."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert clean_env(Path("/h"), {})["PATH"] == "/h/.local/bin:/usr/bin:/bin"
    assert clean_env(Path("/h"), {"PATH": "/cargo:/bin"})["PATH"] == "/h/.local/bin:/cargo:/bin"


def test_what_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = clean_env(Path("/h"), {"HOME": "/elsewhere", "GIVEN": "yes"})
    assert (environment["HOME"], environment["GIVEN"]) == ("/elsewhere", "yes")
