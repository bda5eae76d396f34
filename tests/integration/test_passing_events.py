"""What happens on the way of a run does not outrank its result (P8, P11, H8), with the real agent program."""

from __future__ import annotations

import pytest

from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import Event, Reason, Task
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.tasks import resume_task
from tests.people import acting
from tests.runner import Runner, file_in, runs, step

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

RETRYING = """\
pipelines:
  default:
    - name: do
      command: self
      retry: 2
"""


def playing(scenario: str) -> str:
    return f"# Paint it\n\nrehearsal: {scenario}\n"


def notes(task: Task) -> list[str]:
    events = Event.objects.filter(run__step__task=task, kind="note").order_by("pk")
    return [event.payload["text"] for event in events]


def output_log(task: Task) -> str:
    return "".join(render_log(step(task), LogKind.OUTPUT))


def test_a_refusal_is_not_tried_again_and_says_what_to_do(real: Runner) -> None:
    """Another attempt in the same session would be refused as well; a new one may be not."""
    task = real.advance(real.task(text=playing("model-refuses"), config=RETRYING))
    assert task.phase == Phase.FAILED
    (run,) = runs(task)
    assert "safeguards" in run.error
    assert (
        "Duplicate the task" in task.failure and "new session" in task.failure and run.error in task.failure
    )
    assert any("refused" in note for note in notes(task))
    resume_task(task, by=acting(real.user))
    assert real.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert second.reason == Reason.RETRY and not second.resumed and second.session_id != first.session_id
    assert "PREVIOUS ACTIONS LOG" in second.prompt and "half done" in second.prompt
    assert file_in(task, "notes.txt").read_text() == "half done"


def test_a_refusal_after_which_the_run_went_on_is_a_note_in_the_log(real: Runner) -> None:
    task = real.advance(real.task(text=playing("refuses-once")))
    assert task.phase == Phase.DONE and len(runs(task)) == 1
    assert any("safeguards" in note for note in notes(task))
    assert "[NOTE]" in output_log(task) and "safeguards" in output_log(task)


def test_a_session_that_is_too_long_is_followed_by_a_new_one(real: Runner, server: RehearsalServer) -> None:
    """With an attempt left at once, otherwise when somebody resumes the task."""
    task = real.task(text=playing("prompt-too-long"))
    assert real.advance(task).phase == Phase.FAILED
    assert "Resume the task to go on in a new session" in task.failure
    resume_task(task, by=acting(real.user))
    assert real.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert second.session_id != first.session_id and not second.resumed
    assert "PREVIOUS ACTIONS LOG" in str(server.requests[-1]["messages"])
    retried = real.advance(real.task(text=playing("prompt-too-long"), config=RETRYING))
    assert retried.phase == Phase.DONE
    assert [run.resumed for run in runs(retried)] == [False, False]


def test_retries_of_requests_are_in_the_log_with_their_words(real: Runner) -> None:
    task = real.advance(real.task(text=playing("retried")))
    assert task.phase == Phase.FAILED and "529" in task.failure
    assert [note for note in notes(task) if "Retry 1 of" in note and "529" in note]
    assert "[NOTE] The model's API failed with 529" in output_log(task)
    raw = "".join(render_log(step(task), LogKind.RAW))
    assert '"api_retry"' in raw
