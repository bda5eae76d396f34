"""The agent as attacker: the real program in its sandbox, told by a script to try every door (R4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import Ending, RunResult
from tasks_app.agent.run_setup import install_gate
from tasks_app.rehearsal.server import RehearsalServer
from tests import machine
from tests.agents import Bench, connection_to

pytestmark = pytest.mark.bubblewrap

SCENARIOS = Path(__file__).parent / "scenarios"
#: Files of the data directory that no agent may read, and what is in them.
PRIVATE = {
    "secret_key": "secret-of-the-portal",
    "catherder.sqlite3": "secret-of-the-database",
    "huey.sqlite3": "secret-of-the-queue",
    "tasks/2/workspace/private.txt": "secret-of-another-task",
    "tasks/2/answers/question-1.txt": "secret-answer",
}


@dataclass(frozen=True)
class Burglary:
    """What the agent was shown at each door, by the door's name; and what became of the run."""

    bench: Bench
    result: RunResult
    shown: dict[str, str]
    whole: str


def bench_in(base: Path, server: RehearsalServer) -> Bench:
    bench = Bench(ClaudeAgent(machine.sandbox(base / "data"), connection_to(server)), base, server)
    for name, text in PRIVATE.items():
        path = base / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return bench


@pytest.fixture(scope="module")
def server() -> Iterator[RehearsalServer]:
    with RehearsalServer(scenarios=SCENARIOS) as running:
        yield running


@pytest.fixture(scope="module")
def burglary(tmp_path_factory: pytest.TempPathFactory, server: RehearsalServer) -> Burglary:
    """One run for all tests: each looks at one door."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECRET_OF_THE_WORKER", "secret-of-the-worker")
        bench = bench_in(tmp_path_factory.mktemp("burglary"), server)
        result = bench.start("burglar")
    ((_, whole),) = bench.results()
    parts = re.split(r"^=== (\w+)$", whole, flags=re.MULTILINE)[1:]
    return Burglary(bench, result, dict(zip(parts[::2], parts[1::2], strict=True)), whole)


def test_the_run_itself_is_an_ordinary_one(burglary: Burglary) -> None:
    """Otherwise the tests below would show nothing."""
    assert (burglary.result.ending, burglary.result.text) == (Ending.FINISHED, "I have tried everything.")
    assert "end" in burglary.shown


@pytest.mark.parametrize("secret", sorted(PRIVATE.values()))
def test_no_secret_is_read(burglary: Burglary, secret: str) -> None:
    assert secret not in burglary.whole


def test_the_agent_has_no_capabilities(burglary: Burglary) -> None:
    assert re.findall(r"\w+:\s+(\S+)", burglary.shown["powers"]) == ["0" * 16, "0" * 16, "1"]


def test_the_worker_is_out_of_sight(burglary: Burglary) -> None:
    assert "secret-of-the-worker" not in burglary.whole
    assert burglary.shown["processes"].split()[0] == "bwrap", "the sandbox has numbers of its own"


def test_the_environment_is_a_list(burglary: Burglary) -> None:
    names = set(re.findall(r"^(\w+)=", burglary.shown["environment"], re.MULTILINE))
    assert not {name for name in names if re.match(r"DJANGO|CATHERDER|DATABASE|REDIS|SECRET|PYTEST", name)}
    assert "ANTHROPIC_API_KEY=rehearsal" in burglary.shown["environment"]


def test_a_run_can_write_neither_its_orders_nor_its_permissions_nor_the_gate(burglary: Burglary) -> None:
    for part in ("orders", "permissions"):
        assert "Read-only file system" in burglary.shown[part]
    inside = burglary.bench.task / "run-1" / "inside"
    assert (inside / "permissions.json").read_text() == "{}"
    assert '"may_ask": true' in (inside / "orders.json").read_text()
    install_gate(inside.parent / "as-laid")
    for part in ("gate.pyc", "tasks_app/agent/gate/patterns.pyc"):
        assert (inside / part).read_bytes() == (inside.parent / "as-laid" / part).read_bytes()
    assert not (inside / "bin" / "cat-herder").is_symlink()
    assert not (burglary.bench.task / "run-0").exists()


def test_an_answer_cannot_be_rewritten(burglary: Burglary) -> None:
    assert "Read-only file system" in burglary.shown["answers"]


def test_machine_and_kernel_are_out_of_reach(burglary: Burglary) -> None:
    assert "root:" not in burglary.shown["machine"]
    refusals = re.findall("Read-only file system|No such file", burglary.shown["kernel"])
    assert len(refusals) == 2
    assert not Path("/usr/burgled").exists()
    assert not Path("/etc/burgled").exists()


def test_a_forged_message_writes_into_no_other_session(burglary: Burglary) -> None:
    """What runs in the sandbox can write into the agent's output: it may then speak for itself alone."""
    sessions = {session for _, session, _ in burglary.bench.recorder.transcripts}
    assert sessions == {burglary.bench.session}
    assert "forged" not in str(burglary.bench.recorder.entries[-1])
    assert not (burglary.bench.workspace / "allowed").exists()


def test_no_process_of_the_sandbox_can_write_into_the_agents_streams(
    tmp_path: Path, server: RehearsalServer
) -> None:
    """A forged result would end the run as the agent likes, at the cost that it likes.

    Its streams are sockets: nobody can open them by their names in /proc, neither a shell nor the CLI's own
    tool, as everybody can open a pipe.
    """
    bench = bench_in(tmp_path, server)
    result = bench.start("forger")
    (_, tried), (_, written) = bench.results()
    assert tried.splitlines() == ["/proc/2/fd/0", "/proc/2/fd/1", "/proc/2/fd/2", "=== end"]
    assert "not a regular file" in written
    said = [event.payload["text"] for event in bench.recorder.events if event.kind == "result"]
    assert said == ["I have tried everything."]
    assert (result.ending, result.text) == (Ending.FINISHED, said[0])
    assert 0 < result.usage.input_tokens < 1_000_000


def test_nothing_outlives_the_run_whatever_it_forgot_of_itself(burglary: Burglary) -> None:
    """Neither a session of its own, nor a lost parent, nor an emptied environment helps (R2)."""
    assert still_running(str(burglary.bench.workspace)) == []


def still_running(argument: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").split("\0")
        except OSError:
            continue
        if argument in words:
            found.append(" ".join(words))
    return found


def test_planted_settings_hooks_and_servers_are_never_loaded(tmp_path: Path, server: RehearsalServer) -> None:
    """Nor can they switch off the gate: the answer arrives in the next run as in any other."""
    bench = bench_in(tmp_path, server)
    asked = bench.start("planter")
    assert [ask.items[0].question for ask in asked.asks] == ["May I?"]
    done = bench.answer(asked, "Yes")
    assert (done.ending, done.delivered) == (Ending.FINISHED, frozenset({asked.deferred}))
    seen = bench.results()[-1][1]
    assert "PLANTED" not in seen
    assert not [path.name for path in bench.home.iterdir() if path.name.startswith("ran-")]
