"""The list of tools is that of the program that is installed: a new version with new tools is noticed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tasks_app.agent.launch import bundled_cli
from tasks_app.agent.tools import BUILT_IN, OTHER_NAMES, USUAL
from tests.agents import rehearsal

pytestmark = pytest.mark.once(on="sqlite")


def offered(base: Path, tools: Iterable[str]) -> set[str]:
    """The tools that the program says it has when it is started with these."""
    (base / "workspace").mkdir(parents=True)
    with rehearsal(base) as server:
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(base),
            "CLAUDE_CONFIG_DIR": str(base / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ANTHROPIC_API_KEY": "rehearsal",
            "ANTHROPIC_BASE_URL": server.url,
        }
        prompt = "rehearsal: no-questions"
        options = ["--output-format", "stream-json", "--verbose", "--permission-prompt-tool", "stdio"]
        command = [str(bundled_cli()), "-p", prompt, *options, "--tools", ",".join(tools)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=base / "workspace",
            env=env,
            check=True,
            timeout=120,
        )
    first = next(json.loads(line) for line in done.stdout.splitlines() if '"init"' in line)
    return set(first["tools"])


def test_every_tool_that_the_program_has_is_known_and_every_known_one_is_there(tmp_path: Path) -> None:
    usual = offered(tmp_path / "usual", ["default"])
    assert usual - BUILT_IN == set(), "the program has tools that tasks_app/agent/tools.py does not list"
    assert offered(tmp_path / "all", sorted(BUILT_IN | OTHER_NAMES)) | usual == BUILT_IN


def test_a_step_without_a_list_has_tools_that_exist() -> None:
    assert set(USUAL) <= BUILT_IN
