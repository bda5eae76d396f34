"""A review, sent back to the real agent program in its own session (V4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Reason, ReviewVerdict, Task, ThreadState, paths
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.reviews import NewThread, send_review
from tasks_app.services.sequences import create_sequence, start_sequence, task_to_publish
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, diff_of, results, runs

pytestmark = pytest.mark.bubblewrap

CHECKED = """\
pipelines:
  default:
    - name: do
      command: self
      check: {type: shell, command: grep -q green paint.txt}
"""


def test_v4_the_same_session_changes_the_code_and_replies_to_each_thread(real: Runner) -> None:
    text = "# Paint it\n\nrehearsal: answer-a-review\n"
    task = real.advance(real.task(text=text, config=CHECKED, threshold=0))
    assert task.phase == Phase.DONE
    looked_at = task.head_commit
    send_review(
        task,
        ReviewVerdict.REQUEST_CHANGES,
        by=acting(real.user),
        via=Channel.WEB,
        threads=[
            NewThread("Too plain.", "paint.txt", line=1),
            NewThread("Why blue?", "paint.txt", line=3),
        ],
    )
    assert real.advance(task).phase == Phase.DONE
    first, again = runs(task)
    assert (again.reason, again.resumed, again.session_id) == (Reason.REVIEW, True, first.session_id)
    assert [report["passed"] for report in again.checks or []] == [True], "checked again"
    assert "crimson" in diff_of(task) and task.head_commit != looked_at
    said = {
        thread.number: (thread.state, [comment.text for comment in thread.comments.all()])
        for thread in task.threads.all()
    }
    assert said == {
        1: (ThreadState.ANSWERED, ["Too plain.", "Crimson now."]),
        2: (ThreadState.ANSWERED, ["Why blue?", "Blue stays: the sea."]),
    }
    refused = [result for result in results(task) if "there is no thread 7; the threads are 1, 2" in result]
    assert refused, "a number that does not exist is told to the agent"


def test_v6_the_same_session_resolves_a_conflict_with_the_projects_branch(real: Runner) -> None:
    """The workspace is made anew for it, at the same path, so that the session goes on."""
    text = "# Paint it\n\nrehearsal: resolve-a-conflict\n"
    config = CHECKED.replace("grep -q green", "grep -q blue")
    task = real.advance(real.task(text=text, config=config, threshold=0))
    assert task.phase == Phase.DONE
    before = task.head_commit
    source = GitRepository(Path(task.project.source))
    target = source.commit(**{"paint.txt": "red\n"})
    let_agent_merge(task, by=acting(real.user), via=Channel.WEB)
    assert real.advance(task).phase == Phase.DONE, task.failure
    first, again = runs(task)
    assert (again.reason, again.resumed, again.session_id) == (Reason.REVIEW, True, first.session_id)
    assert any(f">>>>>>> {target}" in result for result in results(task)), "it saw the conflict"
    own = GitRepository(paths.repository(task.project).path)
    assert own.git("log", "-1", "--format=%P", task.head_commit) == f"{before} {target}"
    assert own.git("show", f"{task.head_commit}:paint.txt") == "red\nblue"


def test_v6_the_last_task_of_a_sequence_resolves_a_conflict_of_all_its_work(real: Runner) -> None:
    text = "# Paint it\n\nrehearsal: resolve-a-conflict\n"
    files = {
        "tasks/01-prime.md": text.replace("resolve-a-conflict", "no-questions"),
        "tasks/02-paint.md": text,
    }
    project = real.project(**files)
    sequence = create_sequence(project, "tasks", by=acting(real.user))

    def work() -> None:
        while due := Task.objects.due().first():
            real.advance(due)
        sequence.refresh_from_db()

    start_sequence(sequence, by=acting(real.user))
    work()
    last = task_to_publish(sequence)
    target = GitRepository(Path(project.source)).commit(**{"paint.txt": "red\n"})
    let_agent_merge(last, by=acting(real.user), via=Channel.WEB)
    work()
    assert sequence.phase == Phase.DONE, sequence.failure
    assert runs(last)[-1].session_id == runs(last)[0].session_id
    own = GitRepository(paths.repository(project).path)
    assert own.git("log", "-1", "--format=%P", sequence.head_commit) == f"{last.head_commit} {target}"
    assert own.git("show", f"{sequence.branch}:paint.txt") == "red\nblue"
