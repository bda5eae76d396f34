"""Stopping: cancelled, shut down, interrupted, out of time; and going on from there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tasks_app.agent.port import AgentEvent, RunResult
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import StopReason
from tasks_app.models import Event, EventKind, Outcome, QuestionState, Reason, Run, Task
from tasks_app.services.tasks import cancel_task, resume_task
from tests.fake_script import Act, Hang, Turn, ask, say, shell, write
from tests.people import acting
from tests.runner import Runner, results, runs, step

HANGS: list[Act] = [Hang(shell("touch started")), say("Done.")]
ASKS = [Turn(calls=(ask("Red?"),)), say("Painted. {result}")]


def at_work(runner: Runner) -> bool:
    return any(runner.folder.glob("data/tasks/*/workspace/started"))


def once_at_work(runner: Runner, action: Callable[[], None]) -> None:
    """Have `action` happen in another thread, with its own connection, while the agent is at work."""

    def looking() -> StopReason | None:
        if at_work(runner) and not done.is_set():
            done.set()
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
        return None

    def act() -> None:
        try:
            action()
        finally:
            connection.close()

    done = threading.Event()
    runner.stop_signal = looking


@pytest.fixture
def stopping(runner: Runner) -> Iterator[Callable[[StopReason], None]]:
    """Ask the work to stop as soon as the agent is at work."""

    def stop(reason: StopReason) -> None:
        runner.stop_signal = lambda: reason if at_work(runner) else None

    yield stop


def test_a_cancel_stops_the_agent_at_work(runner: Runner) -> None:
    task = runner.task(HANGS)
    once_at_work(runner, lambda: cancel_task(task, by=acting(runner.user)))
    assert runner.advance(task).phase == Phase.CANCELLED
    assert step(task).phase == Phase.CANCELLED
    (run,) = runs(task)
    assert run.outcome == Outcome.INTERRUPTED
    assert run.input_tokens > 0, "what was used counts"
    notes = [one.payload["text"] for one in Event.objects.filter(run=run, kind=EventKind.NOTE)]
    assert f"The run was stopped: {runner.user.shown_name} cancelled it." in notes


def test_a_cancelled_task_resumes_in_the_same_session(runner: Runner) -> None:
    task = runner.task(HANGS)
    once_at_work(runner, lambda: cancel_task(task, by=acting(runner.user)))
    runner.advance(task)
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert second.resumed and second.reason == Reason.RESUMED
    assert second.session_id == first.session_id
    who, told = runner.user.shown_name, second.prompt
    assert f"{who} cancelled the task at" in told and f"{who} resumed it at" in told


def test_a_cancel_withdraws_the_question_and_going_on_asks_it_again(runner: Runner) -> None:
    task = runner.advance(runner.task(ASKS))
    cancel_task(task, by=acting(runner.user))
    assert task.questions.get().state == QuestionState.WITHDRAWN
    assert runner.advance(task).phase == Phase.CANCELLED
    resume_task(task, by=acting(runner.user))
    task.refresh_from_db()
    assert task.phase == step(task).phase == Phase.WAITING_FOR_INPUT
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert task.questions.count() == 1
    assert "Blue" in results(task)[0]


def test_a_question_asked_in_the_moment_of_the_cancel_is_not_lost(runner: Runner) -> None:
    """H3: the agent asks, and before the halt is stored somebody cancels."""
    task = runner.task(ASKS)

    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        result = original(order, recorder)
        if len(runner.fake.runs) == 1:
            cancel_task(Task.objects.get(pk=task.pk), by=acting(runner.user))
        return result

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.CANCELLED
    assert runs(task)[0].outcome == Outcome.ASKED
    assert task.questions.get().state == QuestionState.WITHDRAWN
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert "Blue" in results(task)[0]


def test_a_cancel_beats_the_end_of_the_run(runner: Runner) -> None:
    task = runner.task([say("Done.")])
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        result = original(order, recorder)
        cancel_task(Task.objects.get(pk=task.pk), by=acting(runner.user))
        return result

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.CANCELLED
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert len(runs(task)) == 1, "what was done is not done again"


def test_a_task_that_has_ended_cannot_be_cancelled(runner: Runner) -> None:
    task = runner.advance(runner.task([say("Done.")]))
    with pytest.raises(IllegalMove):
        cancel_task(task, by=acting(runner.user))
    with pytest.raises(IllegalMove):
        resume_task(task, by=acting(runner.user))


def test_a_shutdown_puts_the_task_back_and_the_next_worker_finishes_it(
    runner: Runner, stopping: Callable[[StopReason], None]
) -> None:
    """R2."""
    task = runner.task(HANGS)
    stopping(StopReason.SHUTDOWN)
    assert runner.advance(task).phase == Phase.PENDING
    assert step(task).phase == Phase.PENDING
    assert Task.objects.due().get() == task
    runner.stop_signal = lambda: None
    assert runner.advance(task).phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == [Outcome.INTERRUPTED, Outcome.FINISHED]
    assert "the portal was stopped" in runs(task)[1].prompt


def test_an_interrupted_task_waits_until_somebody_resumes_it(
    runner: Runner, stopping: Callable[[StopReason], None]
) -> None:
    task = runner.task(HANGS)
    stopping(StopReason.INTERRUPTED)
    assert runner.advance(task).phase == step(task).phase == Phase.INTERRUPTED
    runner.stop_signal = lambda: None
    assert runner.advance(task).phase == Phase.INTERRUPTED
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    told = runs(task)[1].prompt
    assert "somebody stopped the task at" in told and f"{runner.user.shown_name} resumed it at" in told


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.INTERRUPTED, StopReason.TIMEOUT])
def test_a_question_that_was_heard_before_the_stop_is_asked(runner: Runner, reason: StopReason) -> None:
    """H3: whatever stops the run."""
    from tasks_app.engine.stopping import Stopped

    task = runner.task(ASKS)
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        record = recorder.record

        def stopping(events: list[AgentEvent]) -> None:
            record(events)
            if any(event.kind == "tool_use" for event in events):
                raise Stopped(reason)

        if len(runner.fake.runs) == 0:
            recorder.record = stopping
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert task.questions.get().delivered_at


def test_a_run_that_takes_too_long_is_a_failed_attempt(runner: Runner) -> None:
    """P2, P6: `timeout`, and the agent's process with it."""
    config = """\
pipelines:
  default:
    - name: do
      command: self
      timeout: 1
"""
    task = runner.advance(runner.task(HANGS, config=config))
    assert task.phase == Phase.FAILED
    assert "1 second" in task.failure
    assert runs(task)[0].outcome == Outcome.FAILED


