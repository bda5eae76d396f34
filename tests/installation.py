"""Installations: a data directory, and the processes and terminals that work on it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from tests import forkserver
from tests.databases import copy_migrated
from tests.forkserver import PATIENCE, REPOSITORY
from tests.integration.git_repository import GitRepository
from tests.processes import start_process

#: One step whose prompt is the task itself, without checks: what happens is up to the scenario.
PLAIN_CONFIG = """\
interactionThreshold: 3
pipelines:
  default:
    - name: do
      command: self
"""
_MAKE = """
from pathlib import Path
from django.contrib.auth.hashers import make_password
from tasks_app.services.projects.projects import add_project
from tasks_app.rehearsal.sample import create_sample_repository
from tasks_app.models import Membership, User
here = Path({data_dir!r})
create_sample_repository(here / "sample")
User.objects.create(username="ann", first_name="Ann", is_superuser=True, password="!")
for name in ("sample", "plain"):
    project = add_project(name, str(here / name))
    for person, role in (("bob", "member"), ("vic", "viewer")):
        user, _ = User.objects.get_or_create(username=person, defaults={{"password": "!"}})
        Membership.objects.create(user=user, project=project, role=role)
"""


class Installation:
    """A data directory, and processes that work on it."""

    def __init__(self, data_dir: Path, **variables: str) -> None:
        """`variables` are for the environment of each process."""
        self.data_dir = data_dir
        self.variables = variables
        self._program: tuple[str, ...] = ("manage.py",)

    @classmethod
    def make(cls, data_dir: Path) -> Installation:
        """Site admin `ann`, member `bob`, viewer `vic`; projects `sample` and `plain`. A template to copy."""
        made = cls(data_dir)
        copy_migrated(data_dir)
        GitRepository.make(data_dir / "plain", **{"cat-herder.yaml": PLAIN_CONFIG})
        made.python(_MAKE.format(data_dir=str(data_dir)))
        return made

    def copy(self, data_dir: Path) -> Installation:
        shutil.copytree(self.data_dir, data_dir)
        return Installation(data_dir, **self.variables)

    def with_fake_agent(self) -> Installation:
        """Return the same installation, whose commands work on tasks with the fake agent."""
        same = Installation(self.data_dir, **self.variables)
        same._program = ("-m", "tests.manage_with_fake_agent")
        return same

    def env(self, **variables: str) -> dict[str, str]:
        """Return the environment of a process: nothing of this one that could be a key or a database."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        own = {"CATHERDER_DATA_DIR": str(self.data_dir), "CATHERDER_USER": "ann", "COLUMNS": "100"}
        django = {"DJANGO_SETTINGS_MODULE": "catherder_site.settings", "CATHERDER_UNDO_SECONDS": "0"}
        return {**kept, **django, **own, **self.variables, **variables}

    def task_file(self, text: str) -> str:
        path = self.data_dir / "task.md"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def manage(self, *arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `manage.py ARGUMENTS` to its end."""
        return forkserver.run([*self._program, *arguments], self.env(**variables), stdin=stdin)

    def popen(
        self, *arguments: str, stdin: Any = subprocess.PIPE, begin: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        """Start `manage.py ARGUMENTS` as a process that a test may look at, too."""
        return start_process(
            [sys.executable, *self._program, *arguments],
            cwd=REPOSITORY,
            env=self.env(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=begin,
        )

    def piped(self, *arguments: str) -> forkserver.Piped:
        """Start `manage.py ARGUMENTS` with pipes to its stdin and stdout."""
        return forkserver.popen([*self._program, *arguments], self.env())

    def fork(self, code: str, *arguments: str) -> forkserver.Piped:
        """Start code with Django set up, and pipes to its stdin and stdout."""
        return forkserver.popen([*forkserver.with_django(code), *arguments], self.env())

    def terminal(self, *arguments: str) -> Terminal:
        return Terminal([*self._program, *arguments], self.env())

    def python(self, code: str, **variables: str) -> str:
        """Run code in a process of its own with Django set up; what it wrote to stdout."""
        return forkserver.run(forkserver.with_django(code), self.env(**variables), check=True).stdout

    def rows(self, code: str) -> Any:
        """Run code with the models imported in a process of its own; what it assigns to `result`."""
        return json.loads(
            self.python(
                "import json\nfrom tasks_app.models import *\nresult = None\n"
                f"{code}\nsys.stdout.write(json.dumps(result, default=str))"
            )
        )

    def answer_in_the_web(self, question: int, text: str, *, by: str = "bob") -> str:
        """What the web does with an answer; "" or the reason why it was refused."""
        return self.python(answering(question, text, by=by))

    def row(self, sql: str, *values: Any) -> tuple[Any, ...]:
        """Return the first row of a query, in which `?` stand for `values`. It starts no process."""
        found = self._found(sql, values)
        assert found is not None, sql
        return tuple(found)

    @property
    def database_url(self) -> str:
        return self.variables.get("DATABASE_URL", f"sqlite:///{self.data_dir / 'catherder.sqlite3'}")

    def _found(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        url = self.database_url
        if not url.startswith("sqlite"):
            with psycopg.connect(url) as postgres:
                return postgres.execute(sql.replace("?", "%s"), values).fetchone()
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as sqlite:
            row: tuple[Any, ...] | None = sqlite.execute(sql, values).fetchone()
            return row

    def task_dir(self, task: int = 1) -> Path:
        """The folder of a task that exists."""
        (key,) = self.row("SELECT folder_key FROM tasks_app_task WHERE id = ?", task)
        return self.data_dir / "tasks" / f"{task}-{key}"

    def phase(self, task: int = 1) -> str:
        return str(self.row("SELECT phase FROM tasks_app_task WHERE id = ?", task)[0])

    def answers(self, question: int = 1) -> Any:
        return json.loads(self.row("SELECT answers FROM tasks_app_question WHERE id = ?", question)[0])


def answering(question: int, text: str, *, by: str = "bob") -> str:
    return f"""
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.core.errors import CatHerderError
from tasks_app.models import Channel, Question, User
from tasks_app.permissions import Principal
question = Question.objects.get(pk={question!r})
principal = Principal.unrestricted(User.objects.get(username={by!r}))
try:
    answer_question(question, Reply.to(question, {text!r}), by=principal, via=Channel.WEB)
except CatHerderError as error:
    sys.stdout.write(str(error))
"""


class Terminal:
    """A process with a terminal of its own, and a person who reads it and types."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        """`arguments` are those of Python."""
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, 100))
        streams = (slave, slave, slave)
        self.process = forkserver.start(arguments, {**env, "TERM": "xterm"}, streams=streams, terminal=True)
        os.close(slave)
        self.seen = ""
        self._expected = 0

    def expect(self, text: str) -> None:
        """Read on until the text has come, after what was expected before."""
        while (at := self.seen.find(text, self._expected)) < 0:
            assert self._read(), f"“{text}” did not come. Seen:\n{self.seen}"
        self._expected = at + len(text)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        os.close(self._master)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _read(self) -> bool:
        poll = select.poll()
        poll.register(self._master, select.POLLIN)
        assert poll.poll(PATIENCE * 1000), f"nothing more came. Seen:\n{self.seen}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the last process on the terminal has ended
            return False
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        self.seen += text.replace("\r\n", "\n")
        return bool(data)
