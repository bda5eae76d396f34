"""What a process loads. The agent's SDK is half a second and 35 MB: only who has an agent to run has it.

pywebpush is a fifth of a second, with aiohttp: who pushes a notification imports it then.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Set

import pytest

from tests.forkserver import PATIENCE, REPOSITORY, with_django
from tests.installation import Installation

HEAVY = {"claude_agent_sdk", "pywebpush", "aiohttp"}
PAGES = {"tasks_app.web.urls", "tasks_app.api.app"}


def loaded_by(installation: Installation, code: str, among: Set[str] = HEAVY) -> set[str]:
    """Run code in a process that was not forked: the fork server has imported the SDK for all."""
    done = subprocess.run(
        [sys.executable, *with_django(f"{code}\nprint(*({among} & set(sys.modules)))")],
        cwd=REPOSITORY,
        env=installation.env(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    ["catherder_site.asgi", "catherder_site.urls", "tasks_app.management.commands.status", "tasks_app.tasks"],
)
def test_what_runs_no_agents_and_pushes_nothing_loads_no_library_for_it(
    installation: Installation, module: str
) -> None:
    assert not loaded_by(installation, f"import {module}")


def test_a_worker_loads_the_sdk_with_its_first_task_and_no_pages(installation: Installation) -> None:
    waiting = "from tasks_app import composition\nfrom tasks_app.management.commands import worker"
    assert not loaded_by(installation, waiting, HEAVY | PAGES)
    assert not loaded_by(
        installation,
        "from tasks_app.management.commands import up\nassert not up.Command.requires_system_checks\n"
        "from tasks_app.management.commands.worker import Command\nassert not Command.requires_system_checks",
    )  # they load every page
    running = f"{waiting}\ncomposition.worker_context(lambda lease: None)"
    assert loaded_by(installation, running) == {"claude_agent_sdk"}


@pytest.mark.parametrize(
    "start",
    [
        "import catherder_site.asgi",
        "from catherder_site.command_line import main; main(['cat-herder', 'status'])",
    ],
    ids=["web server", "command"],
)
def test_garbage_is_looked_for_in_all_that_comes_after_the_imports(
    installation: Installation, start: str
) -> None:
    code = f"import gc\nbefore = gc.get_freeze_count()\n{start}\n"
    code += "print(gc.isenabled(), gc.get_freeze_count() > before)"
    command = [sys.executable, "-c", code]  # a process of its own: a fork has the modules already
    done = subprocess.run(
        command, env=installation.env(), cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("True True\n")
