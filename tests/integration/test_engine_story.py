"""From the first run to done: asking, halting in one transaction, answering, going on, checking."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.agent.port import AgentEvent, Ending, RunResult
from tasks_app.core.phases import Phase
from tasks_app.core.types import Ask, AskItem
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs import run_recorder
from tasks_app.engine.runs.conclude import halt
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import StopReason, never
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import Change, Event, Outcome, Question, Reason, Run, SessionEntry, Transition, paths
from tests.factories import RunFactory
from tests.fake_script import (
    Act,
    Call,
    Die,
    End,
    Fail,
    Hang,
    Limit,
    Turn,
    ask,
    ask_by_command,
    say,
    shell,
    write,
)
from tests.people import acting
from tests.runner import TWO_STEPS, Runner, diff_of, file_in, results, runs, step

ASKS_ONCE = [
    Turn("I ask.", (ask("Red?"),)),
    Turn(calls=(write("paint.txt", "{}"),)),
    say("Painted. {result}"),
]


def checked(command: str, *, retry: int = 0) -> str:
    return f"""\
pipelines:
  default:
    - name: do
      command: self
      check: {{type: shell, command: "{command}"}}
      retry: {retry}
"""


def test_the_whole_story_of_a_task(runner: Runner) -> None:
    """H3, H4, H7: two steps, a question in the second, an answer, and done."""
    task = runner.task(
        {
            "plan": [Turn(calls=(write("PLAN.md", "# Plan\n"),)), say("Planned.")],
            "implement": ASKS_ONCE,
        },
        config=TWO_STEPS,
    )
    runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT
    assert [one.phase for one in task.steps.all()] == [Phase.DONE, Phase.WAITING_FOR_INPUT]
    (question,) = task.questions.all()
    assert (question.number, question.headline, question.step.name) == (1, "Red?", "implement")
    runner.answer(question, "Blue, rather")
    assert runner.advance(task).phase == Phase.DONE
    assert {one.phase for one in task.steps.all()} == {Phase.DONE}
    planned, asked, answered = runs(task)
    assert (planned.outcome, asked.outcome, answered.outcome) == ("finished", "asked", "finished")
    assert answered.session_id == asked.session_id != planned.session_id
    assert (answered.reason, answered.resumed, answered.prompt) == (Reason.ANSWER, True, "")
    assert '"Red?"="Blue, rather"' in results(task)[1]
    question.refresh_from_db()
    assert question.delivered_at
    assert step(task, "plan").plan == "# Plan\n"
    assert "# Plan" not in diff_of(task)
    assert "paint.txt" in diff_of(task)


def test_a_step_reads_little_twice(runner: Runner) -> None:
    """F: a busy worker has many tasks, so each statement of a step counts."""

    def statements_of(steps: int) -> list[str]:
        play = {f"step-{number}": [say("Done.")] for number in range(steps)}
        rows = "".join(f"    - {{name: {name}, command: implement}}\n" for name in play)
        task = runner.task(play, config=f"pipelines:\n  default:\n{rows}")
        with CaptureQueriesContext(connection) as queries:
            assert runner.advance(task).phase == Phase.DONE
        return [query["sql"] for query in queries]

    statements_of(1)  # fills caches
    few, many = statements_of(1), statements_of(2)
    assert len(many) - len(few) <= 75, "of one more step whose agent says a sentence"


def test_a_halt_is_one_transaction(runner: Runner) -> None:
    """H4: question, step, task, history and notices become true together."""
    task = runner.task([])
    lease = Lease.claim(task.pk, owner="tester")
    assert lease is not None
    Task = type(task)
    Task.objects.update(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.RUNNING)
    run = Run.objects.create(
        step=step(task), number=1, reason="first", session_id="12345678-1234-4234-8234-123456789012"
    )
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=60)
    before = (Change.objects.count(), Transition.objects.count())
    result = RunResult(
        Ending.ASKED, asks=(Ask("toolu_1", "command", (AskItem("Why?"),)),), deferred="toolu_1"
    )
    with CaptureQueriesContext(
        connection,
    ) as queries:
        halt(lease, run, result, recorder)
    begun = [q["sql"] for q in queries if q["sql"].startswith("BEGIN")]
    ended = [
        q["sql"]
        for q in queries
        if q["sql"].startswith(("COMMIT", "ROLLBACK")) and "SAVEPOINT" not in q["sql"]
    ]
    assert (len(begun), len(ended)) == (1, 1)
    task.refresh_from_db()
    assert task.phase == step(task).phase == Phase.WAITING_FOR_INPUT
    assert Question.objects.get().is_open
    assert Transition.objects.count() == before[1] + 2
    assert Change.objects.count() > before[0]


def test_a_message_of_many_parts_does_not_keep_others_from_writing_until_all_are_stored(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F: batches are bounded. Each transaction is retried alone, so nothing is stored twice."""
    monkeypatch.setattr(run_recorder, "EVENTS_AT_ONCE", 2)
    run = RunFactory.create()
    lease = Lease.claim(run.step.task_id, owner="tester")
    assert lease is not None
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=60)
    with CaptureQueriesContext(connection) as queries:
        recorder.record([AgentEvent("text", {"text": str(number)}, timezone.now()) for number in range(5)])
    assert [query["sql"] for query in queries].count("COMMIT") == 3
    assert [event.payload["text"] for event in Event.objects.order_by("seq")] == list("01234")