def test_a_check_is_stopped_with_its_task_and_has_no_verdict(
    runner: Runner, stopping: Callable[[StopReason], None]
) -> None:
    config = """\
pipelines:
  default:
    - name: do
      command: self
      check: {type: shell, command: "test -e let-me || { touch let-me; sleep 1000; }"}
"""
    task = runner.task([say("Done.")], config=config)
    runner.stop_signal = lambda: (
        StopReason.SHUTDOWN if Run.objects.filter(outcome=Outcome.FINISHED).exists() else None
    )
    assert runner.advance(task).phase == Phase.PENDING
    assert runs(task)[0].checks is None
    runner.stop_signal = lambda: None
    assert runner.advance(task).phase == Phase.DONE
    assert len(runs(task)) == 1


def test_a_cancel_during_a_check_cancels(runner: Runner) -> None:
    config = """\
pipelines:
  default:
    - name: do
      command: self
      check: {type: shell, command: "sleep 1000"}
"""
    task = runner.task([Turn(calls=(write("a", "b"),)), say("Done.")], config=config)

    def looking() -> None:
        if Run.objects.filter(outcome=Outcome.FINISHED).exists():
            task.refresh_from_db()
            if task.phase == Phase.RUNNING:
                cancel_task(task, by=acting(runner.user))

    runner.stop_signal = looking
    assert runner.advance(task).phase == Phase.CANCELLED


def test_an_answer_may_come_while_the_agent_is_still_ending(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4, H5: the question is stored before the process is gone, and its answer is not lost meanwhile."""
    seen: list[tuple[str, list[str]]] = []

    def answered(recorder: RunRecorder, result: RunResult) -> None:
        asked(recorder, result)
        recorder.tick()  # a task that waits stops other runs, not this one
        task = Task.objects.get()
        seen.append((task.phase, [question.state for question in task.questions.all()]))
        runner.answer_all(task)
        recorder.tick()

    asked = RunRecorder.asked
    monkeypatch.setattr(RunRecorder, "asked", answered)
    task = runner.advance(runner.task(ASKS))
    assert seen == [(Phase.WAITING_FOR_INPUT, [QuestionState.OPEN])]
    assert task.phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED, Outcome.FINISHED]
    assert "Yes" in results(task)[-1]
    assert task.questions.count() == 1


def test_a_cancel_while_the_agent_is_still_ending_withdraws_its_question(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(recorder: RunRecorder, result: RunResult) -> None:
        asked(recorder, result)
        cancel_task(Task.objects.get(), by=acting(runner.user))
        recorder.tick()

    asked = RunRecorder.asked
    monkeypatch.setattr(RunRecorder, "asked", cancelled)
    task = runner.advance(runner.task(ASKS))
    assert task.phase == Phase.CANCELLED
    assert [question.state for question in task.questions.all()] == [QuestionState.WITHDRAWN]
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED]
