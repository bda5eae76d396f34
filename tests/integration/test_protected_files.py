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
from tasks_app.config.planning import CLARIFY_TOOLS
from tasks_app.core.types import KnownDecision
from tasks_app.rehearsal.server import RehearsalServer
from tests import machine
from tests.agents import Bench, connection_to, question

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


def test_p7_a_write_that_would_be_lost_is_refused_and_names_file_and_workspace(play: Play) -> None:
    """In the sandbox such a file could be written and was gone afterwards. What is temporary may be."""

    def call(path: str) -> dict[str, Any]:
        return {"name": "Write", "input": {"file_path": path, "content": "x"}}

    played = play(
        call("/elsewhere/a.md"),
        write("../home/notes.md"),
        write("link/notes.md"),
        shell("mkdir /elsewhere || echo x > /a.md || true"),
        call("/tmp/a b.py"),
        shell("cat '/tmp/a b.py'"),
    )
    workspace = str(played.bench.workspace)
    for told, path in zip(played.told, ("/elsewhere/a.md", "/notes.md", "/notes.md"), strict=False):
        assert path in told and workspace in told and "outside the workspace" in told
    assert not (played.bench.home / "notes.md").exists()
    assert played.told[3].count("Read-only file system") == 2
    assert played.told[5] == "x"


def test_what_the_program_itself_finds_dangerous_is_refused_in_its_own_words(play: Play) -> None:
    played = play(shell("rm -rf /"))
    assert "Claude Code" in played.told[0] and "Dangerous rm operation" in played.told[0]
    assert "not among the tools" not in played.told[0]


NAMED_IN_PROMPTS = (
    "git diff HEAD -- . ':(exclude)PLAN.md'",
    "git status --short",
    "git log --oneline",
    'cat-herder decisions "cents"',
    'cat-herder unfit D-17 "it is not true; prices > 100 have no cents"',
)
BRINGING_A_CHANGE = (
    "cat-herder decisions > made.txt",
    "cat-herder decisions; touch made.txt",
    "cat-herder decisions & touch made.txt",
    'cat-herder unfit D-17 "$(touch made.txt)"',
    'cat-herder unfit D-17 "`touch made.txt`"',
    "cat-herder decisions\ntouch made.txt",
    "cat-herder decisions | tee made.txt",
    "cat-herder decisions >| made.txt",
    "env touch made.txt cat-herder decisions",
    "git diff --output=made.txt HEAD",
    "git add --intent-to-add . && git diff HEAD",
    "touch made.txt",
)


@pytest.mark.parametrize(
    "order",
    [
        {"planning": True},
        {"allowed_tools": CLARIFY_TOOLS, "allow_write": ()},
        {"allowed_tools": ("Read", "Bash(echo:*)")},
    ],
    ids=["plan", "clarify", "other permissions"],
)
def test_the_commands_that_the_prompt_names_are_run_and_nothing_that_changes_a_file(
    play: Play, order: dict[str, Any]
) -> None:
    """P4: in steps whose shell only reads; with the shell though the step's permissions name none."""
    known = (KnownDecision(17, "Money is stored in cents.", "", "Ada", "3 May 2026"),)
    played = play(
        shell("git init -q"), *map(shell, NAMED_IN_PROMPTS + BRINGING_A_CHANGE), decisions=known, **order
    )
    told = played.told[1:]
    assert "stored in cents" in told[3] and "D-17" in told[4], told
    for command, said in zip(NAMED_IN_PROMPTS, told, strict=False):
        assert "was not" not in said, (command, said)
    for command, said in zip(BRINGING_A_CHANGE, told[len(NAMED_IN_PROMPTS) :], strict=True):
        assert "was not" in said or "is not allowed" in said, (command, said)
    assert not played.has("made.txt")


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
        assert "was not used: this step plans first, and changes nothing before its plan is approved." in told


ODD_NAMES = ("app/[id]/**", "app/(group)/x.ts", "src/{x}/*", "my notes/**", "./!x")


@pytest.mark.parametrize(
    "order",
    [{"allow_write": ODD_NAMES}, {"allowed_tools": tuple(f"Write({one})" for one in ODD_NAMES)}],
    ids=["allowWrite", "allowedTools"],
)
def test_p7_names_that_look_like_patterns_are_matched_as_they_are(play: Play, order: dict[str, Any]) -> None:
    """In `allowedTools`, too, whose patterns Claude Code itself reads otherwise."""
    inside = ("app/[id]/p.ts", "app/(group)/x.ts", "src/{x}/a", "my notes/a b.md", "!x")
    outside = ("app/[x]/p.ts", "app/group/x.ts", "src/x/a", "notes/a.md", "deep/my notes/a.md")
    played = play(*map(write, (*inside, *outside)), **order)
    assert [path for path in (*inside, *outside) if played.has(path)] == list(inside)


def test_p7_also_after_an_answer(tmp_path: Path) -> None:
    """A run that goes on with an answer has no prompt, and the program asks for permission all the same."""
    (tmp_path / "scripts").mkdir()
    asked = {"name": "AskUserQuestion", "input": {"questions": [question("Tea?", "Yes", "No")]}}
    made = shell("mkdir -p .vscode && echo a > .vscode/tasks.json")
    script = {
        "name": "calls",
        "about": "Calls.",
        "turns": [{"tools": [asked]}, {"tools": [made]}, {"text": "Done."}],
    }
    (tmp_path / "scripts" / "calls.yaml").write_text(yaml.safe_dump(script))
    with RehearsalServer(scenarios=tmp_path / "scripts") as server:
        agent = ClaudeAgent(machine.sandbox(tmp_path / "data"), connection_to(server))
        bench = Bench(agent, tmp_path, server)
        result = bench.run(bench.order("rehearsal: calls", step="implement"))
        assert bench.answer(result, "Yes").ending is Ending.FINISHED
        assert (bench.workspace / ".vscode/tasks.json").exists(), bench.results()
