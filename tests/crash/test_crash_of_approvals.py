"""A worker dies around an approval: the call is made once, and not without one (R1, R2)."""

from __future__ import annotations

import json

import pytest

from tests.crash.stage import Stage

pytestmark = pytest.mark.bubblewrap

APPROVE = """
from tasks_app.services.questions.answers import decide

def approve():
    for question in Question.objects.open():
        decide(question, "approved", by=ann(), via=Channel.WEB)
"""
START = """
Project.objects.update(overrides={"ask_before": "Bash(*guarded*)"})
task = create_task(
    Project.objects.get(name="plain"), "# Do it\\n\\nrehearsal: crash-approval\\n",
    by=ann(), where="test", threshold=THRESHOLD,
)
start_task(task, by=ann())
"""
#: What has happened before the first worker begins, or before the one that is given the approval does.
BEFORE = START
AFTER = APPROVE + START + "go()\napprove()\n"
RECOVER = """
from django.utils import timezone
import datetime, json
from tasks_app.models import paths
past = timezone.now() - datetime.timedelta(seconds=1)
Task.objects.exclude(lease_expires=None).update(lease_expires=past)
task = Task.objects.get()
made = (paths.workspace(task).path / "guarded.txt").exists()
unapproved = made and not Question.objects.answered().exists()
for _ in range(4):
    go()
    approve()
    task.refresh_from_db()
    if task.phase == "done":
        break
sys.stdout.write(json.dumps({
    "unapproved": unapproved,
    "phase": task.phase,
    "questions": [[q.kind, q.state, q.delivered_at is not None] for q in task.questions.all()],
    "outcomes": list(Run.objects.values_list("outcome", flat=True)),
}))
"""


def recovered(stage: Stage, beginning: str, point: str) -> list[list[str]]:
    """The questions in the end. Whatever the point, the call was made once."""
    stage.begin(beginning)
    stage.die(point, "go()")
    done = stage.run(APPROVE + RECOVER)
    assert done.returncode == 0
    end = json.loads(done.stdout)
    assert (end["phase"], end["unapproved"]) == ("done", False)
    assert all(end["outcomes"])
    assert (stage.workspace / "guarded.txt").read_text() == "guarded\n"
    assert all(question == ["approval", "answered", True] for question in end["questions"])
    return end["questions"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("threshold", [0, 3])
@pytest.mark.parametrize(
    "point", ["run-opened", "event-recorded", "transcript-stored", "agent-ended", "halted", "work-recorded"]
)
def test_before_the_approval(stage: Stage, point: str, threshold: int) -> None:
    assert len(recovered(stage, BEFORE.replace("THRESHOLD", str(threshold)), point)) == 1


@pytest.mark.parametrize(
    "point",
    [
        "claimed",
        "begun",
        "run-opened",
        "event-recorded",
        "agent-ended",
        "result-stored",
        "checked",
        "step-done",
    ],
)
def test_after_the_approval(stage: Stage, point: str) -> None:
    """Where it cannot be known whether the call was made, a human is asked about another one."""
    questions = recovered(stage, AFTER.replace("THRESHOLD", "0"), point)
    assert len(questions) <= 2
