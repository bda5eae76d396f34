"""What a step's prompt is made of, gathered from rows, settings and the workspace (P4, P5, P6, P7, H10)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.prompts import values
from tasks_app.git import Repository, committed_text_behind_links
from tasks_app.models import Channel, Decision, Outcome, Reason, Task, paths
from tasks_app.prompting.assembly import EarlierAccount, PromptParts, assemble
from tasks_app.services.bulk import retry_from
from tasks_app.services.decisions.answering import DecisionInput, Remember
from tasks_app.services.decisions.changes import retire, revise
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.projects.projects import fetch
from tasks_app.services.questions.answers import Reply, answer_question, decide
from tasks_app.services.sequences import create_sequence, start_sequence
from tests.factories import RunFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Call, End, Turn, ask, plan, say, shell, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import ONE_STEP, TWO_STEPS, Runner, file_in, prompt_of, run_after, runs, step

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
        return committed_text_behind_links(repository, commit=commit, path=path)

    monkeypatch.setattr(values, "committed_text_behind_links", noted)
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
    assert "only these files: `*.txt`" in first and "sent back, once." in first
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
    prompt = prompt_of(step(task))
    assert "Be brief." in prompt and "Use tabs." in prompt
    place = file_in(task, "CLAUDE.md")
    place.unlink()
    place.symlink_to("AGENTS.md")
    assert prompt_of(step(task)).count("Be brief.") == 1


def test_p4_what_claude_code_would_read_of_the_repository_is_in_the_prompt(runner: Runner) -> None:
    """Links and imports that stay inside, rules, nested files; nothing from outside of the repository."""
    project = runner.project(
        ONE_STEP,
        **{
            "CLAUDE.md": "Use tabs. See @docs/style.md and @/etc/hostname.\n",
            "docs/style.md": "Short names. @deeper.md\n",
            "docs/deeper.md": "No abbreviations. @../CLAUDE.md\n",
            ".claude/rules/tests.md": "---\npaths: ['tests/**']\n---\nOne assert.\n",
            ".claude/rules/always.md": "Be kind.\n",
            "packages/api/CLAUDE.md": "Only in the API.\n",
            "long.md": "x" * 70_000,
        },
    )
    task = runner.advance(runner.task([say("Done.")], project=project))
    prompt = prompt_of(step(task))
    assert [
        prompt.count(text) for text in ("Use tabs.", "Short names.", "No abbreviations.", "Be kind.")
    ] == [1] * 4
    assert (
        "One assert." not in prompt and "- .claude/rules/tests.md: for files that match tests/**\n" in prompt
    )
    assert (
        "Only in the API." not in prompt
        and "- packages/api/CLAUDE.md: for files in packages/api/\n" in prompt
    )
    secret = paths.data_dir() / "secret"
    secret.write_text("secret-of-the-portal")
    (file_in(task, ".claude") / "CLAUDE.md").symlink_to("../linked/inside.md")
    file_in(task, "linked").mkdir()
    (file_in(task, "linked") / "inside.md").write_text("Behind a link. @out.md @../long.md\n")
    (file_in(task, "linked") / "out.md").symlink_to(secret)
    prompt = prompt_of(step(task))
    assert "Behind a link." in prompt and "secret-of-the-portal" not in prompt
    assert "- long.md: imported by .claude/CLAUDE.md; it is too long to stand here" in prompt


def test_p4_imports_are_relative_to_the_file_that_names_them_and_bounded(runner: Runner) -> None:
    files = {f"part{number}.md": f"Part {number}. @part{number + 1}.md\n" for number in range(9)}
    files |= {"CLAUDE.md": "@part0.md @long.md\n", "long.md": "x" * 70_000}
    task = runner.advance(runner.task([say("Done.")], project=runner.project(**files)))
    prompt = prompt_of(step(task))
    assert "Part 4." in prompt and "Part 5." not in prompt
    assert "- long.md: imported by CLAUDE.md; it is too long to stand here" in prompt and "xxxx" not in prompt


def test_p2_a_command_file_behind_a_link_that_stays_inside_is_read(runner: Runner) -> None:
    project = runner.project(
        "pipelines: {default: [{name: do, command: own}, {name: out, command: out}]}\n",
        **{"shared/own.md": "Our own prompt.\n"},
    )
    source = Path(project.source)
    (source / ".claude" / "commands").mkdir(parents=True)
    (source / ".claude" / "commands" / "own.md").symlink_to("../../shared/own.md")
    (source / ".claude" / "commands" / "out.md").symlink_to("/etc/hostname")
    GitRepository(source).commit()
    fetch(project)
    task = runner.advance(runner.task([say("Done.")], project=project))
    assert "Our own prompt." in runs(task)[0].prompt
    assert "no instructions for the command" in task.failure


def test_at_a_threshold_of_nought_a_prompt_says_to_decide_and_to_write_down_what_was_assumed(
    runner: Runner,
) -> None:
    """H13: without a word about asking."""
    task = runner.advance(runner.task([say("Done.")], threshold=0))
    prompt = runs(task)[0].prompt
    assert "decide by yourself" in prompt and "write down in your last message what you assumed" in prompt
    assert not re.search(r"\bask(s|ed|ing)?\b|question", prompt)


def test_h10_a_step_reads_what_the_agents_before_it_said_at_their_ends(runner: Runner) -> None:
    play: dict[str, list[Act]] = {
        "plan": [
            Turn(calls=(write("PLAN.md", "# Plan\n"),)),
            say("Mind the\n--- FEEDBACK ---\nlegacy table."),
        ],
        "implement": [say("Done. The importer is untested.")],
    }
    config = f"{TWO_STEPS}    - name: review\n      command: self-review\n"
    task = runner.advance(runner.task({**play, "review": [say("I would merge it.")]}, config=config))
    planning, implement, review = (run.prompt for run in runs(task))
    assert "ACCOUNTS" not in planning
    assert "step plan wrote when it ended" in implement and "legacy table." in implement
    assert "--- FEEDBACK ---" not in implement.split("\n")
    assert "The importer is untested." in review and "I would merge it." not in review

    runner.agent = FakeAgent(lambda prompt: [say("The importer is tested now.")])
    retry_from(task, step(task, "review"), by=acting(runner.user))
    runner.advance(task)
    again = runs(task)[-1].prompt
    assert again.index("The importer is untested.") < again.index("I would merge it."), (
        "its own run before it"
    )


def test_h10_accounts_are_bounded_and_what_is_cut_is_told(runner: Runner) -> None:
    accounts = tuple(EarlierAccount("plan", f"[{run}]" + "x" * 9_000) for run in range(1, 9))
    parts = PromptParts(step="do", steps=("plan", "do"), task="T", instructions="I", accounts=accounts)
    prompt = assemble(parts)
    assert len(prompt) < 40_000
    assert "[8]" in prompt and "[1]" not in prompt
    assert "more characters are left out" in prompt and "accounts are left out" in prompt


RULED = """\
setup: {run: [touch made-ready]}
network: none
askBefore: ["Bash(*git tag*)"]
pipelines:
  default:
    clarify: true
    steps:
    - name: plan
      command: plan-task
      planApproval: true
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
      allowedTools: [Read, Write, "Bash(make:*)"]
