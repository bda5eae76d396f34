"""What programs cost that follow tasks over MCP: `python -m tests.bench.polling`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx2

from tests.bench import processes
from tests.bench.metrics import Metric, show
from tests.portal import WebServer

TASKS, PROGRAMS = 100, 50
#: How often a program should ask of a task at which nothing happens (`mcp_server/tasks.py`).
_SECONDS_BETWEEN = 90
#: How seldom Claude Code 2.1.329 asks at most, whatever it is told.
_SECONDS_AT_MOST = 30
_ROUNDS = 7
_META = "io.modelcontextprotocol/"
_FILL = f"""
from datetime import timedelta
from django.utils import timezone
from tasks_app.mcp_server import tasks
from tasks_app.mcp_server.application import Caller
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
from tests.factories import QuestionFactory
from tasks_app.models import Transition
result = []
for number in range({PROGRAMS}):
    user = User.objects.create_superuser(f"user-{{number}}", password="long enough")
    made = make_token("program", [Scope.READ, Scope.ANSWER], by=Principal.unrestricted(user))
    caller = Caller(Principal.of_token(made.token), "", "")
    for _ in range({TASKS // PROGRAMS}):
        task = QuestionFactory.create().task
        Transition.objects.create(task=task, source="running", target="waiting_for_input")
        result.append([made.secret, tasks.created(caller, task.pk)["taskId"]])
Transition.objects.update(at=timezone.now() - timedelta(hours=1))
"""


def measure(rounds: int) -> list[Metric]:
    """Ask of all tasks in each round, one request after the other, and count the server's CPU time."""
    busy = Metric(f"{TASKS} open tasks that {PROGRAMS} programs follow, of a core", "%", "5 %")
    each = Metric("one request for a task that waits, CPU time", "ms")
    with tempfile.TemporaryDirectory() as folder, httpx2.Client(timeout=60) as http:
        server = WebServer(Path(folder) / "data", CATHERDER_API_RATE="0").start()
        try:
            followed = server.rows(_FILL)
            url = f"http://{server.address}/mcp"
            for token, name in followed[:3]:  # the first ones load the package
                _ask(http, url, token, name)
            for _ in range(rounds):
                before = processes.cpu_seconds(server.pid)
                for token, name in followed:
                    _ask(http, url, token, name)
                spent = (processes.cpu_seconds(server.pid) - before) / len(followed)
                each.samples.append(spent * 1000)
                busy.samples.append(spent * TASKS / _SECONDS_AT_MOST * 100)
        finally:
            server.stop()
    return [busy, each]


def _ask(http: httpx2.Client, url: str, token: str, name: str) -> None:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tasks/get",
        "Mcp-Name": name,
    }
    meta = {
        f"{_META}protocolVersion": "2026-07-28",
        f"{_META}clientInfo": {"name": "bench", "version": "1"},
        f"{_META}clientCapabilities": {"extensions": {f"{_META}tasks": {}}, "elicitation": {"form": {}}},
    }
    params = {"taskId": name, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}
    state = http.post(url, json=message, headers=headers).json()["result"]
    assert (state["status"], state["pollIntervalMs"]) == ("input_required", _SECONDS_BETWEEN * 1000), state


if __name__ == "__main__":
    show(measure(_ROUNDS))
