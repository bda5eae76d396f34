"""M2: the paths of a data directory that sandboxed processes see elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.agent.call_permissions import INLINE_LIMIT, AnswersFolder, GivenAnswer, permission_for
from tasks_app.agent.outcome import open_asks
from tasks_app.agent.permission_requests import refusal_of
from tasks_app.agent.port import RunOrder, RunPaths
from tasks_app.agent.stream import Stream
from tasks_app.core.types import Ask, AskItem
from tasks_app.engine.checks import FileExists, run_checks
from tasks_app.sandbox import UNCHANGED, Placement, Sandbox

PORTALS = Path("/srv/portal/data")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (folder := tmp_path / "own" / "tasks" / "workspace").mkdir(parents=True)
    (folder / "file.txt").touch()
    return folder


@pytest.fixture
def placement(tmp_path: Path) -> Placement:
    return Placement(tmp_path / "own", PORTALS)


def test_only_what_is_below_the_folder_is_moved(placement: Placement, tmp_path: Path) -> None:
    pairs = [("own", PORTALS), ("own/a/b", PORTALS / "a/b"), ("owner", tmp_path / "owner"), ("", tmp_path)]
    for outside, inside in pairs:
        assert placement.inside(tmp_path / outside) == inside
        assert placement.outside(inside) == tmp_path / outside
    assert placement.moves and not UNCHANGED.moves and not Placement(PORTALS, PORTALS).moves
    assert UNCHANGED.inside(PORTALS) == UNCHANGED.outside(PORTALS) == PORTALS


#: What a link in the workspace names, and where it leads inside.
LINKS = [
    ("file.txt", PORTALS / "tasks/workspace/file.txt"),
    ("../../x/./y", PORTALS / "x/y"),
    (f"{PORTALS}/tasks/workspace/file.txt", PORTALS / "tasks/workspace/file.txt"),
    (f"{PORTALS}/tasks/../other", PORTALS / "other"),
    ("second", PORTALS / "tasks/workspace/file.txt"),
    ("/usr/share/none", Path("/usr/share/none")),
    ("../../../../../../../../../../etc/none", Path("/etc/none")),
]


@pytest.mark.parametrize(("target", "leads_to"), LINKS)
def test_links_lead_where_a_sandboxed_process_finds_their_target(
    placement: Placement, workspace: Path, target: str, leads_to: Path
) -> None:
    (workspace / "second").symlink_to("third")
    (workspace / "third").symlink_to(PORTALS / "tasks" / "workspace" / "file.txt")
    (workspace / "link").symlink_to(target)
    assert placement.real_path(PORTALS / "tasks/workspace/link") == leads_to


def test_links_in_a_circle_come_to_an_end(placement: Placement, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert placement.real_path(PORTALS / "tasks/workspace/a").parent == PORTALS / "tasks/workspace"


def test_checks_find_files_behind_links_of_the_agent(placement: Placement, workspace: Path) -> None:
    (workspace / "link").symlink_to(PORTALS / "tasks/workspace/file.txt")
    (workspace / "out").symlink_to(workspace / "file.txt")  # no such path inside
    sandbox = Sandbox(Path("/usr/bin/bwrap"), placement=placement)
    for path, passed in (("link", True), ("file.txt", True), ("out", False), ("none", False)):
        (report,) = run_checks([FileExists(path)], workspace=workspace, sandbox=sandbox, home=workspace)
        assert report.passed is passed, path


def test_permissions_are_judged_by_the_paths_that_the_agent_names(
    placement: Placement, workspace: Path
) -> None:
    folders = RunPaths(workspace, workspace, workspace, workspace, workspace)
    order = RunOrder("s", folders, "x", allow_write=("*.txt",), allowed_tools=("Write(*.txt)",))

    def refused(path: str) -> str:
        return refusal_of(order, "Write", {"file_path": path}, asked_because="", placement=placement)

    assert refused(f"{PORTALS}/tasks/workspace/new.txt") == ""
    assert refused(f"{PORTALS}/tasks/workspace/new.py") != ""
    assert refused(f"{PORTALS}/tasks/other/new.txt") != ""


def test_the_agent_is_told_its_own_path_of_a_long_answer(placement: Placement, tmp_path: Path) -> None:
    (folder := tmp_path / "own" / "answers").mkdir(parents=True)
    ask = Ask("t", "AskUserQuestion", (AskItem("A?"),), tool_input={"questions": [{"question": "A?"}]})
    answer = GivenAnswer(ask, {"A?": "x" * (INLINE_LIMIT + 1)})
    permission = permission_for(answer, (), folder=AnswersFolder(folder, placement))
    assert permission.updated_input is not None
    assert f"is in {PORTALS}/answers/answer-1.txt;" in permission.updated_input["answers"]["A?"]
    assert (folder / "answer-1.txt").exists()


@pytest.mark.parametrize(
    ("name", "tool_input", "rule"),
    [
        ("Write", {"file_path": f"{PORTALS}/tasks/workspace/secret.txt", "content": "x"}, "Write(secret.*)"),
        ("Grep", {"pattern": "x"}, "Read(file.txt)"),
    ],
)
def test_a_waiting_call_is_asked_about_with_its_rule(
    workspace: Path, placement: Placement, name: str, tool_input: dict[str, str], rule: str
) -> None:
    """R4: a call has the path that the agent sees; a card shows its path within the workspace."""
    stream = Stream()
    stream.read({"type": "result", "deferred_tool_use": {"id": "1", "name": name, "input": tool_input}})
    (ask,) = open_asks(
        stream, (), may_ask=True, ask_before=["WebFetch", rule],
        workspace=workspace, home=workspace, placement=placement,
    )  # fmt: skip
    assert ("rule", rule) in [(piece.kind, piece.text) for piece in ask.evidence]
    assert str(PORTALS) not in ask.items[0].question + ask.evidence[0].title


@pytest.mark.parametrize("planning", [True, False])
def test_a_call_that_does_nothing_and_a_compound_command_are_refused_with_the_true_reason(
    workspace: Path, planning: bool
) -> None:
    folders = RunPaths(workspace, workspace, workspace, workspace, workspace)
    order = RunOrder("s", folders, "x", allowed_tools=("Read",), planning=planning)
    said = refusal_of(order, "DeferredToolPlaceholder", {}, asked_because="")
    assert "does nothing" in said and "step" not in said
    assert refusal_of(order, "Bash", {"command": "cat-herder --help"}, asked_because="") == ""
    said = refusal_of(order, "Bash", {"command": "cat-herder --help | head > x"}, asked_because="")
    assert "`cat-herder` as a command of its own, without pipe" in said