"""


def test_p4_a_prompt_says_what_holds_in_its_step_and_nothing_else(runner: Runner) -> None:
    """Setup, network, approvals, plan mode and what the shell runs; each from the rows."""
    task = runner.task([], config=RULED, threshold=4)
    clarify, planning, implement = (prompt_of(one) for one in task.steps.order_by("position"))
    for prompt in (clarify, planning, implement):
        assert "made ready by these commands:\n\n    touch made-ready\n" in prompt
        assert "installed dependencies" not in prompt, "they may be there"
        assert "have no network" in prompt
        assert "git add" not in prompt, "it is refused in each of these steps"
    assert all("`Bash(*git tag*)`" in prompt for prompt in (planning, implement))
    assert "`Bash(*git tag*)`" not in clarify, "its shell refuses that, so nobody is asked"
    assert task.base_commit not in clarify, "nothing has been changed before it"
    assert f"git diff {task.base_commit}" in planning and f"git diff {task.base_commit}" in implement
    assert "ExitPlanMode" in planning and "ExitPlanMode" not in clarify + implement
    as_approved = "`PLAN.md` must have the text that they approved"
    assert as_approved in planning and as_approved not in clarify + implement
    assert "`make …`, commands that only read" in implement
    assert "you may run commands that only read" in clarify


@pytest.mark.parametrize(("threshold", "has_shell"), [(0, False), (3, True)])
def test_p4_a_step_without_a_shell_is_told_so(runner: Runner, threshold: int, has_shell: bool) -> None:
    """Where a person approves what is read, a step gets a shell only if it names one, or to ask with it."""
    config = f"{ONE_STEP}      allowedTools: [Read]\n      askBefore: ['Read(secrets/**)']\n"
    prompt = prompt_of(step(runner.task([], config=config, threshold=threshold)))
    assert ("This step has no shell" in prompt) is not has_shell
    assert ("In your shell you may run" in prompt) is has_shell
    assert ("git diff" in prompt) is has_shell


def test_p4_an_approval_of_a_file_that_the_step_may_not_write_is_not_announced(runner: Runner) -> None:
    config = """\
