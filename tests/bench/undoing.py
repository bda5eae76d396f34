"""How late an agent gets an answer that could be taken back for a while, as by default."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.floors.halting import commits
from tests.bench.halting import asking_repository, asking_task
from tests.bench.metrics import Metric
from tests.installation import answering
from tests.portal import UpPortal

SECONDS = 5
WAITING = """
import time
while not (found := Question.objects.filter(task_id=%d, state='open').first()): time.sleep(0.05)
result = found.pk
"""
CLAIMED = """
import time
while Task.objects.get(pk=%d).phase != 'done': time.sleep(0.1)
question = Question.objects.get(task_id=%d)
claims = question.task.transitions.filter(step=None, target='running')
result = (claims.latest('at').at - question.answered_at).total_seconds()
"""


def measure(tasks: int) -> list[Metric]:
    """Answer the question of one task after the other in a portal with the default time for undo."""
    late = Metric("the time for undo is over → task claimed by a worker", "ms", "50")
    commit = Metric("floor: one row in one transaction", "ms")
    late.floor = [commit]
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data", CATHERDER_UNDO_SECONDS=str(SECONDS)).start()
        repository = asking_repository(Path(folder) / "repository")
        assert portal.manage("project", "add", "bench", str(repository)).returncode == 0
        try:
            for _ in range(tasks):
                task = portal.rows(asking_task())
                portal.python(answering(portal.rows(WAITING % task), "Left.", by="admin"))
                late.samples.append((portal.rows(CLAIMED % (task, task)) - SECONDS) * 1000)
                commit.samples += commits(portal)
        finally:
            portal.stop()
    return [late, commit]
