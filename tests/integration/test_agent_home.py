"""What the portal reads from and writes into the agent's own home, where anything may lie (R4)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tasks_app.agent.config_dir import clear_config_dir
from tasks_app.agent.run_setup import set_up_run
from tasks_app.agent.spools import clear_spool, spool_folder, spooled_asks
from tasks_app.agent.transcripts import write_transcript
from tasks_app.sandbox import Sandbox
from tests.agents import Bench
from tests.fake_agent import FakeAgent

SESSION = "12345678-1234-4234-8234-123456789012"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    clear_spool(tmp_path / "home")
    return tmp_path / "home"


def note(home: Path, name: str, text: str, *, at: int = 0) -> Path:
    path = spool_folder(home) / name
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def asked(home: Path) -> list[str]:
    return [ask.items[0].question for ask in spooled_asks(home)]


def test_notes_are_read_in_the_order_written_and_stay_until_cleared(home: Path) -> None:
    note(home, "b.json", '{"question": "First?"}', at=1)
    note(home, "a.json", '{"question": "Second?"}', at=2)
    assert asked(home) == ["First?", "Second?"]
    assert asked(home) == ["First?", "Second?"]
    clear_spool(home)
    assert asked(home) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"question": ""}', "[" * 100_000, '{"question": "' + "x" * 1_000_001 + '"}']
)
def test_a_note_that_cannot_be_read_is_passed_over(home: Path, text: str) -> None:
    note(home, "odd.json", text)
    note(home, "good.json", '{"question": "Good?"}')
    assert asked(home) == ["Good?"]


def test_a_pipe_or_a_link_among_the_notes_is_passed_over(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"question": "the secret"}')
    os.mkfifo(spool_folder(home) / "pipe.json")
    (spool_folder(home) / "link.json").symlink_to(tmp_path / "secret.json")
    assert asked(home) == []


def test_a_folder_that_leads_elsewhere_is_neither_read_nor_emptied(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another project"
    elsewhere.mkdir()
    (elsewhere / "orders.json").write_text('{"question": "the key"}')
    spool_folder(home).rmdir()
    spool_folder(home).symlink_to(elsewhere)
    assert asked(home) == []
    clear_spool(home)
    assert (elsewhere / "orders.json").exists()
    assert spool_folder(home).is_dir()
    assert not spool_folder(home).is_symlink()


def test_a_file_in_the_place_of_the_folder_is_replaced(home: Path) -> None:
    spool_folder(home).rmdir()
    spool_folder(home).write_text("in the way")
    assert asked(home) == []
    clear_spool(home)
    assert spool_folder(home).is_dir()


def transcript_file(config: Path) -> Path:
    return config / "projects" / "-work-space" / f"{SESSION}.jsonl"


def put(config: Path, transcript: dict[str, list[dict[str, object]]]) -> None:
    write_transcript(transcript, config_dir=config, cwd=Path("/work/space"), session_id=SESSION)


def test_a_transcript_is_restored_line_by_line(tmp_path: Path) -> None:
    entries: list[dict[str, object]] = [{"type": "user", "text": "ä☃ \ud83d"}, {"type": "assistant"}]
    put(tmp_path, {"": entries, "subagents/agent-1": [{"n": 1}]})
    assert [json.loads(line) for line in transcript_file(tmp_path).read_text().splitlines()] == entries
    assert (tmp_path / "projects/-work-space" / SESSION / "subagents/agent-1.jsonl").is_file()


def test_a_subpath_cannot_climb_out(tmp_path: Path) -> None:
    config = tmp_path / "home" / ".claude"
    put(config, {"../../../../evil": [{"n": 1}], "/etc/evil": [{"n": 1}]})
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(config / "projects/-work-space" / SESSION) for path in written)


@pytest.mark.parametrize("at", ["", "projects", "projects/-work-space"])
def test_a_folder_of_links_is_not_followed(tmp_path: Path, at: str) -> None:
    """The sandbox ends where the worker follows a link that was laid inside it."""
    elsewhere, config = tmp_path / "elsewhere", tmp_path / "home" / ".claude"
    elsewhere.mkdir()
    (config / at).parent.mkdir(parents=True, exist_ok=True)
    (config / at).symlink_to(elsewhere)
    put(config, {"": [{"n": 1}]})
    assert list(elsewhere.iterdir()) == []
    assert transcript_file(config).is_file()


def test_a_file_that_is_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    transcript_file(tmp_path).parent.mkdir(parents=True)
    transcript_file(tmp_path).symlink_to(target)
    put(tmp_path, {"": [{"n": 1}]})
    assert target.read_text() == "mine"
    assert transcript_file(tmp_path).read_text() == '{"n":1}\n'


def laid_out(tmp_path: Path, *, resume: bool) -> Path:
    """The home as a run finds it, after an agent that was there before."""
    order = Bench(FakeAgent(lambda prompt: []), tmp_path).order("Go.", resume=resume)
    kept = [".npm/cache.txt", ".claude/CLAUDE.md", ".claude/projects/x/memory/MEMORY.md"]
    for path in (order.paths.home / name for name in kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from before")
    (order.paths.home / ".claude" / "projects").chmod(0o100)
    set_up_run(order, argv=["/bin/true"], env={}, sandbox=Sandbox(None))
    return order.paths.home


def test_a_new_session_finds_nothing_that_the_program_kept_of_an_earlier_one(tmp_path: Path) -> None:
    """What it reads by itself no log shows; what a step installed stays for the next."""
    home = laid_out(tmp_path, resume=False)
    assert not (home / ".claude").exists()
    assert (home / ".npm" / "cache.txt").exists()


def test_a_resumed_session_keeps_its_own_files(tmp_path: Path) -> None:
    assert (laid_out(tmp_path, resume=True) / ".claude" / "CLAUDE.md").exists()


def test_a_link_in_the_place_of_the_programs_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    (elsewhere / "precious").mkdir(parents=True)
    (home / ".claude").symlink_to(elsewhere)
    clear_config_dir(home)
    assert (elsewhere / "precious").is_dir() and not (home / ".claude").is_symlink()