def test_a_halt_that_cannot_be_stored_leaves_nothing_of_itself(runner: Runner) -> None:
    """R3: not a question without its phase."""
    task = runner.task([])
    lease = Lease.claim(task.pk, owner="tester")
    assert lease is not None
    type(task).objects.update(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.DONE)  # which nothing may leave
    run = Run.objects.create(
        step=step(task), number=1, reason="first", session_id="12345678-1234-4234-8234-123456789012"
    )
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=60)
    result = RunResult(Ending.ASKED, asks=(Ask("toolu_1", "command", (AskItem("Why?"),)),))
    with pytest.raises(Exception, match="cannot become waiting for input"):
        halt(lease, run, result, recorder)
    run.refresh_from_db()
    assert (run.outcome, Question.objects.count(), run.events.count()) == ("", 0, 0)


def test_tokens_of_a_halted_run_are_counted(runner: Runner) -> None:
    """P11, and a fault of the reference tool."""
    task = runner.advance(runner.task(ASKS_ONCE))
    (run,) = runs(task)
    assert (run.input_tokens, run.output_tokens) == (100, 10) and run.cost_usd == pytest.approx(0.01)
    runner.answer_all(task)
    runner.advance(task)
    _, second = runs(task)
    assert second.input_tokens == 200 and second.cost_usd == pytest.approx(0.02)


def test_a_question_just_before_the_end_is_asked(runner: Runner) -> None:
    """A fault of the reference tool: it was dropped and the task called done."""
    task = runner.advance(runner.task([Turn("Done, but:", (ask("Really?"),))]))
    assert task.phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE


def test_a_second_question_keeps_the_first_answer(runner: Runner) -> None:
    """A fault of the reference tool: after the second one the first answer was gone."""
    task = runner.task([Turn(calls=(ask("Tea?"),)), Turn(calls=(ask("Milk?"),)), say("Poured.")])
    runner.advance(task)
    runner.answer_all(task, "Green tea")
    runner.advance(task)
    assert [q.headline for q in task.questions.open()] == ["Milk?"]
    runner.answer_all(task, "A drop")
    assert runner.advance(task).phase == Phase.DONE
    assert [("Green tea" in text, "A drop" in text) for text in results(task)] == [
        (True, False),
        (False, True),
    ]
    assert all(q.delivered_at for q in task.questions.all())


def test_an_answer_is_given_to_no_other_question(runner: Runner) -> None:
    """R1, and a fault of the reference tool: a left-over answer went to the next, different question."""
    task = runner.task([Turn(calls=(ask("Tea?"),)), Turn(calls=(ask("Tea?"),)), say("Poured.")])
    runner.advance(task)
    runner.answer_all(task, "First answer")
    runner.advance(task)
    assert task.phase == Phase.WAITING_FOR_INPUT, "the same words, but another question"
    (open_question,) = task.questions.open()
    assert open_question.answers == {}
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer(open_question, "Second answer")
    runner.advance(task)
    assert ["First answer" in text for text in results(task)] == [True, False]


