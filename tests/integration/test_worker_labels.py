"""M4 with real processes: of two workers, the one with the label runs the step that needs it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.installation import Installation
from tests.integration.redis_server import redis_server
from tests.integration.test_worker_without_queue import worker
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

#: Starts a task whose step needs a label, and one that any worker may run.
START = """
from tasks_app.services.tasks import create_task, start_task
from tasks_app.models import Project, Step, User
from tasks_app.permissions import Principal
ann = Principal.unrestricted(User.objects.get(username="ann"))
plain = Project.objects.get(name="plain")
for labels in ("gpu", ""):
    task = create_task(plain, "# It\\n\\nrehearsal: no-questions\\n", by=ann, where="test")
    Step.objects.filter(task=task).update(runs_on=labels)
    start_task(task, by=ann)
"""


@pytest.mark.parametrize("queue", ["file", "redis"])
def test_m4_a_step_runs_where_its_label_is(installation: Installation, tmp_path: Path, queue: str) -> None:
    logs = [tmp_path / "plain", tmp_path / "gpu"]
    with ExitStack() as both:
        if queue == "redis":
            installation.variables["REDIS_URL"] = both.enter_context(redis_server()).url
        both.enter_context(worker(installation, logs[0]))
        installation.python(START)
        wait_until(lambda: installation.phase(2) == "done", log=logs[0])
        assert installation.phase(1) == "pending", "no worker with the label runs"
        both.enter_context(worker(installation, logs[1], CATHERDER_WORKER_LABELS="gpu,linux"))
        wait_until(lambda: installation.phase(1) == "done", log=logs[1])
        installation.python(START)
        wait_until(lambda: installation.phase(3) == installation.phase(4) == "done", log=logs[1])
    assert all("Traceback" not in log.read_text() for log in logs)
    assert installation.row("SELECT max(lease_epoch) FROM tasks_app_task") == (1,), "nobody else claimed them"
