"""An agent that cannot do its task ends it as not done: the task fails with its reason (P5, P6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.urls import reverse

from tasks_app.agent.spools import NotDone, said_folder, spooled_said
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, EventKind, Outcome, Run, Task
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import Reply, answer_question, decide
from tasks_app.services.tasks import resume_task
from tests.api import Script
from tests.browser import signed_in
from tests.fake_script import Act, Call, Die, End, Hang, Limit, Turn, ask, say, write
from tests.integration.test_protected_files import Play, play, shell  # noqa: F401
from tests.people import acting
from tests.runner import Runner

WHY = "The table prices does not exist."
CHECKED = """\
pipelines:
  default:
    - name: do
      command: self
      retry: 2
      check: {type: shell, command: "touch checked; true"}
"""


def says_not_done(why: str = WHY) -> Turn:
    """What the command writes; the fake agent has no shell with it."""

    def leave(workspace: Path) -> str:
        folder = said_folder(workspace.parent / "home")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one.json").write_text(json.dumps({"why": why}))
        return "It was noted."

    return Turn("I cannot.", (Call("Bash", {"command": f"cat-herder not-done '{why}'"}, leave),))


def task_of(runner: Runner, *acts: Act) -> Task:
    task = runner.task(list(acts), project=runner.project(CHECKED))
    return runner.advance(task)


@pytest.mark.django_db(transaction=True)
def test_the_task_fails_with_the_reason_and_no_check_makes_it_green(runner: Runner) -> None:
    task = task_of(runner, Turn(calls=(write("half.txt", "x"),)), says_not_done(), say("I stop here."))
    assert task.phase == task.steps.get().phase == Phase.FAILED
    assert task.failure == f"The agent says that the task is not done: {WHY}"
    run = Run.objects.get()
    assert (run.outcome, run.checks, run.not_done) == ("failed", None, "")
    assert run.head_commit, "what it did so far is recorded"
    said = [event.payload.get("text", "") for event in run.events.filter(kind=EventKind.ERROR)]
    assert any(WHY in text for text in said), "it is in the log"
    page = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert WHY in page and Outcome.FAILED.label not in page
    assert WHY in Script(runner.user).get(f"/tasks/{task.pk}").json()["failure"]


@pytest.mark.django_db(transaction=True)
def test_a_person_resumes_it_and_the_agent_goes_on_from_its_reason(runner: Runner) -> None:
    task = task_of(runner, says_not_done(), say("I stop."), End(), say("Now it is done."))
    assert task.phase == Phase.FAILED
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert WHY in Run.objects.latest("pk").prompt


@pytest.mark.parametrize("put_back", [False, True])
@pytest.mark.django_db(transaction=True)
def test_who_tries_the_step_once_more_reads_why_it_was_not_done(runner: Runner, put_back: bool) -> None:
    task = task_of(runner, says_not_done(), say("I stop."))
    retry_from(task, task.steps.get(), by=acting(runner.user), put_back=put_back)
    runner.advance(task)
    assert Run.objects.count() == 2 and WHY in Run.objects.latest("pk").prompt


@pytest.mark.django_db(transaction=True)
def test_it_holds_when_the_process_dies_afterwards(runner: Runner) -> None:
    """R2: no later run of the session ends as done."""
    task = task_of(runner, says_not_done(), Die(-9), say("Done."))
    assert (task.phase, WHY in task.failure) == (Phase.FAILED, True)
    assert Run.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_question_takes_it_back(runner: Runner) -> None:
    turn = Turn("May I make it?", (ask("May I make the table?"),))
    task = task_of(runner, says_not_done(), turn, say("Done."))
    assert task.phase == Phase.WAITING_FOR_INPUT
    question = task.questions.get()
    answer_question(question, Reply.to(question, "Yes"), by=acting(runner.user), via=Channel.WEB)
    assert runner.advance(task).phase == Phase.DONE


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_call_that_waits_for_an_approval_takes_nothing_back(runner: Runner, verdict: str) -> None:
    """In one message: the result says that the task fails, so the agent ends its turn."""
    said = says_not_done()
    turn = Turn("I cannot.", (*said.calls, Call("Bash", {"command": "git tag --list"})))
    project = runner.project("askBefore: [Bash(git tag *)]\n" + CHECKED)
    task = runner.advance(runner.task([turn, say("I stop here.")], project=project))
    assert task.phase == Phase.WAITING_FOR_INPUT
    decide(task.questions.get(), verdict, by=acting(runner.user), via=Channel.WEB, notes="So it is.")
    assert runner.advance(task).phase == Phase.FAILED
    assert task.failure == f"The agent says that the task is not done: {WHY}"
    assert Run.objects.count() == 2 and not Run.objects.exclude(not_done="").exists()


CLARIFIED = """\
pipelines:
  default:
    clarify: true
    steps:
    - {name: do, command: self, retry: 0, timeout: 1}
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "end",
    [say("I stop."), Limit(), Hang(Call("Bash", {"command": "true"}))],
    ids=["said", "limit", "timeout"],
)
@pytest.mark.parametrize("step", ["clarify", "do"])
def test_it_fails_each_step_however_the_run_ends(runner: Runner, step: str, end: Act) -> None:
    """P5: the prompt of each step promises the command, and the agent does not run again after it."""
    plays: dict[str, list[Act]] = {"clarify": [say("Clear.")], "do": [say("Done.")]}
    plays[step] = [says_not_done(), end, say("Again.")]
    task = runner.advance(runner.task(plays, config=CLARIFIED))
    assert (task.phase, task.steps.get(name=step).phase) == (Phase.FAILED, Phase.FAILED)
    assert task.failure == f"The agent says that the task is not done: {WHY}"
    assert Run.objects.filter(step__name=step).count() == 1


@pytest.mark.bubblewrap
@pytest.mark.parametrize("order", [{}, {"allowed_tools": ("Read",)}, {"allow_write": ()}])
def test_every_step_has_the_command(play: Play, order: dict[str, object]) -> None:  # noqa: F811
    """With the real program, in a run that can ask nobody."""
    played = play(shell(f'cat-herder not-done "{WHY}"'), **order)
    assert "End your turn now" in played.told[0]
    assert spooled_said(played.bench.home).found == [NotDone(WHY)]
