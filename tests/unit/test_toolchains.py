"""M5: what is found of version managers, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.sandbox.toolchains import NoToolchain, Toolchains, find_toolchain, known_toolchains


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for variable in ("RUSTUP_HOME", "CARGO_HOME", "NVM_DIR", "PYENV_ROOT", "SDKMAN_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return home


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    return path


def test_a_machine_without_version_managers_says_what_was_looked_for(home: Path) -> None:
    known = known_toolchains({})
    assert sorted(known) == ["java", "node", "python", "rust"]
    assert known["rust"] == f"there is no folder {home}/.rustup, and RUSTUP_HOME names no other"


@pytest.mark.parametrize(
    ("name", "variable", "files"),
    [
        ("rust", "RUSTUP_HOME", ["toolchains/stable/bin/rustc"]),
        ("node", "NVM_DIR", ["versions/node/v20.1.0/bin/node"]),
        ("python", "PYENV_ROOT", ["versions/3.12.0/bin/python", "shims/python"]),
        ("java", "SDKMAN_DIR", ["candidates/java/21/bin/java"]),
    ],
)
def test_m5_each_is_found_by_its_variable(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, variable: str, files: list[str]
) -> None:
    root = tmp_path / "elsewhere"
    for file in files:
        program(root / file)
    if name == "java":
        (root / "candidates/java/current").symlink_to("21")
    program(tmp_path / "cargo/bin/cargo")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    monkeypatch.setenv(variable, str(root))
    found = find_toolchain(name, {})
    allowed = [root, tmp_path / "cargo/bin"]
    assert found.programs and all(any(one.is_relative_to(top) for top in allowed) for one in found.readable)
    assert root not in found.readable


@pytest.mark.parametrize(
    ("alias", "chosen"),
    [
        ("20", "v20.11.0"), ("v20.9.0", "v20.9.0"), ("9", "v9.1.0"), ("lts/*", "v22.0.0"),
        ("18", "v22.0.0"), ("", "v22.0.0"), ("20.9", "v20.9.0"), ("../../x", "v22.0.0"),
    ],
)  # fmt: skip
def test_the_default_version_of_nvm_is_first(home: Path, alias: str, chosen: str) -> None:
    for version in ("v9.1.0", "v20.9.0", "v20.11.0", "v22.0.0"):
        program(home / f".nvm/versions/node/{version}/bin/node")
    program(home / ".nvm/alias/default").write_text(f"{alias}\n")
    (folder,) = find_toolchain("node", {}).programs
    assert folder == home / f".nvm/versions/node/{chosen}/bin"


def test_r4_a_link_that_leads_out_is_not_shown(home: Path, tmp_path: Path) -> None:
    program(home / ".nvm/versions/node/v20.1.0/bin/node")
    (tmp_path / "secrets").mkdir()
    (home / ".nvm/versions/node/v20.1.0/share").symlink_to(tmp_path / "secrets")
    (home / ".nvm/versions/node/v21.0.0").symlink_to(tmp_path / "secrets")
    (home / ".nvm/alias").symlink_to(home)
    assert find_toolchain("node", {}).readable == (home / ".nvm/versions/node/v20.1.0/bin",)


def test_r4_programs_behind_a_link_are_no_toolchain(home: Path, tmp_path: Path) -> None:
    program(home / ".rustup/toolchains/stable/bin/rustc")
    program(tmp_path / "elsewhere/cargo")
    (home / ".cargo").mkdir()
    (home / ".cargo/bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoToolchain, match="no programs in"):
        find_toolchain("rust", {})


@pytest.mark.parametrize("root", ["/", "{home}", "{home}/..", "relative", "/absent"])
def test_r4_a_variable_that_names_more_than_a_toolchain_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    program(home / "versions/node/v1.0.0/bin/node")
    monkeypatch.setenv("NVM_DIR", root.format(home=home))
    with pytest.raises(NoToolchain):
        find_toolchain("node", {})


def test_r4_a_listed_folder_must_hold_a_toolchain_only(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "herder" / "data"
    data.mkdir(parents=True)
    program(tmp_path / "go/bin/go")
    found = find_toolchain("go", {"go": str(tmp_path / "go")}, hidden=(data,))
    assert found.readable == (tmp_path / "go",) and found.variables == {"GO_HOME": str(tmp_path / "go")}
    for folder in (home, home.parent, data, data.parent, tmp_path / "absent"):
        with pytest.raises(NoToolchain):
            find_toolchain("go", {"go": str(folder)}, hidden=(data,))


def test_rustup_finds_the_folder_that_it_would_make_otherwise(home: Path) -> None:
    """rustup 1.29 does not start if it cannot make `update-hashes`, and the sandbox is read-only there."""
    program(home / ".cargo/bin/cargo")
    program(home / ".rustup/toolchains/stable/bin/rustc")
    (home / ".rustup/update-hashes").mkdir()
    assert home / ".rustup/update-hashes" in find_toolchain("rust", {}).readable


def test_no_toolchain_changes_nothing() -> None:
    assert Toolchains.of([]) == Toolchains((), {})


@pytest.mark.parametrize(
    ("name", "files", "changes"),
    [
        ("rust", [".cargo/bin/cargo", ".rustup/toolchains/stable/bin/rustc"], [".rustup/update-hashes/stable",
          ".rustup/settings.toml", ".rustup/toolchains/1.80/bin/rustc"]),
        ("node", [".nvm/versions/node/v20.1.0/bin/node"], [".nvm/versions/node/v22.0.0/bin/node"]),
        ("python", [".pyenv/versions/3.12.0/bin/python", ".pyenv/shims/python"],
         [".pyenv/version", ".pyenv/versions/3.13.0/bin/python"]),
    ],
)  # fmt: skip
def test_m5_another_version_is_told_apart(
    home: Path, name: str, files: list[str], changes: list[str]
) -> None:
    for file in files:
        program(home / file)
    seen = [find_toolchain(name, {}).version]
    for change in changes:
        program(home / change)
        seen.append(find_toolchain(name, {}).version)
    assert len(set(seen)) == len(changes) + 1 and find_toolchain(name, {}).version == seen[-1]
    assert Toolchains.of([find_toolchain(name, {})]).versions == (seen[-1],)


def test_m5_another_jdk_is_told_apart(home: Path) -> None:
    java = home / ".sdkman/candidates/java"
    seen = []
    for version in ("21", "22"):
        program(java / version / "bin/java")
        (java / "current").unlink(missing_ok=True)
        (java / "current").symlink_to(version)
        seen.append(find_toolchain("java", {}).version)
    assert seen == [("21",), ("22",)]


class TestReadableFolders:
    """M5: `readable:` asks for a folder; the installation lists which may be asked for."""

    def test_a_listed_folder_is_shown_without_programs(self, home: Path, tmp_path: Path) -> None:
        folder = tmp_path / "datasets"
        folder.mkdir()
        found = find_toolchain(str(folder), {str(folder): str(folder)})
        assert (found.readable, found.programs, dict(found.variables)) == ((folder,), (), {})

    def test_a_folder_of_the_home_is_named_with_a_tilde(self, home: Path) -> None:
        (home / ".m2/repository").mkdir(parents=True)
        listed = {"~/.m2/repository": "~/.m2/repository"}
        assert find_toolchain("~/.m2/repository", listed).readable == (home / ".m2/repository",)

    @pytest.mark.parametrize("name", ["/srv/other", "~/.ssh", "/"])
    def test_r4_what_is_not_listed_is_refused(self, home: Path, name: str) -> None:
        with pytest.raises(NoToolchain):
            find_toolchain(name, {"/srv/data": "/srv/data"})

    def test_r4_the_home_and_the_portals_data_are_refused(self, home: Path, tmp_path: Path) -> None:
        data = tmp_path / "data"
        (data / "tasks").mkdir(parents=True)
        (tmp_path / "link").symlink_to(data / "tasks")
        for folder in (home, tmp_path, data, data / "tasks", tmp_path / "link"):
            listed = {str(folder): str(folder)}
            with pytest.raises(NoToolchain, match="more than agents may see"):
                find_toolchain(str(folder), listed, hidden=[data])

    def test_a_folder_that_is_gone_is_missing(self, home: Path, tmp_path: Path) -> None:
        gone = str(tmp_path / "gone")
        assert known_toolchains({gone: gone})[gone] == f"{gone} is no folder"
