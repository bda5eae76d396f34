"""A portal with a data directory of its own, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.databases import copy_migrated

REPOSITORY = Path(__file__).parents[2]


class Portal:
    """Migrated at once; `start` and `stop` the web server as often as wanted."""

    def __init__(self, data_dir: Path, **variables: str) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._env = {
            **kept,
            "CATHERDER_DATA_DIR": str(data_dir),
            "DJANGO_SETTINGS_MODULE": "catherder_site.settings",
            **variables,
        }
        self._server: subprocess.Popen[str] | None = None
        self.address = ""
        if "DATABASE_URL" in variables:
            self.run("from django.core.management import call_command; call_command('migrate', verbosity=0)")
        else:
            copy_migrated(data_dir)

    def run(self, code: str) -> Any:
        """Run Python in a process of its own, with Django set up; what it assigns to `result`."""
        script = (
            "import django, json, sys; django.setup(); from tasks_app.models import *; result = None\n"
            f"{code}\nsys.stdout.write(json.dumps(result))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=self._env,
            cwd=REPOSITORY,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return json.loads(done.stdout)

    def start(self, *options: str) -> Self:
        """Start the web server, with more options for it, and wait until it listens."""
        self._server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "catherder_site.asgi:application", "--port", "0", *options],
            env=self._env,
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self._server.stderr
        said = []
        for line in self._server.stderr:
            said.append(line)
            if found := re.search(r"running on http://(\S+)", line):
                self.address = found[1]
                return self
        raise AssertionError(f"the server did not start:\n{''.join(said)}")

    def stop(self) -> str:
        """End the web server; what it said since it started, and "" if there is none."""
        if self._server is None:
            return ""
        self._server.terminate()
        _, said = self._server.communicate(timeout=30)
        self._server = None
        return said
