"""The whole portal as its users have it: `manage.py up`, with a data directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from tasks_app.agent.orphaned_processes import WORKSPACE_VARIABLE

ROOT = Path(__file__).parents[2]
PASSWORD = "a long enough password"
#: Seconds until a process that does not end has failed; on a busy machine each start of one takes long.
PATIENCE = 180.0


class UpPortal:
    """Start and stop it as often as wanted; the data stay."""

    def __init__(self, data_dir: Path, **variables: str) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.env = {
            **kept,
            "CATHERDER_DATA_DIR": str(data_dir),
            "CATHERDER_BIND": "127.0.0.1:0",
            "CATHERDER_ADMIN_PASSWORD": PASSWORD,
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        self.data_dir = data_dir
        self.process: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        self.url = ""

    def start(self) -> Self:
        self.said = []
        self.process = subprocess.Popen(
            self.manage("up"),
            env=self.env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            if "Cat Herder is ready at" in line:  # its public address, which a test may have made up
                self.url = (self.data_dir / "address").read_text().strip()
                # The next start has the same address, as it would behind a fixed CATHERDER_BIND.
                self.env["CATHERDER_BIND"] = self.url.removeprefix("http://")
                break
        else:
            raise AssertionError("the portal did not start:\n" + "".join(self.said))
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def _listen(self) -> None:
        assert self.process and self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(40)
            assert self.process.stdout
            self.process.stdout.close()
            self.process = None

    def manage(self, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "manage.py"), *arguments]

    def call(self, *arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
        """A terminal command, with the variables that `up` has but for one."""
        return subprocess.run(
            self.manage(*arguments),
            env={name: value for name, value in self.env.items() if name != without},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def rows(self, code: str) -> Any:
        """Run Python on the portal's rows in a process of its own; what it assigns to `result`."""
        script = (
            "import django, json, sys; django.setup(); from tasks_app.models import *; result = None\n"
            f"{code}\nsys.stdout.write(json.dumps(result, default=str))"
        )
        env = {**self.env, "DJANGO_SETTINGS_MODULE": "catherder_site.settings"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        return json.loads(done.stdout)

    def new_task(self, text: str, *, started: bool = True) -> int:
        """A task on the sample project, made as the page would make it; its number."""
        return int(
            self.rows(
                "from tasks_app.services.tasks import create_task, start_task\n"
                "admin = User.objects.get(username='admin')\n"
                f"task = create_task(Project.objects.get(name='sample'), {text!r}, by=admin, where='test')\n"
                f"{'start_task(task, by=admin)' if started else ''}\n"
                "result = task.pk"
            )
        )

    def session(self, username: str) -> str:
        """The cookie of a session that was made on the rows."""
        return str(
            self.rows(
                "from importlib import import_module\n"
                "from django.conf import settings\n"
                "from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY\n"
                f"user = User.objects.get(username={username!r})\n"
                "session = import_module(settings.SESSION_ENGINE).SessionStore()\n"
                "session[SESSION_KEY] = str(user.pk)\n"
                "session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]\n"
                "session[HASH_SESSION_KEY] = user.get_session_auth_hash()\n"
                "session.create()\nresult = session.session_key"
            )
        )

    def agents(self) -> list[int]:
        """Processes of agents at work for this portal, wherever they descend from."""
        mark = f"{WORKSPACE_VARIABLE}={self.data_dir}".encode()
        running = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in running if mark in _environment(pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
