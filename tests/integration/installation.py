"""An installation of its own for each test, with people and projects, and terminals on it."""

from __future__ import annotations

import fcntl
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
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.databases import copy_migrated
from tests.integration.git_repository import GitRepository

REPOSITORY = Path(__file__).parents[2]
#: Seconds until a process that does not end has failed; on a busy machine each start of one takes long.
PATIENCE = 180.0

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
from tasks_app.services.projects import add_project
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


@dataclass(frozen=True)
class Installation:
    """A data directory. Site admin `ann`, member `bob`, viewer `vic`; projects `sample` and `plain`."""

    data_dir: Path

    @classmethod
    def make(cls, data_dir: Path) -> Installation:
        """From nothing: the template that tests copy."""
        made = cls(data_dir)
        copy_migrated(data_dir)
        GitRepository.make(data_dir / "plain", **{"cat-herder.yaml": PLAIN_CONFIG})
        made.python(_MAKE.format(data_dir=str(data_dir)))
        return made

    def copy(self, data_dir: Path) -> Installation:
        shutil.copytree(self.data_dir, data_dir)
        return Installation(data_dir)

    def env(self, **variables: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        own = {"CATHERDER_DATA_DIR": str(self.data_dir), "CATHERDER_USER": "ann", "COLUMNS": "100"}
        return {**kept, "DJANGO_SETTINGS_MODULE": "catherder_site.settings", **own, **variables}

    def task_file(self, text: str) -> str:
        path = self.data_dir / "task.md"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def manage(self, *arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """`manage.py ARGUMENTS` to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.env(**variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self, *arguments: str, stdin: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.env(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def terminal(self, *arguments: str) -> Terminal:
        return Terminal([sys.executable, "manage.py", *arguments], self.env())

    def python(self, code: str, **variables: str) -> str:
        """Run code in a process of its own with Django set up; what it wrote to stdout."""
        done = subprocess.run(
            python_with_django(code),
            cwd=REPOSITORY,
            env=self.env(**variables),
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout

    def answer_in_the_web(self, question: int, text: str, *, by: str = "bob") -> str:
        """What the web does with an answer; "" or the reason why it was refused."""
        return self.python(answering(question, text, by=by))

    def row(self, sql: str, *values: Any) -> tuple[Any, ...]:
        with closing(sqlite3.connect(self.data_dir / "catherder.sqlite3")) as database:
            found = database.execute(sql, values).fetchone()
        assert found is not None, sql
        return tuple(found)

    def task_dir(self, task: int = 1) -> Path:
        """The folder of a task that exists."""
        (key,) = self.row("SELECT folder_key FROM tasks_app_task WHERE id = ?", task)
        return self.data_dir / "tasks" / f"{task}-{key}"

    def phase(self, task: int = 1) -> str:
        return str(self.row("SELECT phase FROM tasks_app_task WHERE id = ?", task)[0])

    def answers(self, question: int = 1) -> Any:
        return json.loads(self.row("SELECT answers FROM tasks_app_question WHERE id = ?", question)[0])


def python_with_django(code: str) -> list[str]:
    return [sys.executable, "-c", f"import django, sys; django.setup()\n{code}"]


def answering(question: int, text: str, *, by: str = "bob") -> str:
    return f"""
from tasks_app.services.answers import Reply, answer_question
from tasks_app.core.errors import CatHerderError
from tasks_app.models import Channel, Question, User
question = Question.objects.get(pk={question!r})
person = User.objects.get(username={by!r})
try:
    answer_question(question, Reply.to(question, {text!r}), by=person, via=Channel.WEB)
except CatHerderError as error:
    sys.stdout.write(str(error))
"""


class Terminal:
    """A process with a terminal of its own, and a person who reads it and types."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, 100))
        self.process = subprocess.Popen(
            argv,
            cwd=REPOSITORY,
            env={**env, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # or Ctrl+C would reach nobody
        )
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
