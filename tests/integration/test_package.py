"""The wheel that is built from this tree: it holds every file, and the portal runs from it alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import site
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("catherder_site", "tasks_app")
#: Folders at the top of a checkout that the wheel has in `tasks_app`.
SHIPPED = ("docs", "prompts", "templates")
#: Seconds until a process that does not end has failed; on a busy machine each start of one takes long.
PATIENCE = 180.0


def tracked(*folders: str) -> set[str]:
    """The files that git tracks, as far as they are there."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves folders in the tree."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked(*PACKAGES, *SHIPPED, "pyproject.toml", "README.md", "LICENSE"):
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(dist), str(source))
    (built,) = dist.iterdir()
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Installed:
    """A virtual environment in which the wheel was installed, and the home of the user who runs it."""

    venv: Path
    home: Path

    @property
    def site_packages(self) -> Path:
        (found,) = self.venv.glob("lib/python*/site-packages")
        return found

    @property
    def data_dir(self) -> Path:
        return self.home / ".local/share/cat-herder"

    def env(self, **variables: str) -> dict[str, str]:
        own = {"HOME": str(self.home), "CATHERDER_BIND": "127.0.0.1:0", "PYTHONUNBUFFERED": "1"}
        return {"PATH": os.environ["PATH"], **own, **variables}

    def run(
        self, *arguments: str, program: str = "cat-herder", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end, in the user's home."""
        return subprocess.run(
            [str(self.venv / "bin" / program), *arguments],
            cwd=self.home,
            env=self.env(**variables),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def up(self) -> Iterator[tuple[str, list[str]]]:
        """Start the portal; its address and what it printed until it was ready."""
        process = subprocess.Popen(
            [str(self.venv / "bin/cat-herder"), "up"],
            cwd=self.home,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout
        try:
            printed = []
            for line in process.stdout:
                printed.append(line.rstrip("\n"))
                if found := re.match(r"Cat Herder is ready at (\S+)/ ", line):
                    yield found[1], printed
                    break
            else:
                raise AssertionError("the portal did not start:\n" + "\n".join(printed))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a new environment, which takes the dependencies from the one that runs the tests.

    A .pth file adds their folder to the path, but .pth files within that folder are not read, so the
    editable installation of the source tree stays out.
    """
    made = Installed(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("home"))
    venv.create(made.venv, symlinks=True)
    pip("--python", str(made.venv), "install", "--no-deps", "--no-index", str(wheel))
    (made.site_packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return made


def test_the_wheel_holds_every_file_that_git_tracks_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert {name for name in names if ".dist-info/" not in name} == tracked(*PACKAGES) | {
        f"tasks_app/{name}" for name in tracked(*SHIPPED)
    }


def test_the_wheel_names_its_version_and_the_versions_of_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode())
    assert (told["Name"], told["Version"]) == ("cat-herder", "0.1.0")
    assert set(told["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    listed = {line.rpartition(" ")[2] for line in told.get_all("Classifier", []) if "Python :: 3." in line}
    assert listed == {"3.11", "3.12", "3.13"}


def test_the_package_that_runs_is_the_installed_one(installed: Installed) -> None:
    where = "import catherder_site, tasks_app; print(catherder_site.__file__, tasks_app.__file__)"
    for arguments, program in (
        (("-c", where), "python"),
        (("django", "shell", "-v0", "-c", where), "cat-herder"),
    ):
        told = installed.run(*arguments, program=program)
        assert [Path(path).parent.parent for path in told.stdout.split()] == [installed.site_packages] * 2


def test_every_command_of_manage_py_is_one_of_the_program(installed: Installed) -> None:
    told = installed.run("--help")
    assert told.returncode == 0, told.stderr
    commands = {path.stem for path in (ROOT / "tasks_app/management/commands").glob("[a-z]*.py")}
    assert commands and commands <= set(told.stdout.split())


def test_python_runs_the_same_program_as_a_module(installed: Installed) -> None:
    usage = installed.run("-m", "catherder_site", "run_task", "--help", program="python")
    assert usage.stdout.startswith("usage: cat-herder run_task "), usage.stderr


def test_the_command_for_agents_explains_itself_outside_of_a_task(installed: Installed) -> None:
    asked = installed.run("ask", "Which one?", CATHERDER_BIND="no address")
    assert asked.returncode == 2 and "for agents that work on a task" in asked.stderr


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def test_the_portal_starts_serves_its_pages_and_does_the_sample_task(installed: Installed) -> None:
    (installed.home / "redis.py").write_text("raise SystemExit('a file of the folder was imported')\n")
    with installed.up() as (url, printed):
        assert f"Data directory: {installed.data_dir}" in printed
        assert (installed.data_dir / "catherder.sqlite3").exists()
        fetch(f"{url}/healthz")
        login = fetch(f"{url}/login/")
        styles = re.findall(r'<link rel="stylesheet" href="([^"]+)"', login)
        assert styles and all(fetch(f"{url}{style}") for style in styles)
        told = installed.run("status", "--json")
        assert told.returncode == 0, told.stderr
        waiting = installed.run("run_task", "1", "--project", "sample", "--no-input", "--as", "admin")
        assert waiting.returncode == 3, waiting.stdout + waiting.stderr
    assert not (installed.site_packages / "data").exists()