def test_two_questions_in_one_message_are_answered_together(runner: Runner) -> None:
    task = runner.task([Turn(calls=(ask("Colour?"), ask("Size?"))), say("Good.")])
    runner.advance(task)
    colour, size = task.questions.all()
    runner.answer(colour, "Blue")
    task.refresh_from_db()
    assert task.phase == Phase.WAITING_FOR_INPUT
    runner.answer(size, "Large")
    assert runner.advance(task).phase == Phase.DONE
    (told,) = results(task)
    assert "Blue" in told
    assert "Large" in told


def test_a_huge_answer_is_kept_whole(runner: Runner) -> None:
    """A fault of the reference tool: a stack trace."""
    text = "Wörter ☃\n" * 11_000
    task = runner.advance(runner.task(ASKS_ONCE))
    runner.answer_all(task, text)
    assert runner.advance(task).phase == Phase.DONE
    (file,) = paths.answers_dir(task).glob("*.txt")
    assert file.read_text() == text


def test_what_a_previous_run_did_is_in_a_replay(runner: Runner) -> None:
    """H9, and a fault of the reference tool: its previous actions never matched anything."""

    def play(prompt: str):  # type: ignore[no-untyped-def]
        again = "--- FEEDBACK ---" in prompt
        return [say("From here.")] if again else [Turn("I look first.", (write("a.txt", "x"), ask("Red?")))]

    task = runner.advance(runner.task(play))
    SessionEntry.objects.all().delete()
    runner.answer_all(task, "Certainly red")
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert not second.resumed
    assert second.session_id != first.session_id
    log, feedback = second.prompt.split("--- FEEDBACK ---")
    assert first.prompt.split("---")[0] in log
    assert "--- PREVIOUS ACTIONS LOG ---" in log
    assert "I look first." in log
    assert "a.txt" in log
    assert "Certainly red" in feedback
    assert task.questions.get().delivered_at


def test_a_task_may_choose_replay(runner: Runner) -> None:
    """H9: `resume: replay` in the front matter."""
    task = runner.task(
        lambda prompt: [say("From here.")] if "--- FEEDBACK ---" in prompt else [Turn(calls=(ask("Red?"),))],
        text="---\nresume: replay\n---\n# Paint it\n\nPlease.\n",
    )
    runner.advance(task)
    runner.answer_all(task, "Red it is")
    assert runner.advance(task).phase == Phase.DONE
    assert "Red it is" in runs(task)[1].prompt.split("--- FEEDBACK ---")[1]


def test_a_crashed_replay_resumes_in_its_own_session_without_repeating_the_answer(
    runner: Runner,
) -> None:
    """R1: the call that waited for the answer is not in the new session."""
    replayed: list[Act] = [say("I begin again."), Die(), say("From here.")]
    task = runner.task(
        lambda prompt: replayed if "--- FEEDBACK ---" in prompt else [Turn(calls=(ask("Red?"),))],
        config=checked("true", retry=2),
    )
    runner.advance(task)
    SessionEntry.objects.all().delete()
    runner.answer_all(task, "Red it is")
    assert runner.advance(task).phase == Phase.DONE
    told = [run.prompt.count("Red it is") for run in runs(task)]
    assert told[1] >= 1
    assert told[2:] == [0]
    assert all(order.permissions == {} for order in runner.fake.runs)


def test_a_failed_check_sends_the_agent_back_in_the_same_session(runner: Runner) -> None:
    """P6: with the command and its output."""
    task = runner.task(
        [say("Done, I think."), End(), Turn(calls=(write("made.txt", "x"),)), say("Now it is.")],
        config=checked("echo it is missing; test -e made.txt", retry=1),
    )
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert second.session_id == first.session_id
    assert second.reason == Reason.CHECK_FAILED
    assert "it is missing" in second.prompt
    assert "test -e made.txt" in second.prompt
    assert "weaken" in second.prompt and "had a home of its own" in second.prompt
    assert [run.checks and run.checks[-1]["passed"] for run in (first, second)] == [False, True]


def test_a_check_that_keeps_failing_fails_the_task_with_its_last_output(runner: Runner) -> None:
    task = runner.advance(runner.task([say("Done.")], config=checked("echo never; exit 3", retry=2)))
    assert task.phase == Phase.FAILED
    assert len(runs(task)) == 3
    assert task.failure == "`echo never; exit 3` failed with exit 3.\nnever"
    assert step(task).phase == Phase.FAILED


