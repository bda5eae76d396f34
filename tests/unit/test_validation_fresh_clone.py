"""M5: `validate` says what a fresh clone will lack, and what to write into cat-herder.yaml about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks_app.config.pipeline import load_project_config
from tasks_app.config.validation import Report, validate
from tasks_app.config.validation.fresh_clone import fresh_clone_findings
from tasks_app.config.validation.repository_context import RepositoryContext
from tasks_app.config.validation.settings_file import read_settings_file

PROMPTS = Path(__file__).parents[2] / "prompts"
_MODULES = '[submodule "a"]\n\tpath = vendor/a\n\turl = ../a.git\n[submodule "b"]\n\tpath = b\n\turl = ../b\n'


def report(root: Path, **files: str) -> Report:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return validate(root, prompts=PROMPTS, with_git=False)


def told(root: Path, **files: str) -> list[str]:
    found = report(root, **files)
    assert found.ok and found.findings == found.warnings  # never an error
    return [f"{one.file}:{one.problem.line}: {one.problem.sentence}" for one in found.findings]


def test_m5_submodules_are_empty_folders(tmp_path: Path) -> None:
    (line,) = told(tmp_path, **{".gitmodules": _MODULES})
    assert line == (
        ".gitmodules:1: the folders of submodules (vendor/a, b) are empty in a task's workspace; if tasks"
        " need them, write `submodules: true` into cat-herder.yaml"
    )
    assert told(tmp_path, **{"cat-herder.yaml": "submodules: true\n"}) == []


def test_m5_files_of_lfs_are_pointers(tmp_path: Path) -> None:
    attributes = "*.txt text\n# *.iso filter=lfs\n*.bin -filter=lfs\n*.psd filter=lfs diff=lfs -text\n"
    (line,) = told(tmp_path, **{".gitattributes": attributes})
    assert line.startswith(".gitattributes:4: files of Git LFS are only pointers in a task's workspace")
    assert "write `lfs: true` into cat-herder.yaml" in line
    assert told(tmp_path, **{"cat-herder.yaml": "lfs: true\n"}) == []


def test_attributes_without_lfs_are_in_order(tmp_path: Path) -> None:
    assert told(tmp_path, **{".gitattributes": "*.txt text\n# *.iso filter=lfs\n*.x filter=lfsx\n"}) == []


@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("package-lock.json", "npm ci"),
        ("npm-shrinkwrap.json", "npm ci"),
        ("yarn.lock", "yarn install --immutable"),
        ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
        ("bun.lock", "bun install --frozen-lockfile"),
    ],
)
def test_m5_dependencies_of_node_are_missing(tmp_path: Path, lock: str, command: str) -> None:
    (line,) = told(tmp_path, **{"package.json": "{}", lock: ""})
    assert line == (
        "package.json:None: a task's workspace has no node_modules; if tasks need it, write"
        f" `setup: {command}` into cat-herder.yaml"
    )


@pytest.mark.parametrize(
    ("package", "missing"),
    [
        ('{"devDependencies": {"jest": "1"}}', True),
        ('{"dependencies": {}, "scripts": {"test": "node t.js"}}', False),
        ("not JSON", False),
    ],
)
def test_a_package_without_dependencies_needs_nothing(tmp_path: Path, package: str, missing: bool) -> None:
    lines = told(tmp_path, **{"package.json": package})
    assert ["npm install" in line for line in lines] == [True] * missing


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"uv.lock": "", "pyproject.toml": "[project]\nname = 'x'\n"}, "uv sync"),
        ({"poetry.lock": "", "pyproject.toml": "[tool.poetry]\n"}, "poetry install"),
        ({"Pipfile": ""}, "pipenv install"),
        ({"requirements.txt": "x\n"}, "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"),
        (
            {"pyproject.toml": "[project]\nname = 'x'\n"},
            "python3 -m venv .venv && .venv/bin/pip install -e .",
        ),
    ],
)
def test_m5_the_environment_of_python_is_missing(tmp_path: Path, files: dict[str, str], command: str) -> None:
    (line,) = told(tmp_path, **files)
    assert f"no Python environment; if tasks need it, write `setup: {command}` into" in line


@pytest.mark.parametrize(
    ("project", "warned"),
    [("name = 'x'", False), ("dependencies = ['httpx']", True), ("dynamic = ['x']", True)],
)
def test_m5_the_toolchain_is_enough_for_a_project_without_packages(
    tmp_path: Path, project: str, warned: bool
) -> None:
    files = {"pyproject.toml": f"[project]\n{project}\n", "cat-herder.yaml": "toolchains: [python]\n"}
    assert any("Python environment" in line for line in told(tmp_path, **files)) is warned


@pytest.mark.parametrize("text", ["[tool.ruff]\nline-length = 100\n", "not = = toml"])
def test_a_pyproject_with_settings_of_tools_only_needs_nothing(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, **{"pyproject.toml": text}) == []


def test_what_is_suggested_can_be_written_into_the_file(tmp_path: Path) -> None:
    lines = told(tmp_path, **{"package.json": "{}", "package-lock.json": "", "requirements.txt": "x\n"})
    suggested = {match[1] for line in lines for match in re.finditer(r"write `([^`]*)`", line)}
    assert len(lines) == 2 and len(suggested) == 1
    setup = load_project_config(suggested.pop()).setup
    assert setup and setup.run == (
        "npm ci", "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
    )  # fmt: skip


def test_a_project_with_a_setup_is_not_told_to_have_one(tmp_path: Path) -> None:
    files = {"package.json": "{}", "package-lock.json": "", "requirements.txt": "x"}
    assert told(tmp_path, **files, **{"cat-herder.yaml": "setup: make install\n"}) == []


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        (".nvmrc", "Node.js"),
        (".python-version", "Python"),
        (".tool-versions", "several tools"),
        ("rust-toolchain.toml", "Rust"),
        (".sdkmanrc", "Java"),
    ],
)
def test_m5_a_version_manager_is_named(tmp_path: Path, name: str, tool: str) -> None:
    (line,) = told(tmp_path, **{name: "1.2\n"})
    assert line.startswith(f"{name}:None: names a version of {tool}, but a task's workspace has what its")


def test_m5_a_toolchain_that_has_the_version_is_suggested(tmp_path: Path) -> None:
    (line,) = told(tmp_path, **{".nvmrc": "20\n", "cat-herder.yaml": "toolchains: rust\n"})
    assert "or write `toolchains: [rust, node]` into cat-herder.yaml" in line
    assert told(tmp_path, **{"cat-herder.yaml": "toolchains: [node]\n"}) == []


def test_m5_a_toolchain_that_this_machine_lacks_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "cat-herder.yaml").write_text("setup: x\ntoolchains: [rust, node, go]\n")
    known = {"node": "", "rust": "there is no folder /root/.rustup"}
    report = validate(tmp_path, prompts=PROMPTS, with_git=False, toolchains=known)
    assert [f"{one.problem.line}: {one.problem.sentence}" for one in report.warnings] == [
        '2: toolchains[0] is "rust", which this machine does not have: there is no folder /root/.rustup',
        '2: toolchains[2] is "go", which this machine does not have: it is not one that CATHERDER_TOOLCHAINS'
        " lists",
    ]
    assert report.ok


@pytest.mark.parametrize("value", ["../root", "/etc", "~/.ssh", "Rust", "a b", ""])
def test_r4_a_toolchain_is_a_name_and_no_path(tmp_path: Path, value: str) -> None:
    found = report(tmp_path, **{"cat-herder.yaml": f"toolchains: [{value!r}]\n"})
    assert not found.ok and "toolchains" in found.errors[0].problem.key


def test_as_many_toolchains_are_taken_as_a_task_can_store(tmp_path: Path) -> None:
    long = [f"t{number}" + "x" * 38 for number in range(11)]
    assert report(tmp_path, **{"cat-herder.yaml": f"toolchains: [{', '.join(long[:10])}]\n"}).ok
    assert len(",".join(long[:10])) <= 500
    assert not report(tmp_path, **{"cat-herder.yaml": f"toolchains: [{', '.join(long)}]\n"}).ok


def test_a_setup_that_installs_the_version_is_in_order(tmp_path: Path) -> None:
    assert told(tmp_path, **{".python-version": "3.12\n", "cat-herder.yaml": "setup: uv sync\n"}) == []
    assert len(told(tmp_path, **{"cat-herder.yaml": "setup: npm ci\n"})) == 1


def test_m5_a_file_that_tells_caches_apart_must_be_committed(tmp_path: Path) -> None:
    """With a wrong name, all tasks would begin with what the first one installed, for ever."""
    cache = "  cache:\n    key: [package-lock.json, sub/uv.lock]\n    paths: [~/.npm]\n"
    config = f"setup:\n  run: npm ci\n{cache}"
    (line,) = told(tmp_path, **{"cat-herder.yaml": config, "package-lock.json": ""})
    assert line == (
        'cat-herder.yaml:4: setup.cache.key[1] names "sub/uv.lock", which is no committed file: the cache'
        " stays the same, whatever changes"
    )
    assert told(tmp_path, **{"sub/uv.lock": ""}) == []


def test_only_committed_files_count(tmp_path: Path) -> None:
    """A task's clone has no others; what is committed in node_modules, it has."""
    files = {".nvmrc": "20", ".gitmodules": _MODULES, "package.json": "{}", "package-lock.json": ""}
    report(tmp_path, **files)
    for tracked, found in (
        ([], 0), (["package.json", "package-lock.json"], 1),
        (["package.json", "package-lock.json", "node_modules/x/index.js"], 0),
    ):  # fmt: skip
        context = RepositoryContext(tmp_path, prompts=PROMPTS, tracked=frozenset(tracked))
        assert len(list(fresh_clone_findings(read_settings_file(context), context))) == found


@pytest.mark.parametrize("name", [".gitmodules", ".gitattributes", "pyproject.toml", "package.json"])
def test_a_link_that_leads_out_is_not_followed(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(_MODULES + "\n*.x filter=lfs\n[project]\n")
    root = tmp_path / "repository"
    root.mkdir()
    (root / name).symlink_to(secret)
    assert told(root) == []
