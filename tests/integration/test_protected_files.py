"""P7: files that Claude Code protects are files like any other to a step that may write them.

With the real program, which asks for permission although the step has every tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import Ending
from tasks_app.rehearsal.server import RehearsalServer
from tests import machine
from tests.agents import Bench, connection_to

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

#: In the workspace; the agent's program asks before each of them.
PROTECTED = (
    ".vscode/settings.json",
    ".idea/misc.xml",
    ".husky/pre-commit",
    ".devcontainer/devcontainer.json",
    ".claude/settings.json",
    ".claude/commands/ship.md",
    ".cargo/config.toml",
    ".npmrc",
    ".yarnrc",
    ".envrc",
    ".gitmodules",
    ".mcp.json",
    ".pre-commit-config.yaml",
    "pyrightconfig.json",
    "web/.npmrc",
    ".git/hooks/pre-commit",
)


def write(path: str) -> dict[str, Any]:
    return {"name": "Write", "input": {"file_path": f"{{{{workspace}}}}/{path}", "content": "written\n"}}


def shell(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command, "description": "A command"}}


@dataclass
class Played:
    bench: Bench
    told: list[str]

    def has(self, path: str) -> bool:
        return (self.bench.workspace / path).is_file()


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Runs a session that makes the calls one after the other; what each was told is in `told`."""
    servers = []

    def played(*calls: Mapping[str, Any], **order: Any) -> Played:
        folder = tmp_path / "scripts"
        folder.mkdir()
        turns = [{"tools": [dict(call)]} for call in calls]
        script = {"name": "calls", "about": "Calls.", "turns": [*turns, {"text": "Done."}]}
        (folder / "calls.yaml").write_text(yaml.safe_dump(script))
        server = RehearsalServer(scenarios=folder)
        server.__enter__()
        servers.append(server)
        sandbox = machine.sandbox(tmp_path / "data")
        bench = Bench(ClaudeAgent(sandbox, connection_to(server)), tmp_path, server, may_ask=False)
        (bench.workspace / "link").symlink_to(bench.home)
        result = bench.run(bench.order("rehearsal: calls", step="implement", **order))
        assert (result.ending, result.error) == (Ending.FINISHED, "")
        return Played(bench, [text for _, text in bench.results()])

    yield played
    for server in servers:
        server.__exit__(None, None, None)


def test_protected_files_are_written_with_every_tool(play: Play) -> None:
    """Git's own files in the clone too: they are the agent's, and the portal never runs git there."""
    played = play(*(write(path) for path in PROTECTED))
    assert [path for path in PROTECTED if not played.has(path)] == []


def test_protected_files_are_changed_by_shell_commands(play: Play) -> None:
    played = play(
        shell("echo a > .npmrc"),
        shell("mkdir -p .husky .vscode && echo a > .husky/pre-push"),
        shell("cp .npmrc .mcp.json && sed -i s/a/b/ .mcp.json"),
        shell("mv .husky/pre-push .vscode/tasks.json"),
    )
    assert played.has(".vscode/tasks.json") and not played.has(".husky/pre-push")
    assert (played.bench.workspace / ".mcp.json").read_text() == "b\n"


def test_the_guard_of_the_step_holds_for_protected_files(play: Play) -> None:
    """Whichever way they are written, and the refusal names step, globs and file."""
    played = play(
        write(".vscode/a.json"),
        write(".npmrc"),
        shell("echo a > .npmrc"),
        shell("echo a > .vscode/b.json"),
        allow_write=(".vscode/**",),
    )
    assert (played.has(".vscode/a.json"), played.has(".vscode/b.json"), played.has(".npmrc")) == (
        True,
        True,
        False,
    )
    for told in played.told[1:3]:
        assert "“implement” may write only .vscode/**; .npmrc is not among them" in told


def test_the_permissions_of_the_step_hold_for_protected_files(play: Play) -> None:
    rules = ("Bash(echo:*)", "Edit(.vscode/**)", "Write(.vscode/**)")
    played = play(
        shell("echo a > .npmrc"),
        shell("echo a && touch .envrc"),
        shell("rm .npmrc"),
        write(".vscode/a.json"),
        write(".mcp.json"),
        {"name": "WebFetch", "input": {"url": "https://example.com/", "prompt": "x"}},
        allowed_tools=rules,
    )
    assert [played.has(path) for path in (".npmrc", ".envrc", ".vscode/a.json", ".mcp.json")] == [
        True,
        False,
        True,
        False,
    ]
    for told in played.told[1:3]:
        assert told == "This call of Bash is not allowed in this step, which has only Bash(echo:*)."
    assert "has only Edit(.vscode/**), Write(.vscode/**)" in played.told[4]


def test_files_outside_the_workspace_are_refused_with_the_reason(play: Play) -> None:
    """Through a link as well, which is named with the place that it leads to."""
    played = play(
        write("link/.npmrc"),
        write("../home/.claude/settings.json"),
        shell("echo a > link/.npmrc"),
        shell("echo a >> ~/.bashrc"),
    )
    home = played.bench.home
    assert not (home / ".npmrc").exists() and not (home / ".claude" / "settings.json").exists()
    assert not (home / ".bashrc").exists()
    for told, place in zip(
        played.told, (".npmrc", ".claude/settings.json", ".npmrc", ".bashrc"), strict=True
    ):
        assert "outside the workspace of this task" in told and str(home / place) in told


def test_what_the_program_itself_finds_dangerous_is_refused_in_its_own_words(play: Play) -> None:
    played = play(shell("rm -rf /"))
    assert "Claude Code" in played.told[0] and "Dangerous rm operation" in played.told[0]
    assert "not among the tools" not in played.told[0]


def test_a_step_that_plans_may_look_and_change_nothing(play: Play) -> None:
    """Shell commands that only read are run; a protected file is no way round the review of the plan."""
    played = play(
        write(".npmrc"),
        shell("ls -a | sort"),
        shell("echo a > made.txt"),
        shell("touch made.txt"),
        shell("echo a > .npmrc"),
        planning=True,
    )
    assert not played.has(".npmrc") and not played.has("made.txt")
    assert "link" in played.told[1]
    for told in (played.told[0], *played.told[2:]):
        assert told.endswith(
            "was not used: this step plans first, and changes nothing before its plan is approved."
        )