def test_resuming_after_a_failed_check_tries_again(runner: Runner) -> None:
    from tasks_app.services.tasks import resume_task

    task = runner.advance(runner.task([say("Done.")], config=checked("test -e made.txt")))
    assert task.phase == Phase.FAILED
    file_in(task, "made.txt").touch()
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE


def test_a_failing_agent_fails_the_task_with_its_reason(runner: Runner) -> None:
    """R3: never stuck in running."""
    task = runner.advance(runner.task([say("Hm."), Fail("API Error: 500 the model is ill")]))
    assert task.phase == step(task).phase == Phase.FAILED
    assert "the model is ill" in task.failure
    (run,) = runs(task)
    assert run.outcome == Outcome.FAILED
    assert run.input_tokens > 0


def test_a_dying_agent_is_tried_again_as_often_as_the_step_allows(runner: Runner) -> None:
    task = runner.task([say("Hm."), Die(), say("Better.")], config=checked("true", retry=1))
    assert runner.advance(task).phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == [Outcome.FAILED, Outcome.FINISHED]


def test_a_usage_limit_fails_the_task_and_names_the_time(runner: Runner) -> None:
    """P8."""
    task = runner.advance(runner.task([Limit(4_000_000_000), say("Again.")]))
    assert task.phase == Phase.FAILED
    assert "2096-10-02" in task.failure


def test_a_task_that_may_wait_for_the_reset_resumes_by_itself(runner: Runner) -> None:
    """P8, H11."""
    config = "waitForRateLimitReset: true\n" + checked("true")
    task = runner.advance(runner.task([Limit(4_000_000_000), say("Again.")], config=config))
    assert task.phase == step(task).phase == Phase.WAITING_FOR_RESET
    assert runner.advance(task).phase == Phase.WAITING_FOR_RESET
    type(task).objects.update(resets_at="2020-01-01T00:00:00Z")
    assert runner.advance(task).phase == Phase.DONE
    assert runs(task)[1].reason == Reason.LIMIT
    assert task.paused_seconds > 0


def test_a_reset_in_the_past_does_not_make_it_spin(runner: Runner) -> None:
    """P8: clocks differ, and a limit may last a little longer than it says."""
    config = "waitForRateLimitReset: true\n" + checked("true")
    task = runner.advance(runner.task([Limit(1_000_000_000), say("Again.")], config=config))
    assert task.phase == Phase.WAITING_FOR_RESET
    assert task.resets_at is not None and task.resets_at > timezone.now()
    assert len(runs(task)) == 1


@pytest.mark.parametrize("notes_before", ["", "It cannot be done."])
def test_r1_a_question_of_a_run_whose_answers_were_lost_is_asked(runner: Runner, notes_before: str) -> None:
    """H3: the run is undelivered, and what it asked before waits for a human all the same."""

    def played(prompt: str) -> list[Act]:
        return (
            [say("Going.")]
            if "Left or right?" in prompt
            else [Turn(calls=(ask_by_command("Left or right?"),))]
        )

    task = runner.task(played)
    original = runner.fake.run

    def run(order: Any, recorder: Any) -> RunResult:
        recorder.asked = lambda result: None
        result = original(order, recorder)
        if not result.asks:
            return result
        Run.objects.update(not_done=notes_before)
        return replace(result, ending=Ending.UNDELIVERED, error="An answer was lost.")

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    (question,) = task.questions.all()
    runner.answer(question, "Left ☃")
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert (first.outcome, second.outcome) == (Outcome.UNDELIVERED, Outcome.FINISHED)
    assert "Left ☃" in second.prompt and first.session_id != second.session_id


def test_an_ask_by_command_is_a_question_too(runner: Runner) -> None:
    """H3b."""
    task = runner.advance(runner.task([Turn(calls=(ask_by_command("Left or right?"),)), say("Going.")]))
    (question,) = task.questions.all()
    assert (question.way, question.headline) == ("command", "Left or right?")
    runner.answer(question, '"; rm -rf /')
    assert runner.advance(task).phase == Phase.DONE
    assert results(task) == ['"; rm -rf /']


