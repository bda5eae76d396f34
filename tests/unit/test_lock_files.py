"""The lock files agree with pyproject.toml and with each other. `make lock` writes them anew."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN = PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
DEVELOPMENT = RUN + PROJECT["project"]["optional-dependencies"]["dev"]


def locked(name: str) -> dict[str, str]:
    """Package to version; a package locked differently for some platform counts as one."""
    text = (ROOT / name).read_text()
    return {
        canonicalize_name(package): version for package, version in re.findall(r"(?m)^(\S+)==(\S+)", text)
    }


@pytest.mark.parametrize(
    ("file", "requirement"),
    [("requirements.lock", line) for line in RUN] + [("requirements-dev.lock", line) for line in DEVELOPMENT],
)
def test_every_requirement_is_locked_at_a_version_that_it_allows(file: str, requirement: str) -> None:
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(locked(file)[canonicalize_name(wanted.name)])


def test_what_runs_is_what_was_developed_with() -> None:
    assert locked("requirements.lock").items() <= locked("requirements-dev.lock").items()


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_file_has_hashes_and_names_no_host(file: str) -> None:
    text = (ROOT / file).read_text()
    assert all("--hash=sha256:" in entry for entry in re.findall(r"(?m)^\S+==(?:.*\\\n)*.*", text))
    assert not re.search(r"://|--index|--find-links|--extra", text)


def imported_packages(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


def test_each_package_that_the_code_imports_is_a_dependency() -> None:
    declared = {canonicalize_name(Requirement(line).name) for line in RUN}
    installed = packages_distributions()
    known = sys.stdlib_module_names | {"tasks_app", "catherder_site"}
    imported = set(imported_packages("tasks_app")) | set(imported_packages("catherder_site"))
    assert imported > known - sys.stdlib_module_names
    assert not [
        name
        for name in imported - known
        if not declared & {canonicalize_name(one) for one in installed.get(name, [])}
    ]