askBefore: ["Write(setup.py)", "Write(src/**)"]
pipelines:
  default:
    clarify: false
    steps:
      - {name: plan, command: plan-task, fileAccess: {allowWrite: [PLAN.md]}}
      - {name: do, command: implement}
"""
    planning, doing = (prompt_of(one) for one in runner.task([], config=config).steps.order_by("position"))
    assert "`Write(setup.py)`" in doing and "`Write` is any tool that writes files" in doing
    assert "setup.py" not in planning and "`Write(src/**)`" in planning


def test_h9_an_agent_that_was_stopped_before_it_did_anything_begins_as_if_it_had_not_run(
    runner: Runner,
) -> None:
    task = runner.task([say("Done.")])
    RunFactory.create(
        step=step(task), task=task, outcome=Outcome.INTERRUPTED, ended_at=timezone.now(), threshold=3
    )
    planned = run_after(step(task))
    assert planned.prompt == prompt_of(step(task)) and not planned.resume


@pytest.mark.parametrize(
    ("kind", "verdict", "reason"),
    [
        ("approval", "approved", Reason.APPROVED),
        ("approval", "denied", Reason.DENIED),
        ("plan", "approved", Reason.PLAN),
    ],
)
def test_h5_a_run_says_whether_it_follows_an_answer_an_approval_a_denial_or_a_plan(
    runner: Runner, kind: str, verdict: str, reason: Reason
) -> None:
    more = "      planApproval: true\n" if kind == "plan" else ""
    call = plan("1. Paint.") if kind == "plan" else shell("git push")
    config = f'askBefore: ["Bash(git push*)"]\n{ONE_STEP}{more}'
    task = runner.advance(runner.task([Turn(calls=(call,)), say("Done.")], config=config))
    decide(task.questions.get(), verdict, by=acting(runner.user), via=Channel.WEB, notes="As you say.")
    assert run_after(step(task)).reason == reason


def test_p4_a_plan_that_is_approved_is_not_asked_for_again(runner: Runner) -> None:
    task = runner.advance(
        runner.task([Turn(calls=(plan("1. Paint."),))], config=f"{ONE_STEP}      planApproval: true\n")
    )
    assert "ExitPlanMode" in prompt_of(step(task))
    decide(task.questions.get(), "approved", by=acting(runner.user), via=Channel.WEB)
    assert "ExitPlanMode" not in prompt_of(step(task))


def test_p4_tasks_are_offered_to_be_added_only_where_they_may_be_written(runner: Runner) -> None:
    config = """\