def test_a_later_steps_prompt_carries_the_history(runner: Runner) -> None:
    """H10."""
    task = runner.task({"plan": ASKS_ONCE, "implement": [say("Done.")]}, config=TWO_STEPS)
    runner.advance(task)
    runner.answer_all(task, "Blue, rather")
    runner.advance(task)
    later = runs(task)[-1].prompt
    history = later.split("--- HUMAN INTERACTION HISTORY ---")[1]
    assert "Red?" in history
    assert "Blue, rather" in history
    assert "ann" in history
    assert "--- HUMAN INTERACTION HISTORY ---" not in runs(task)[0].prompt


def test_with_threshold_0_nobody_is_asked(runner: Runner) -> None:
    """H1, H13."""
    task = runner.advance(runner.task(ASKS_ONCE, threshold=0))
    assert task.phase == Phase.DONE
    assert task.questions.count() == 0
    (run,) = runs(task)
    assert "ask" not in run.prompt.lower().replace("task", "")
    assert not runner.fake.runs[0].may_ask


def test_what_the_portal_itself_fails_at_fails_the_task_and_leaves_no_open_run(runner: Runner) -> None:
    """R3."""

    class Broken(Exception): ...

    def play(prompt: str):  # type: ignore[no-untyped-def]
        raise Broken("a fault of ours")

    task = runner.advance(runner.task(play))
    assert task.phase == Phase.FAILED
    assert "a fault of ours" in task.failure
    assert [run.outcome for run in runs(task)] == [Outcome.FAILED]


def test_clocks_do_not_decide_which_run_got_an_answer(runner: Runner) -> None:
    """R1: the web server's clock is ahead of the worker's; the answer is told once, then the failed check."""
    text = "---\nresume: replay\n---\n# Paint it\n\nIn some colour.\n"
    task = runner.task(
        lambda prompt: (
            [say("Painted.")] if "Blue, please" in prompt or "it is missing" in prompt else ASKS_ONCE
        ),
        text=text,
        config=checked("echo it is $(echo missing); false", retry=1),
    )
    runner.advance(task)
    runner.answer_all(task, "Blue, please")
    task.questions.update(answered_at=timezone.now() + timedelta(hours=1))
    assert runner.advance(task).phase == Phase.FAILED
    _, second, third = runs(task)
    assert "Blue, please" in second.prompt
    assert "it is missing" in third.prompt
    assert task.questions.get().delivered_at is not None


def test_an_interrupted_run_shows_its_diff(runner: Runner) -> None:
    """P9: also what was done before somebody stopped it."""
    task = runner.task([Turn(calls=(write("half.txt", "x"),)), Hang(shell("true"))])
    runner.stop_signal = lambda: StopReason.INTERRUPTED if file_in(task, "half.txt").exists() else None
    assert runner.advance(task).phase == Phase.INTERRUPTED
    assert "half.txt" in diff_of(task)


def test_ten_megabytes_of_output_are_cut_and_the_cut_is_mentioned(runner: Runner) -> None:
    """H8, R5: multi-byte text undamaged, the limit marked, the raw message whole."""
    shout = Call("Bash", {"command": "shout"}, lambda workspace: "ä☃\n" * 3_500_000)
    task = runner.advance(runner.task([Turn(calls=(shout,)), say("Done.")]))
    assert task.phase == Phase.DONE
    log = "".join(render_log(step(task), LogKind.REASONING))
    assert len(log) < 3_000_000  # a million characters in short lines, each indented
    assert "9,500,000 characters are left out here" in log
    assert "\ufffd" not in log
    raw = "".join(render_log(step(task), LogKind.RAW))
    assert raw.count("☃") >= 3_500_000 or raw.count("\\u2603") >= 3_500_000


def test_the_repository_is_tidied_when_nobody_waits(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recording leaves a pack, and git looks through all of them at the next one."""
    monkeypatch.setattr("tasks_app.git.repository.PACKS", 1)
    play = {name: [Turn(calls=(write(f"{name}.txt", "{}"),)), say("Done.")] for name in ("plan", "implement")}
    task = runner.advance(runner.task(play, config=TWO_STEPS))
    assert (task.phase, len(runs(task))) == (Phase.DONE, 2)
    assert len(list(paths.repository(task.project).path.glob("objects/pack/*.pack"))) == 1
