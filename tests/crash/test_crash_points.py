"""A worker dies at each named place; the next one brings the task to the very same end (R1, R2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.rehearsal.server import RehearsalServer
from tests import forkserver
from tests.crash.points import POINTS
from tests.crash.stage import ANSWER, PREPARE, Stage
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import Installation
from tests.waiting import wait_until

pytestmark = pytest.mark.bubblewrap

START = """
plain = Project.objects.get(name="plain")
task = create_task(plain, "# Paint it\\n\\nrehearsal: crash-story\\n", by=ann(), where="test")
assert task.pk == 1
start_task(task, by=ann())
"""
#: What has happened before the first worker begins, or before the one that is given the answer does.
BEFORE = START
AFTER = START + "go()\nreply()\n"
RECOVER = """
from django.utils import timezone
import datetime, json
past = timezone.now() - datetime.timedelta(seconds=1)
Task.objects.exclude(lease_expires=None).update(lease_expires=past)
go()
reply()
go()
from tasks_app.models import paths
from tasks_app.git import diff
task = Task.objects.get()
sys.stdout.write(json.dumps({
    "phase": task.phase,
    "steps": [step.phase for step in task.steps.all()],
    "failure": task.failure,
    "questions": [(q.state, q.delivered_at is not None) for q in task.questions.all()],
    "runs": [
        (r.outcome, r.input_tokens, r.events.filter(kind__in=["text", "tool_use"]).exists())
        for r in Run.objects.all()
    ],
    "diff": diff(paths.repository(task.project), base=task.base_commit, head=task.head_commit),
    "transitions": list(task.transitions.filter(step=None).values_list("target", flat=True)),
}))
"""

FIRST_RUN = (
    "claimed",
    "begun",
    "run-opened",
    "event-recorded",
    "ask-recorded",
    "transcript-stored",
    "asked",
    "agent-ended",
    "halted",
    "work-recorded",
)
AFTER_THE_ANSWER = (
    "claimed",
    "begun",
    "run-opened",
    "event-recorded",
    "transcript-stored",
    "answer-recorded",
    "agent-ended",
    "result-stored",
    "work-recorded",
    "checked",
    "step-done",
    "task-done",
)


def variables(installation: Installation, server: RehearsalServer) -> dict[str, str]:
    return installation.env(
        ANTHROPIC_API_KEY="a-key", ANTHROPIC_BASE_URL=server.url, CATHERDER_SANDBOX="require"
    )


def told(server: RehearsalServer) -> list[str]:
    """Every place where the answer stands in the conversation as the model had it last."""
    sent = [request for request in server.requests if request.get("tools")][-1]
    contents = [message["content"] for message in sent["messages"] if message["role"] == "user"]
    blocks = [part for content in contents for part in ([content] if isinstance(content, str) else content)]
    texts = [b if isinstance(b, str) else str(b.get("content") or b.get("text")) for b in blocks]
    return [text for text in texts if ANSWER in text]


def recover(stage: Stage, server: RehearsalServer) -> None:
    done = stage.run(RECOVER)
    assert done.returncode == 0
    assert_the_end_is_the_same(stage.workspace, server, json.loads(done.stdout))


def assert_the_end_is_the_same(workspace: Path, server: RehearsalServer, end: Any) -> None:
    assert (end["phase"], end["steps"]) == ("done", ["done"]), end
    assert end["questions"] == [["answered", True]]
    (answer,) = told(server)
    assert answer.count(ANSWER) == 1
    assert (workspace / "before.txt").read_text() == "before\n"
    assert (workspace / "after.txt").read_text() == f"{ANSWER}\n"
    assert "+before" in end["diff"]
    assert f"+{ANSWER}" in end["diff"]
    assert all(outcome for outcome, _, _ in end["runs"])
    assert all(tokens for _, tokens, spoke in end["runs"] if spoke), "tokens of a run that died are lost"
    assert end["transitions"].count("waiting_for_input") == 1
    assert marked_processes(workspace) == []


def test_every_point_is_swept() -> None:
    assert set(FIRST_RUN) | set(AFTER_THE_ANSWER) == set(POINTS)


@pytest.mark.parametrize("point", FIRST_RUN)
def test_a_death_before_the_question_changes_nothing_in_the_end(
    stage: Stage, server: RehearsalServer, point: str
) -> None:
    stage.begin(BEFORE)
    stage.die(point, "go()")
    recover(stage, server)


@pytest.mark.parametrize("point", AFTER_THE_ANSWER)
def test_a_death_after_the_answer_changes_nothing_in_the_end(
    stage: Stage, server: RehearsalServer, point: str
) -> None:
    stage.begin(AFTER)
    stage.die(point, "go()")
    recover(stage, server)


def test_the_variable_arms_a_point(installation: Installation, server: RehearsalServer) -> None:
    env = {**variables(installation, server), "CATHERDER_CRASH_AT": "claimed"}
    assert forkserver.run(forkserver.with_django(PREPARE + START + "go()"), env).returncode == 137


def start_worker(installation: Installation, server: RehearsalServer) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "worker"],
        cwd=REPOSITORY,
        env=variables(installation, server),
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("text", "config", "sign"),
    [
        ("rehearsal: slow-once", "", "slow-started.txt"),
        (
            "rehearsal: no-questions",
            "check: {type: shell, command: 'test -e checking || { touch checking; sleep 1000; }'}",
            "checking",
        ),
    ],
    ids=["run", "check"],
)
def test_a_worker_killed_in_the_middle_leaves_nothing_running_and_the_next_resumes(
    installation: Installation, server: RehearsalServer, text: str, config: str, sign: str
) -> None:
    """R2, and a fault of the reference tool: the orphan went on working beside its successor."""
    source = installation.data_dir / "killed"
    prepare = f"""
from pathlib import Path
from tasks_app.services.projects.projects import add_project
from tests.integration.git_repository import GitRepository
config = "pipelines:\\n  default:\\n    - name: do\\n      command: self\\n      " + {config!r}
GitRepository.make(Path({str(source)!r}), **{{"cat-herder.yaml": config}})
task = create_task(add_project("killed", {str(source)!r}), "# It\\n\\n{text}\\n", by=ann(), where="test")
start_task(task, by=ann())
"""
    installation.python(PREPARE + prepare)
    place = installation.task_dir() / "workspace"
    worker = start_worker(installation, server)
    try:
        wait_until((place / sign).exists)
        assert installation.phase() == "running"
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    wait_until(lambda: marked_processes(place) == [] and not processes_in(place), seconds=10)
    assert not (place / "slow-ended.txt").exists()
    installation.python(
        "from tasks_app.models import Task\nTask.objects.update(lease_expires='2020-01-01T00:00:00Z')"
    )
    successor = start_worker(installation, server)
    try:
        wait_until(lambda: installation.phase() == "done", seconds=30)
    finally:
        successor.terminate()
        assert successor.wait(PATIENCE) == 0
    assert installation.row("SELECT count(*) FROM tasks_app_run WHERE outcome = ''") == (0,)
    assert marked_processes(place) == []


def processes_in(folder: Path) -> list[int]:
    """Processes that work there, checks included, which carry no cookie."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if str(folder) in (path / "cmdline").read_text(errors="replace"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found