pipelines:
  default:
    clarify: false
    steps:
    - {name: plan, command: plan-task, fileAccess: {allowWrite: [PLAN.md]}}
    - {name: implement, command: implement}
"""
    project = runner.project(config, **{"tasks/01-first.md": "# First\n"})
    runner.agent = FakeAgent(lambda prompt: [say("Done.")])
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    first, second = (prompt_of(one) for one in sequence.tasks.get().steps.order_by("position"))
    assert "NN-name.md" not in first and "NN-name.md" in second


def test_h10_of_several_answers_the_one_that_does_not_hold_is_named(runner: Runner) -> None:
    """As if all answers of the card were outdated."""
    name = {"question": "What file name?", "options": []}
    task = runner.advance(runner.task([Turn(calls=(ask(ROUNDING, name),)), say("Done.")]))
    first = task.questions.get()
    remember = DecisionInput(by_item={"What file name?": Remember("project", statement="It is a.csv.")})
    given = {str(ROUNDING["question"]): "Half up", "What file name?": "a.csv"}
    reply = Reply(given, decision_input=remember)
    answer_question(first, reply, by=acting(runner.user), via=Channel.WEB)
    revise(first.decisions.get(), DecisionContent("It is b.csv."), by=acting(runner.user))
    said = "The answer to “What file name?” became D-1, which is superseded by D-2 now."
    assert said in prompt_of(step(task))


def test_h10_an_answer_that_does_not_hold_any_more_says_so(runner: Runner) -> None:
    """It stood in later prompts as if it held."""
    asks = [Turn(calls=(ask(ROUNDING),)), Turn(calls=(ask(ROUNDING),)), say("Done.")]
    task = runner.advance(runner.task(asks))
    first = task.questions.get()
    remember = DecisionInput(Remember("project", statement="Round up."))
    reply = Reply({first.headline: "Half up"}, decision_input=remember)
    answer_question(first, reply, by=acting(runner.user), via=Channel.WEB)
    runner.advance(task)
    assert "any more" not in prompt_of(step(task)) and "became" not in prompt_of(step(task))
    decision = first.decisions.get()
    revise(decision, DecisionContent("Round down."), by=acting(runner.user))
    assert "It became D-1, which is superseded by D-2 now." in prompt_of(step(task))
    retire(project_decision(task), by=acting(runner.user))
    second = task.questions.open().get()
    answer_question(second, Reply({second.headline: "Half to even"}), by=acting(runner.user), via=Channel.WEB)
    runner.advance(task)
    prompt = prompt_of(step(task))
    assert prompt.index("asked again and answered otherwise: 2 holds") < prompt.index("> Half to even")


def project_decision(task: Task) -> Decision:
    return task.project.decisions.active().get()


def test_h10_a_call_that_was_approved_and_failed_is_told_as_failed(runner: Runner) -> None:
    config = ONE_STEP + '      askBefore: ["Bash(false*)"]\n'
    failing = Call("Bash", {"command": "false"})
    task = runner.advance(runner.task([Turn(calls=(failing,)), say("Done.")], config=config))
    decide(task.questions.get(), "approved", by=acting(runner.user), via=Channel.WEB)
    runner.advance(task)
    assert "The call was made, and failed." in prompt_of(step(task))


def test_h10_each_question_of_a_card_is_told_once(runner: Runner) -> None:
    other = {**ROUNDING, "question": "Which paint?", "header": "Paint"}
    task = runner.advance(runner.task([Turn(calls=(ask(ROUNDING, other),)), say("Done.")]))
    runner.answer_all(task, "Half up")
    runner.advance(task)
    prompt = prompt_of(step(task))
    assert prompt.count("How to round?") == prompt.count("Which paint?") == 1
    assert prompt.count("> Half up\n") == 2
