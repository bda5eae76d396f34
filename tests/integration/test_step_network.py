"""What a step may reach (M7): `network: none|model|full`, with the real sandbox and the real CLI."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import load_project_config
from tasks_app.core.errors import SandboxUnavailable
from tasks_app.core.phases import Phase
from tasks_app.models import Run
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Sandbox, SandboxMode, detect, run
from tests.fake_script import say
from tests.runner import Runner

#: In the repository: agent and check run it. It says which addresses it reached.
TRY = """\
import json, pathlib, socket
reached = []
for host, port in json.loads(pathlib.Path("addresses.json").read_text()):
    try:
        socket.create_connection((host, port), timeout=1).close()
        reached.append(port)
    except OSError:
        pass
print("reached", reached)
raise SystemExit(1 if reached else 0)
"""
CONFIG = """\
network: {network}
pipelines:
  default:
    - {{name: one, command: self, check: {{type: shell, command: python3 try.py}}}}
"""


@pytest.fixture
def service() -> Iterator[socket.socket]:
    """A service on loopback that trusts whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("network", ["model", "none"])
def test_a_step_reaches_its_model_and_nothing_else(
    metered: Runner, server: RehearsalServer, service: socket.socket, network: str
) -> None:
    """No service on loopback, no database, no other address; its check reaches nothing either."""
    port = service.getsockname()[1]
    addresses = [["127.0.0.1", one] for one in (port, 5432, 6379, 8000)]
    addresses += [["127.0.0.1", int(server.url.rpartition(":")[2])], ["192.0.2.1", 80], ["1.1.1.1", 53]]
    files = {"try.py": TRY, "addresses.json": json.dumps(addresses)}
    project = metered.project(CONFIG.format(network=network), **files)
    task = metered.task(text="# Try\n\nrehearsal: try-the-network\n", project=project)
    metered.advance(task)
    assert (task.phase, task.failure) == (Phase.DONE, "")
    (ran,) = Run.objects.all()
    assert "reached []" in json.dumps([event.payload for event in ran.events.filter(kind="tool_result")])
    assert ran.checks and "reached []" in ran.checks[0]["output"]
    assert ran.usage.any  # the model was reached, and counted
    offered = {tool["name"] for request in server.requests for tool in request.get("tools") or []}
    assert "Bash" in offered and "WebFetch" not in offered, "no tool that would always fail"
    with pytest.raises(BlockingIOError):
        service.accept()


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
def test_with_the_whole_network_loopback_is_reached(metered: Runner, service: socket.socket) -> None:
    """What the default means, and that the test above tries the right thing."""
    addresses = [["127.0.0.1", service.getsockname()[1]]]
    files = {"try.py": TRY, "addresses.json": json.dumps(addresses)}
    task = metered.task(
        text="# Try\n\nrehearsal: try-the-network\n",
        project=metered.project(CONFIG.format(network="full"), **files),
    )
    metered.advance(task)
    (ran,) = Run.objects.all()
    assert ran.checks and f"reached {[addresses[0][1]]}" in ran.checks[0]["output"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "sandbox", [Sandbox(None, "There is no bubblewrap."), Sandbox(Path("/usr/bin/bwrap"))]
)
def test_a_step_is_not_run_with_a_network_that_it_must_not_have(runner: Runner, sandbox: Sandbox) -> None:
    runner.sandbox = sandbox
    project = runner.project(CONFIG.format(network="model"))
    task = runner.advance(runner.task([say("Done.")], project=project))
    assert task.phase == Phase.FAILED
    assert "network: model" in task.failure
    assert (sandbox.reason or sandbox.network_reason) in task.failure
    assert not Run.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_installation_s_word_is_the_most_that_a_step_gets(runner: Runner, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"network": "model"})
    runner.sandbox = Sandbox(None, "There is no bubblewrap.")
    task = runner.advance(runner.task([say("Done.")], project=runner.project(CONFIG.format(network="full"))))
    assert task.phase == Phase.FAILED
    assert "network: model" in task.failure


class TestWhatHolds:
    def test_a_step_s_own_word_comes_first_then_the_file_s(self) -> None:
        config = load_project_config(
            "network: model\n"
            "pipelines:\n"
            "  p:\n"
            "    - {name: a, command: implement}\n"
            "    - {name: b, command: implement, network: full}\n"
            "    - {name: c, command: implement, network: none}\n"
        )
        assert [config.network_of(step) for step in config.pipelines[0].steps] == ["model", "full", "none"]

    def test_the_portal_s_limit_is_never_exceeded(self) -> None:
        config = load_project_config(
            "pipelines: {p: [{name: a, command: implement}, {name: b, command: implement, network: none}]}"
        )
        assert [config.network_of(step) for step in config.pipelines[0].steps] == ["full", "none"]
        limited = config.model_copy(update={"network_limit": "model"})
        assert [limited.network_of(step) for step in config.pipelines[0].steps] == ["model", "none"]

    @pytest.mark.parametrize("word", ["off", "no", "[model]", "offline"])
    def test_any_other_word_is_an_error_with_its_line(self, word: str) -> None:
        with pytest.raises(ConfigInvalid) as refusal:
            load_project_config(f"model: sonnet\nnetwork: {word}\n")
        (problem,) = refusal.value.problems
        assert problem.line == 2
        assert "network" in problem.sentence
        assert "full" in problem.sentence


@pytest.mark.bubblewrap
class TestSandbox:
    def test_a_sandbox_without_a_network_has_a_loopback_of_its_own(self, tmp_path: Path) -> None:
        sandbox = detect(SandboxMode.REQUIRE).without_network()
        script = "cat /proc/net/dev | tail -n +3 | cut -d: -f1; ls /sys/class/net 2>/dev/null"
        command = sandbox.command(["sh", "-c", script], workspace=tmp_path, home=tmp_path, env={})
        assert run(command, timeout=20).output.split() == ["lo"]

    def test_without_bubblewrap_it_is_refused(self) -> None:
        with pytest.raises(SandboxUnavailable, match="without a network"):
            Sandbox(None, "There is no bubblewrap.").without_network()
        sandbox = Sandbox(None, "There is no bubblewrap.")
        assert sandbox.offline_if_possible() is sandbox
