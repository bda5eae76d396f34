"""The clarifying pass (D8): what is unclear about the goal is asked on one card, before anybody works."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.core.phases import Phase
from tasks_app.core.types import Ask, AskItem
from tasks_app.engine.runs.decisions import columns_of_question
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import EventKind, Outcome, Run, StepKind, Task
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import undo_answer
from tasks_app.services.sequences import create_sequence, start_sequence
from tasks_app.services.tasks import cancel_task, change_threshold, resume_task
from tests.factories import RunFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Fail, Hang, Turn, ask, say, shell, write
from tests.people import acting
from tests.runner import Runner, diff_of, prompt_of, runs, script, step

pytestmark = pytest.mark.django_db(transaction=True)

PLANNED = """\
pipelines:
  default:
    steps:
    - {name: plan, command: plan-task}
    - {name: implement, command: implement}
"""
CLARIFIED = PLANNED.replace("steps:", "clarify: true\n    steps:")
READERS: dict[str, Any] = {
    "question": "Who reads it?",
    "header": "Readers",
    "options": [{"label": "Guests (Recommended)"}, {"label": "Staff"}],
}
PLAYS: dict[str, list[Act]] = {
    "clarify": [Turn("I looked.", (ask(READERS, "Must the old one stay?"),)), say("It is for {result}.")],
    "plan": [say("Planned.")],
    "implement": [Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")],
}
NOTHING_UNCLEAR: dict[str, list[Act]] = {**PLAYS, "clarify": [say("Nothing was unclear.")]}


def steps_of(task: Task) -> list[tuple[str, str]]:
    return list(task.steps.values_list("name", "kind"))


WORK = [("plan", StepKind.WORK), ("implement", StepKind.WORK)]
PASS = [("clarify", StepKind.CLARIFY), *WORK]


def test_d8_everything_is_asked_on_one_card_before_the_work(runner: Runner) -> None:
    task = runner.advance(runner.task(PLAYS, config=CLARIFIED))
    assert (task.phase, steps_of(task)) == (Phase.WAITING_FOR_INPUT, PASS)
    (question,) = task.questions.all()
    assert [item["question"] for item in question.items] == ["Who reads it?", "Must the old one stay?"]
    assert question.about_goal and not question.is_late and question.recommended == 1
    runner.answer(question, "Guests (Recommended)")
    assert runner.advance(task).phase == Phase.DONE
    question.refresh_from_db()
    assert (question.recommended_taken, task.questions.count()) == (1, 1)
    assert "+blue" in diff_of(task)
    for name in ("plan", "implement"):
        prompt = prompt_of(step(task, name))
        assert "step clarify wrote when it ended:\n> It is for " in prompt
        assert "Who reads it?" in prompt and "Guests (Recommended)" in prompt
        assert "1. clarify\n2. plan\n3. implement" in prompt


def test_a_pass_without_questions_ends_at_once(runner: Runner) -> None:
    task = runner.advance(runner.task(NOTHING_UNCLEAR, config=CLARIFIED))
    assert (task.phase, task.questions.count()) == (Phase.DONE, 0)
    assert [run.step.name for run in runs(task)] == ["clarify", "plan", "implement"]
    assert runs(task)[0].cost_usd > 0
    assert "Nothing was unclear." in prompt_of(step(task, "plan"))


def test_its_own_prompt_tells_to_read_and_to_ask_and_no_other_does(runner: Runner) -> None:
    files = {".claude/commands/clarify.md": "Do whatever you like."}
    project = runner.project(CLARIFIED, **files)
    task = runner.advance(runner.task(NOTHING_UNCLEAR, project=project))
    first, then, _ = (run.prompt for run in runs(task))
    assert "ask all of it in one call" in first and "You may write no file." in first
    assert "ask all of it in one call" not in then and "whatever you like" not in first
    assert "ACCOUNTS" not in first


def test_it_has_no_tools_that_write(runner: Runner) -> None:
    task = runner.advance(runner.task(NOTHING_UNCLEAR, config=CLARIFIED))
    first, then, _ = runner.fake.runs
    assert first.allow_write == () and first.allowed_tools == ("Read", "Glob", "Grep")
    assert (first.max_turns, then.max_turns) == (30, None)
    assert first.timeout == 900 and then.allow_write is None
    assert task.phase == Phase.DONE


def test_what_it_changes_all_the_same_fails_it(runner: Runner) -> None:
    play: dict[str, list[Act]] = {
        **NOTHING_UNCLEAR,
        "clarify": [Turn(calls=(shell("touch sneaky.txt"),)), say("Done.")],
    }
    task = runner.advance(runner.task(play, config=CLARIFIED))
    assert task.phase == Phase.FAILED and "sneaky.txt" in task.failure


@pytest.mark.parametrize(
    ("key", "threshold", "expected"),
    [
        ("", 0, WORK), ("", 1, WORK), ("", 2, WORK), ("", 3, PASS), ("", 4, PASS), ("", 5, PASS),
        ("clarify: true\n", 0, WORK), ("clarify: true\n", 1, PASS), ("clarify: true\n", 3, PASS),
        ("clarify: false\n", 1, WORK), ("clarify: false\n", 5, WORK),
    ],
)  # fmt: skip
def test_pipeline_and_threshold_decide_whether_there_is_a_pass(
    runner: Runner, key: str, threshold: int, expected: list[tuple[str, str]]
) -> None:
    config = PLANNED.replace("steps:", f"{key}    steps:" if key else "steps:")
    assert steps_of(runner.task(config=config, threshold=threshold)) == expected


def test_a_pipeline_that_does_not_plan_has_a_pass_only_if_it_says_so(runner: Runner) -> None:
    assert steps_of(runner.task()) == [("do", StepKind.WORK)]
    alone = "pipelines: {default: {clarify: true, steps: [{name: do, command: self}]}}\n"
    assert steps_of(runner.task(config=alone)) == [("clarify", StepKind.CLARIFY), ("do", StepKind.WORK)]


def test_a_pipeline_may_have_a_step_of_that_name(runner: Runner) -> None:
    task = runner.task(config=CLARIFIED.replace("name: plan,", "name: clarify,"))
    assert [name for name, _ in steps_of(task)] == ["clarify-2", "clarify", "implement"]


def test_it_runs_where_the_first_step_runs(runner: Runner) -> None:
    first = "{name: plan, command: plan-task, model: opus, network: model, runsOn: [gpu], timeout: 5m}"
    task = runner.task(config=CLARIFIED.replace("{name: plan, command: plan-task}", first))
    one = task.steps.get(name="clarify")
    assert (one.config["model"], one.config["network"], one.runs_on) == ("opus", "model", "gpu")
    assert one.config["timeout"] == 300


def test_a_threshold_that_was_lowered_to_nought_skips_it(runner: Runner) -> None:
    task = runner.task(NOTHING_UNCLEAR, config=CLARIFIED)
    change_threshold(task, 0, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert [run.step.name for run in runs(task)] == ["plan", "implement"]
    assert step(task, "clarify").phase == Phase.DONE


def test_a_pass_that_takes_too_long_ends_and_the_work_begins(
    runner: Runner,
) -> None:
    quick = CLARIFIED.replace(
        "{name: plan, command: plan-task}", "{name: plan, command: plan-task, timeout: 1}"
    )
    play: dict[str, list[Act]] = {**NOTHING_UNCLEAR, "clarify": [Hang(shell("true"))]}
    task = runner.advance(runner.task(play, config=quick))
    first = runs(task)[0]
    assert task.phase == Phase.DONE
    assert first.outcome == Outcome.FINISHED and "longer than its 1 seconds" in first.error


def test_a_pass_that_costs_too_much_ends_and_the_work_begins(runner: Runner) -> None:
    broke = Fail("API Error: 402", subtype="error_max_budget_usd")
    play: dict[str, list[Act]] = {**PLAYS, "clarify": [PLAYS["clarify"][0], broke]}
    task = runner.advance(runner.task(play, config=CLARIFIED))
    Run.objects.update(cost_usd=1.25)
    runner.answer_all(task, "Staff")
    task = runner.advance(task)
    first, second, plan = (runner.fake.runs[number] for number in range(3))
    assert (first.max_cost_usd, second.max_cost_usd, plan.max_cost_usd) == (1.0, 0.1, None)
    ended = runs(task)[1]
    assert ended.outcome == Outcome.FINISHED and ended.error == "Stopped at its cost limit."
    assert task.phase == Phase.DONE
    assert "Staff" in (plan.prompt or "") and "API Error: 402" not in (plan.prompt or "")


def test_the_limit_of_the_task_holds_for_the_pass_as_well(runner: Runner) -> None:
    task = runner.advance(runner.task(NOTHING_UNCLEAR, config=f"limits: {{maxCostUsd: 0.5}}\n{CLARIFIED}"))
    assert task.phase == Phase.DONE
    first, then, _ = runner.fake.runs
    assert first.max_cost_usd == 0.5 and then.max_cost_usd == pytest.approx(0.49)


def test_another_failure_of_the_pass_fails_the_task(runner: Runner) -> None:
    task = runner.advance(runner.task({**NOTHING_UNCLEAR, "clarify": [Fail()]}, config=CLARIFIED))
    assert task.phase == Phase.FAILED and "API Error" in task.failure


def test_a_retry_of_the_first_step_leaves_the_pass_as_it_was(runner: Runner) -> None:
    task = runner.task(PLAYS, config=CLARIFIED)
    runner.advance(task)
    runner.answer_all(task, "Staff")
    runner.advance(task)
    retry_from(task, step(task, "plan"), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert [run.step.name for run in runs(task)] == [
        "clarify",
        "clarify",
        "plan",
        "plan",
        "implement",
        "implement",
    ]
    retry_from(task, step(task, "clarify"), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    again = task.questions.last()
    assert again and again.asked_before and not task.questions.first().asked_before  # type: ignore[union-attr]


def test_a_pass_that_was_cancelled_while_it_asked_asks_again(runner: Runner) -> None:
    task = runner.task(PLAYS, config=CLARIFIED)
    runner.advance(task)
    cancel_task(task, by=acting(runner.user))
    resume_task(task, by=acting(runner.user))
    runner.answer_all(task, "Staff")
    assert runner.advance(task).phase == Phase.DONE and task.questions.count() == 1


def test_questions_about_the_goal_are_late_in_later_steps(runner: Runner) -> None:
    goal = {"question": "For whom is it?", "header": "Goal", "options": []}
    play: dict[str, list[Act]] = {
        "clarify": [say("Nothing was unclear.")],
        "plan": [Turn(calls=(ask(goal),)), say("Planned.")],
        "implement": [
            Turn(calls=(shell('cat-herder ask --about goal "And when?"'),)),
            Turn(calls=(ask("Blue?"),)),
            say("Painted."),
        ],
    }
    task = runner.advance(runner.task(play, config=CLARIFIED))
    while task.phase == Phase.WAITING_FOR_INPUT:
        runner.answer_all(task, "Staff")
        runner.advance(task)
    assert task.phase == Phase.DONE
    late = [(question.headline, question.is_late) for question in task.questions.select_related("step")]
    assert late == [("For whom is it?", True), ("And when?", True), ("Blue?", False)]


def test_without_a_pass_a_question_of_the_first_step_is_not_late(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(shell('cat-herder ask --about goal "Why?"'),))]))
    (question,) = task.questions.all()
    assert question.about_goal and not question.is_late and question.headline == "Why?"
    assert question.worked_seconds is not None


@pytest.mark.django_db
def test_a_refused_write_is_no_work() -> None:
    run = RunFactory.create(step__position=1)
    call = {"id": "w", "name": "Write", "input": {"file_path": "notes.md", "content": ""}}
    refusal = {"tool_use_id": "w", "text": "The step “plan” may write only PLAN.md.", "is_error": True}
    item = AskItem("For whom?", "Goal", ())
    asked = Ask("q", "AskUserQuestion", (item,), about_goal=True)
    for kind, payload, late in (
        (EventKind.TOOL_USE, call, True),
        (EventKind.TOOL_RESULT, refusal, False),
    ):
        append(run, [NewEvent(kind, payload, raw=payload)], seq=run.next_seq())
        columns = columns_of_question(run.step.task, run.step, asked, [{"question": "For whom?"}])
        assert columns["is_late"] is late


def test_d8_in_the_first_step_a_question_is_late_once_the_agent_has_written(runner: Runner) -> None:
    """A pipeline of one step: nothing is late because of its step alone."""
    goal = {"header": "Goal", "options": []}
    play: list[Act] = [
        Turn(calls=(shell("ls"),)),
        Turn(calls=(ask({"question": "For whom?", **goal}),)),
        Turn(calls=(write("door.txt", "red\n"),)),
        Turn(calls=(ask("Blue?"),)),
        Turn(calls=(ask({"question": "And when?", **goal}),)),
        say("Painted."),
    ]
    task = runner.advance(runner.task(play))
    while task.phase == Phase.WAITING_FOR_INPUT:
        runner.answer_all(task, "Staff")
        runner.advance(task)
    late = [(question.headline, question.is_late) for question in task.questions.all()]
    assert late == [("For whom?", False), ("Blue?", False), ("And when?", True)]


def test_an_answer_that_is_taken_back_took_no_recommendation(runner: Runner, settings: Any) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask(READERS),)), say("Done.")]))
    (question,) = task.questions.all()
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    runner.answer(question, "Guests (Recommended)")
    question.refresh_from_db()
    assert question.recommended_taken == 1
    undo_answer(question, by=acting(runner.user))
    question.refresh_from_db()
    assert (question.recommended, question.recommended_taken) == (1, 0)


def test_a_task_of_a_sequence_asks_before_its_own_work(runner: Runner) -> None:
    files = {"work/01-a.md": "# A\n", "work/02-b.md": "# B\n"}
    project = runner.project(CLARIFIED, **files)
    sequence = create_sequence(project, "work", by=acting(runner.user), threshold=3)
    start_sequence(sequence, by=acting(runner.user))
    runner.agent = FakeAgent(script(NOTHING_UNCLEAR))
    for _ in range(2):
        task = sequence.tasks.exclude(phase=Phase.DONE).get()
        assert steps_of(task) == PASS
        assert runner.advance(task).phase == Phase.DONE
