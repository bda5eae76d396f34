"""One data directory in which the tests of a module play, each from a beginning that is made only once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tasks_app.agent.leftover_processes import marked_processes
from tests import forkserver
from tests.installation import Installation
from tests.waiting import wait_until

ANSWER = 'Blue ☃ "; rm -rf /'
PREPARE = f"""
ANSWER = {ANSWER!r}
"""
PREPARE += """
import os
from tasks_app import composition
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.tasks import create_task, start_task
from tasks_app.engine import crashpoints
from tasks_app.engine.advance import advance
from tasks_app.engine.stopping import never
from tasks_app.models import *
from tasks_app.permissions import Principal

def ann():
    return Principal.unrestricted(User.objects.get(username="ann"))

def go():
    advance(1, owner=f"worker-{os.getpid()}", context=composition.worker_context(never))

def reply():
    for question in Question.objects.open():
        answer_question(question, Reply.to(question, ANSWER), by=ann(), via=Channel.WEB)
"""


class Stage:
    """Runs code in processes that work on `installation`, whose environment is always the same."""

    def __init__(self, template: Installation, folder: Path, **variables: str) -> None:
        """`folder` is empty; `variables` are for the environment of each process."""
        self._template, self._folder = template, folder
        self.installation = template.copy(folder / "data")
        self.installation.variables = variables
        self._beginnings: dict[str, Path] = {}

    def begin(self, code: str = "") -> None:
        """Bring the data directory into the state that it has after this code, which runs only once.

        The path stays the same: sessions and clones name it.
        """
        self._put(self._beginnings.get(code, self._template.data_dir))
        if code not in self._beginnings:
            assert self.run(code).returncode == 0
            saved = self._folder / f"beginning-{len(self._beginnings)}"
            shutil.copytree(self.installation.data_dir, saved, symlinks=True)
            self._beginnings[code] = saved

    def _put(self, state: Path) -> None:
        """Copy a state; the secret key stays, because the fork server knows the installation by it."""
        for path in self.installation.data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "secret_key":
                path.unlink()
        shutil.copytree(
            state,
            self.installation.data_dir,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("secret_key"),
        )

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run this code, after PREPARE, in a process."""
        return forkserver.run(forkserver.with_django(PREPARE + code), self.installation.env())

    def die(self, point: str, code: str) -> None:
        """Run this code in a process that dies at the named point. What it started is gone afterwards."""
        assert self.run(f"crashpoints._armed = {point!r}\n{code}").returncode == 137
        wait_until(lambda: marked_processes(self.workspace) == [])

    @property
    def workspace(self) -> Path:
        """That of the task, which exists."""
        return self.installation.task_dir() / "workspace"
