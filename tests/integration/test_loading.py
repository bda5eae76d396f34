"""What a process loads. The agent's SDK is half a second and 35 MB: only who runs agents has it."""

from __future__ import annotations

import pytest

from tests.installation import Installation


@pytest.mark.parametrize(
    "module",
    ["catherder_site.asgi", "catherder_site.urls", "tasks_app.management.commands.status", "tasks_app.tasks"],
)
def test_what_runs_no_agents_does_not_load_their_sdk(installation: Installation, module: str) -> None:
    loaded = installation.python(f"import {module}\nprint('claude_agent_sdk' in sys.modules)")
    assert loaded == "False\n"


def test_what_runs_agents_does(installation: Installation) -> None:
    loaded = installation.python(
        "from tasks_app import composition\nprint('claude_agent_sdk' in sys.modules)"
    )
    assert loaded == "True\n"
