"""What a step's prompt is made of, gathered from rows, settings and the workspace (P4, P5, P6, P7, H10)."""

from __future__ import annotations

import re
import subprocess

import pytest

from tasks_app.agent.fake import FakeAgent
from tasks_app.agent.fake_script import Act, End, Turn, ask, say, write
from tasks_app.core.phases import Phase
from tasks_app.engine.prompts import values
from tasks_app.engine.prompts.values import step_prompt
from tasks_app.git import Repository, committed_text
from tasks_app.models import Task
from tasks_app.services.sequences import create_sequence, start_sequence
from tests.people import acting
from tests.runner import ONE_STEP, TWO_STEPS, Runner, file_in, runs, step

TESTS_FIRST = """\
pipelines:
  default:
    - name: write_tests
      command: write-tests
      check: {type: shell, command: "test ! -e right.txt", expect: fail, timeout: 90s}
      fileAccess: {allowWrite: ["*.txt"]}
      retry: 1
"""
ROUNDING = {
    "question": "How to round?",
    "header": "Rounding",
    "multiSelect": False,
    "options": [
        {"label": "Half to even", "description": "As banks do."},
        {"label": "Half up", "description": "As at school."},
    ],
}


def diff_command(prompt: str) -> str:
    found = re.search(r"^    (git add .*)$", prompt, re.MULTILINE)
    assert found, prompt
    return found[1]


def shown_by(task: Task, prompt: str) -> str:
    """What the command of the prompt says in the task's workspace."""
    done = subprocess.run(
        ["/bin/sh", "-c", diff_command(prompt)],
        cwd=file_in(task, "."), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def test_the_command_in_the_prompt_shows_what_the_task_changed_and_nothing_else(runner: Runner) -> None:
    """New files too, which a plain git diff passes over; not the plan."""
    play = {
        "plan": [Turn(calls=(write("PLAN.md", "# The plan\n"), write("new.txt", "new\n"))), say("Planned.")],
        "implement": [ask_nothing(), say("Done.")],
    }
    task = runner.advance(runner.task(play, config=TWO_STEPS))
    prompt = runs(task)[-1].prompt
    assert f"The task began at the commit {task.base_commit}." in prompt
    shown = shown_by(task, prompt)
    assert "+new" in shown and "+blue" in shown and "The plan" not in shown


def ask_nothing() -> Turn:
    return Turn(calls=(write("paint.txt", "blue\n"),))


def test_a_command_file_is_read_once_from_a_commit(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot change there, and each read takes two processes."""
    reads: list[str] = []

    def noted(repository: Repository, *, commit: str, path: str) -> str | None:
        reads.append(path)
        return committed_text(repository, commit=commit, path=path)

    monkeypatch.setattr(values, "committed_text", noted)
    project = runner.project(TWO_STEPS)
    tasks = [runner.advance(runner.task([say("Done.")], project=project)) for _ in range(2)]
    assert len({task.base_commit for task in tasks}) == 1
    assert len(reads) == len(set(reads)) == 2


def test_the_second_task_of_a_sequence_is_shown_its_own_changes_alone(runner: Runner) -> None:
    files = {"tasks/01-first.md": "# First\n", "tasks/02-second.md": "# Second\n"}
    project = runner.project("interactionThreshold: 3\n" + ONE_STEP, **files)

    def play(prompt: str) -> list[Act]:
        name = "first" if "# First" in prompt else "second"
        asking = [Turn(calls=(ask(ROUNDING),))] if name == "first" else []
        return [*asking, Turn(calls=(write(f"{name}.txt", f"of {name}\n"),)), say("Done.")]

    runner.agent = FakeAgent(play)
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    while due := Task.objects.due().first():
        runner.advance(due)
        for one in Task.objects.filter(phase=Phase.WAITING_FOR_INPUT):
            runner.answer_all(one, "Half to even")
    second = sequence.tasks.order_by("pk").last()
    assert second and second.phase == Phase.DONE
    prompt = runs(second)[0].prompt
    assert "Task: First" in prompt and "> Half to even: As banks do." in prompt
    assert "As at school" not in prompt
    shown = shown_by(second, prompt)
    assert "+of second" in shown and "+of first" not in shown


def test_checks_files_and_attempts_stand_in_the_first_prompt_and_what_is_left_in_the_next(
    runner: Runner,
) -> None:
    play: list[Act] = [
        say("No test needed."),
        End(),
        Turn(calls=(write("right.txt", "x"),)),
        say("Now it fails."),
    ]
    task = runner.advance(runner.task(play, config=TESTS_FIRST))
    assert task.phase == Phase.DONE
    first, second = (run.prompt for run in runs(task))
    assert "`test ! -e right.txt` must run and must fail (within 90 seconds)" in first
    assert "only these files: `*.txt`" in first and "sent back, up to 1 time." in first
    assert "These tests pass already" in second and "Do not weaken" not in second
    assert "there is no further attempt" in second


def test_a_command_that_could_not_be_run_is_no_test_that_passes_already(runner: Runner) -> None:
    config = TESTS_FIRST.replace("test ! -e right.txt", "no-such-program")
    task = runner.advance(runner.task([say("Done."), End(), say("Done.")], config=config))
    assert task.phase == Phase.FAILED
    assert "These tests pass already" not in runs(task)[1].prompt


def test_agents_md_is_read_beside_claude_md_and_a_link_between_them_once(runner: Runner) -> None:
    project = runner.project(**{"AGENTS.md": "Be brief.\n", "CLAUDE.md": "Use tabs.\n"})
    task = runner.advance(runner.task([say("Done.")], project=project))
    prompt = step_prompt(step(task))
    assert "Be brief." in prompt and "Use tabs." in prompt
    place = file_in(task, "CLAUDE.md")
    place.unlink()
    place.symlink_to("AGENTS.md")
    assert step_prompt(step(task)).count("Be brief.") == 1


def test_at_a_threshold_of_nought_a_prompt_says_to_decide_and_to_write_down_what_was_assumed(
    runner: Runner,
) -> None:
    """H13: without a word about asking."""
    task = runner.advance(runner.task([say("Done.")], threshold=0))
    prompt = runs(task)[0].prompt
    assert "decide by yourself" in prompt and "write down in your last message what you assumed" in prompt
    assert not re.search(r"\bask(s|ed|ing)?\b|question", prompt)
