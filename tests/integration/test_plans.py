"""The plan of a task is what one of its steps wrote (P4, P5): who gets it, and what becomes of the file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import NO_PLAN
from tasks_app.engine.planning.plan import AS_APPROVED
from tasks_app.engine.runs import judging
from tasks_app.history.events.reading import Events
from tasks_app.models import Channel, EventKind, Question, Task, User, paths
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import decide
from tasks_app.services.sequences import create_sequence, start_sequence
from tests.addresses import text_of
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, End, Turn, plan, say, shell, write
from tests.people import acting
from tests.runner import TWO_STEPS, Runner, diff_of, file_in, prompt_of, runs, step, step_in

CHECKED = """\
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
      check: {type: fileExists, path: PLAN.md}
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
"""
PAINTS: list[Act] = [Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")]
WRITES_NOTHING: dict[str, list[Act]] = {"plan": [say("I thought about it.")], "implement": PAINTS}


def planning(text: str = "# The new plan\n") -> dict[str, list[Act]]:
    return {"plan": [Turn(calls=(write("PLAN.md", text),)), say("Planned.")], "implement": PAINTS}


def published(task: Task) -> dict[str, str]:
    """The files of the branch that people fetch."""
    bare = paths.repository(task.project).path

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=bare, check=True, capture_output=True, text=True).stdout

    names = git("ls-tree", "-r", "--name-only", task.branch).split()
    return {name: git("show", f"{task.branch}:{name}") for name in names}


def test_a_plan_that_was_merged_before_does_not_pass_for_this_tasks(runner: Runner) -> None:
    project = runner.project(CHECKED, **{"PLAN.md": "# The old plan\n"})
    task = runner.advance(runner.task(WRITES_NOTHING, project=project))
    assert task.phase == Phase.FAILED
    assert "`PLAN.md` does not exist" in task.failure


def test_the_next_step_gets_the_plan_that_was_written_and_not_the_old_one(runner: Runner) -> None:
    project = runner.project(CHECKED, **{"PLAN.md": "# The old plan\n"})
    task = runner.advance(runner.task(planning(), project=project))
    assert task.phase == Phase.DONE
    prompt = runs(task)[-1].prompt
    assert "The new plan" in prompt and "The old plan" not in prompt
    assert step(task, "plan").plan == "# The new plan\n"


def test_an_approved_plan_that_is_in_no_file_is_the_plan(runner: Runner) -> None:
    """A human has read it. The agent was told to write it into the file as well, and forgot."""
    config = TWO_STEPS.replace("command: plan-task", "command: plan-task\n      planApproval: true")
    planned: list[Act] = [Turn(calls=(plan("# Approved\n"),)), say("Planned.")]
    plays = {"plan": planned, "implement": PAINTS}
    task = runner.advance(runner.task(plays, config=config))
    decide(task.questions.get(), "approved", by=acting(runner.user), via=Channel.WEB)
    assert runner.advance(task).phase == Phase.DONE
    assert step(task, "plan").plan == "# Approved\n"
    assert "# Approved" in runs(task)[-1].prompt


APPROVED = CHECKED.replace("command: plan-task", "command: plan-task\n      planApproval: true")


def approve(runner: Runner, task: Task) -> Question:
    question = task.questions.open().get()
    decide(question, "approved", by=acting(runner.user), via=Channel.WEB)
    runner.advance(task)
    return question


def test_a_plan_that_differs_from_the_approved_one_goes_back_to_the_agent(runner: Runner) -> None:
    """It costs no attempt. Later steps read what the human has read; the agent is shown the difference."""
    planned: list[Act] = [
        Turn(calls=(plan("# Paint\n\n1. In blue.\n"),)),
        Turn(calls=(write("PLAN.md", "# Paint\n\n1. In red.\n"),)),
        say("Planned."),
        End(),
        say("Left as approved."),
    ]
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=APPROVED))
    approve(runner, task)
    assert task.questions.count() == 1
    task.refresh_from_db()
    assert task.phase == Phase.DONE
    first, again = step(task, "plan").current_runs.order_by("-number")[:2][::-1]
    assert "-1. In blue." in again.prompt and "+1. In red." in again.prompt
    assert runner.fake.runs[-2].planning, "so that it may ask for an approval of the changed plan"
    assert [one["check"] for one in first.checks or () if not one["passed"]] == [AS_APPROVED]
    assert step(task, "plan").plan == "# Paint\n\n1. In blue.\n"
    assert "In blue." in runs(task)[-1].prompt and "In red." not in runs(task)[-1].prompt


@pytest.mark.parametrize("target", ["other.md", "$PWD/other.md", "/nowhere"])
def test_a_link_in_place_of_the_approved_plan_goes_back_to_the_agent(runner: Runner, target: str) -> None:
    planned: list[Act] = [
        Turn(calls=(plan("# Blue\n"),)),
        Turn(calls=(shell(f'echo "# Red" > other.md; ln -s "{target}" PLAN.md'),)),
        say("Planned."),
        End(),
        say("Left as approved."),
    ]
    config = APPROVED.replace("allowWrite: [PLAN.md]", "allowWrite: [PLAN.md, other.md]")
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=config))
    approve(runner, task)
    task.refresh_from_db()
    first, again = step(task, "plan").current_runs.order_by("-number")[:2][::-1]
    assert next(one["check"] for one in first.checks or () if not one["passed"]) == AS_APPROVED
    assert "-# Blue" in again.prompt and task.phase == Phase.DONE
    assert "PLAN.md" not in published(task) and "PLAN.md" not in diff_of(task)


def test_the_approved_plan_is_put_back_although_the_worker_died_before(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Act] = [
        Turn(calls=(plan("# Blue\n"),)),
        Turn(calls=(write("PLAN.md", "# Red\n"),)),
        say("Planned."),
        End(),
        say("Left as approved."),
    ]
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=APPROVED))

    class Died(BaseException):
        pass

    with monkeypatch.context() as patch:

        def die(name: str) -> None:
            if name == "checked":
                raise Died

        patch.setattr(judging, "crash_point", die)
        with pytest.raises(Died):
            approve(runner, task)
    assert file_in(task, "PLAN.md").read_text() == "# Red\n"
    Task.objects.filter(pk=task.pk).update(lease_expires=timezone.now())
    assert runner.advance(task).phase == Phase.DONE
    assert [one.planning for one in runner.fake.runs][-2:] == [True, False]
    assert step(task, "plan").plan == "# Blue\n"


def test_a_changed_plan_is_the_plan_once_it_is_approved_too(runner: Runner) -> None:
    planned: list[Act] = [
        Turn(calls=(plan("# Blue\n"),)),
        Turn(calls=(write("PLAN.md", "# Red\n"),)),
        say("Planned."),
        End(),
        Turn(calls=(plan("# Red\n"),)),
        Turn(calls=(write("PLAN.md", " # Red"),)),
        say("Planned."),
    ]
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=APPROVED))
    approve(runner, task)
    changed = task.questions.open().get()
    assert changed.revises is not None and changed.revises.verdict == "approved"
    approve(runner, task)
    task.refresh_from_db()
    assert task.phase == Phase.DONE and step(task, "plan").plan == "# Red\n"
    assert [order.planning for order in runner.fake.runs] == [True, True, True, True, False]


def test_a_plan_that_differs_again_fails_the_step_that_has_no_attempt_left(runner: Runner) -> None:
    other = [Turn(calls=(write("PLAN.md", "# Red\n"),)), say("Planned.")]
    first, second = Turn(calls=(plan("# Blue\n"),)), Turn(calls=(plan("# Green\n"),))
    planned: list[Act] = [first, *other, End(), second, *other]
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=APPROVED))
    approve(runner, task)
    assert file_in(task, "PLAN.md").read_text() == "# Blue\n", "the portal has put it back"
    approve(runner, task)
    task.refresh_from_db()
    assert task.phase == Phase.FAILED and "+# Red" in task.failure
    assert step(task, "plan").plan == "# Green\n" and file_in(task, "PLAN.md").read_text() == "# Green\n"


def test_a_later_step_cannot_replace_the_approved_plan(runner: Runner) -> None:
    config = APPROVED + "    - name: review\n      command: self-review\n"
    play: dict[str, list[Act]] = {
        "plan": [
            Turn(calls=(plan("# Blue\n"),)),
            Turn(calls=(write("PLAN.md", "# Blue\n"),)),
            say("Planned."),
        ],
        "implement": [Turn(calls=(write("PLAN.md", "# Red\n"),)), say("Changed.")],
        "review": [say("Fine.")],
    }
    task = runner.advance(runner.task(play, config=config))
    approve(runner, task)
    assert [one.plan or "" for one in task.steps.all()] == ["# Blue\n", "", ""]
    implement, review = runs(task)[-2:]
    assert "# Blue" in review.prompt and "# Red" not in review.prompt
    assert "says something else" in review.prompt and "says something else" not in implement.prompt
    notes = Events(Q(run=implement)).of_kinds([EventKind.NOTE])
    assert any("approved" in str(note.payload["text"]) for note in notes.all())


def test_what_a_card_says_without_a_plan_is_no_plan(runner: Runner) -> None:
    planned: list[Act] = [Turn(calls=(plan(""),)), say("Planned.")]
    config = TWO_STEPS.replace("command: plan-task", "command: plan-task\n      planApproval: true")
    task = runner.advance(runner.task({"plan": planned, "implement": PAINTS}, config=config))
    assert approve(runner, task).evidence[0]["text"] == NO_PLAN
    assert step(task, "plan").plan == "" and NO_PLAN not in prompt_of(step(task, "implement"))


def test_an_old_plan_that_nobody_replaced_reaches_no_prompt(runner: Runner) -> None:
    """Without a check the plan step is done all the same; there is no plan then."""
    project = runner.project(TWO_STEPS, **{"PLAN.md": "# The old plan\n"})
    task = runner.advance(runner.task(WRITES_NOTHING, project=project))
    assert task.phase == Phase.DONE
    assert "The old plan" not in runs(task)[-1].prompt
    assert published(task)["PLAN.md"] == "# The old plan\n", "the file was not the task's to take away"
    assert "PLAN.md" not in diff_of(task)


def test_the_same_words_written_again_are_a_plan(runner: Runner) -> None:
    project = runner.project(CHECKED, **{"PLAN.md": "# The plan\n"})
    task = runner.advance(runner.task(planning("# The plan\n"), project=project))
    assert task.phase == Phase.DONE
    assert "# The plan" in runs(task)[-1].prompt


@pytest.mark.parametrize("base", [{}, {"PLAN.md": "# The old plan\n"}])
def test_the_result_has_the_work_and_not_the_plan(runner: Runner, base: dict[str, str]) -> None:
    task = runner.advance(runner.task(planning(), project=runner.project(CHECKED, **base)))
    assert task.phase == Phase.DONE
    files = published(task)
    assert files["paint.txt"] == "blue" and files.get("PLAN.md") == base.get("PLAN.md")
    assert "PLAN.md" not in diff_of(task) and "paint.txt" in diff_of(task)
    assert step(task, "plan").plan == "# The new plan\n", "but the portal keeps it"


@pytest.mark.parametrize("added", ["git add --intent-to-add .", "git add ."])
def test_git_does_not_show_the_plan_as_deleted(runner: Runner, added: str) -> None:
    """An agent that is sent back by a review saw ` D PLAN.md`, and wondered who had deleted it."""
    acts = planning() | {"implement": [Turn(calls=(write("paint.txt", "blue"), shell(added))), say("Done.")]}
    task = runner.advance(runner.task(acts, config=CHECKED))
    assert task.phase == Phase.DONE
    words = ["git", "status", "--short"]
    status = subprocess.run(words, cwd=paths.workspace(task).path, check=True, capture_output=True, text=True)
    assert "paint.txt" in status.stdout and "PLAN.md" not in status.stdout


@pytest.mark.parametrize("auto_commit", ["", "autoCommit: true\n"])
def test_what_checks_left_does_not_get_into_the_result_with_the_plan_taken_out(
    runner: Runner, auto_commit: str
) -> None:
    """P5: the branch is what was judged, without the plan, and no commit of it has the plan."""
    left = '      check: {type: shell, command: "touch left-by-check"}\n'
    task = runner.advance(runner.task(planning(), config=auto_commit + CHECKED + left))
    assert task.phase == Phase.DONE and file_in(task, "left-by-check").exists()
    assert set(published(task)) == {"cat-herder.yaml", "paint.txt"}
    bare = paths.repository(task.project).path
    words = ["git", "log", "--format=%s", f"{task.base_commit}..{task.branch}"]
    titles = subprocess.run(words, cwd=bare, check=True, capture_output=True, text=True).stdout.split("\n")
    expected = ["chore(implement): checkpoint", "chore(plan): checkpoint"] if auto_commit else ["Paint it"]
    assert titles[:-1] == expected
    workspace = paths.workspace(task).path
    assert subprocess.run(
        ["git", "status", "--porcelain"], cwd=workspace, check=True, capture_output=True, text=True
    ).stdout.splitlines() == (["?? left-by-check"] if auto_commit else ["?? left-by-check", "?? paint.txt"])


def test_a_guard_of_the_next_task_does_not_blame_it_for_what_checks_left(runner: Runner) -> None:
    """P7, P10: also where the plan was taken out of the result of the task before."""
    files = {"tasks/01-first.md": "# First\n", "tasks/02-second.md": "# Second\n"}
    config = CHECKED + '      check: {type: shell, command: "touch left-by-check"}\n'
    project = runner.project(config, **files)
    runner.agent = FakeAgent(lambda prompt: planning()[step_in(prompt)])
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    while due := Task.objects.due().first():
        runner.advance(due)
    assert [task.phase for task in sequence.tasks.order_by("pk")] == [Phase.DONE, Phase.DONE], [
        task.failure for task in sequence.tasks.all()
    ]


def test_with_publish_plan_the_plan_is_a_part_of_the_result(runner: Runner) -> None:
    task = runner.advance(runner.task(planning(), config="publishPlan: true\n" + CHECKED))
    assert published(task)["PLAN.md"] == "# The new plan\n"


def test_each_task_of_a_sequence_has_a_plan_of_its_own(runner: Runner) -> None:
    """The second one finds nothing of the first, although that left its plan in the result."""
    files = {"tasks/01-first.md": "# First\n", "tasks/02-second.md": "# Second\n"}
    project = runner.project("publishPlan: true\n" + CHECKED, **files)
    prompts: list[str] = []

    def play(prompt: str) -> list[Act]:
        prompts.append(prompt)
        return planning("# Plan one\n")[step_in(prompt)] if "# First" in prompt else WRITES_NOTHING["plan"]

    runner.agent = FakeAgent(play)
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    while due := Task.objects.due().first():
        runner.advance(due)
    first, second = sequence.tasks.order_by("pk")
    assert (first.phase, second.phase) == (Phase.DONE, Phase.FAILED)
    assert "`PLAN.md` does not exist" in second.failure
    assert "Plan one" in prompts[1] and "Plan one" not in prompts[2]


def test_a_later_step_that_changes_the_plan_passes_it_on(runner: Runner) -> None:
    config = CHECKED + "    - name: review\n      command: self-review\n"
    revised: list[Act] = [Turn(calls=(write("PLAN.md", "# Revised\n"),)), say("Revised.")]
    reviewed: list[Act] = [say("Fine.")]
    play = {**planning(), "implement": revised, "review": reviewed}
    task = runner.advance(runner.task(play, config=config))
    assert [one.plan or "" for one in task.steps.all()] == ["# The new plan\n", "# Revised\n", ""]
    assert "# Revised" in runs(task)[-1].prompt and "The new plan" not in runs(task)[-1].prompt


def test_a_later_step_that_removes_the_file_does_not_take_the_plan_from_those_after_it(
    runner: Runner,
) -> None:
    config = CHECKED + "    - name: review\n      command: self-review\n"
    play: dict[str, list[Act]] = {
        **planning(),
        "implement": [Turn(calls=(shell("rm PLAN.md"),)), say("Gone.")],
        "review": [say("Fine.")],
    }
    task = runner.advance(runner.task(play, config=config))
    assert "The new plan" in runs(task)[-1].prompt


def test_a_second_step_that_wants_the_file_finds_the_plan_of_this_task(runner: Runner) -> None:
    """P5: what an earlier step of the same task wrote is there for every later check."""
    wanted = "      check: {type: fileExists, path: PLAN.md}\n"
    task = runner.advance(runner.task(planning(), config=CHECKED + wanted))
    assert task.phase == Phase.DONE
    assert "The new plan" in runs(task)[-1].prompt
    assert [bool(one.plan) for one in task.steps.all()] == [True, False]


def test_an_attempt_that_is_sent_back_keeps_what_it_wrote(runner: Runner) -> None:
    """Only the first run of the step finds the place empty."""
    config = CHECKED.replace("PLAN.md}\n      file", "PLAN.md}\n      retry: 1\n      file").replace(
        "check: {type: fileExists, path: PLAN.md}",
        'check: [{type: shell, command: "test -e again || { touch ../again; false; }"}]',
    )
    play = planning()
    play["plan"] = [*play["plan"], End(), say("I leave it as it is.")]
    task = runner.advance(runner.task(play, config=config.replace("test -e again", "test -e ../again")))
    assert task.phase == Phase.DONE
    assert len(step(task, "plan").current_runs) == 2
    assert step(task, "plan").plan == "# The new plan\n"


def test_a_retry_of_the_plan_step_begins_without_the_plan(runner: Runner) -> None:
    task = runner.advance(runner.task(planning(), config="publishPlan: true\n" + CHECKED))
    retry_from(task, step(task, "plan"), by=acting(runner.user))
    runner.agent = type(runner.fake)(lambda prompt: [say("I write nothing this time.")])
    assert runner.advance(task).phase == Phase.FAILED
    assert step(task, "plan").plan == ""


def test_a_step_that_may_not_write_the_file_is_not_blamed_for_it(runner: Runner) -> None:
    """It plans elsewhere, so whatever lies there is none of its business."""
    config = CHECKED.replace("check: {type: fileExists, path: PLAN.md}\n      ", "").replace(
        "allowWrite: [PLAN.md]", "allowWrite: [docs/**]"
    )
    project = runner.project(config, **{"PLAN.md": "# Roadmap\n"})
    task = runner.advance(runner.task(WRITES_NOTHING, project=project))
    assert task.phase == Phase.DONE
    assert published(task)["PLAN.md"] == "# Roadmap\n"


def test_a_link_in_the_place_of_the_old_plan_is_removed_and_not_followed(
    runner: Runner, tmp_path: Path
) -> None:
    """R4"""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    first = "    - {name: first, command: implement}\n"
    config = TWO_STEPS.replace("    - name: plan", f"{first}    - name: plan")
    first_acts: list[Act] = [Turn(calls=(shell(f"ln -s {secret} PLAN.md"),)), say("x")]
    play = {"first": first_acts, **WRITES_NOTHING}
    task = runner.advance(runner.task(play, config=config))
    assert task.phase == Phase.DONE and secret.read_text() == "mine"
    assert not any(one.plan for one in task.steps.all())


def test_a_huge_plan_is_cut_in_the_prompt_and_says_so(runner: Runner) -> None:
    task = runner.advance(runner.task(planning("x" * 150_000), config="publishPlan: true\n" + CHECKED))
    prompt = prompt_of(step(task, "implement"))
    assert len(prompt) < 120_000 and "more characters are left out" in prompt


def test_the_page_shows_the_plan_and_offers_it_as_a_file(runner: Runner, client: Client) -> None:
    """Although it is no part of the result."""
    task = runner.advance(runner.task(planning("# The plan <script>\n\n1. Paint **it**.\n"), config=CHECKED))
    client.force_login(runner.user)
    page = client.get(reverse("task", args=[task.pk])).text
    assert "<strong>it</strong>" in page and "The plan <script>" not in page
    file = client.get(reverse("step_plan", args=[task.pk, 1]))
    assert text_of(file) == "# The plan <script>\n\n1. Paint **it**.\n"
    assert file["Content-Disposition"] == f'attachment; filename="task-{task.pk}-plan.md"'
    assert client.get(reverse("step_plan", args=[task.pk, 2])).status_code == 404


def test_an_anonymous_visitor_gets_no_plan(runner: Runner, client: Client) -> None:
    """W1"""
    task = runner.advance(runner.task(planning(), config=CHECKED))
    client.force_login(User.objects.create_user("eve"))
    assert client.get(reverse("step_plan", args=[task.pk, 1])).status_code == 404
    assert client.get(reverse("task_plan", args=[task.pk])).status_code == 404


def test_a_page_without_a_plan_has_no_such_section(runner: Runner, client: Client) -> None:
    task = runner.advance(runner.task(WRITES_NOTHING, config=TWO_STEPS))
    client.force_login(runner.user)
    assert "The plan" not in client.get(reverse("task", args=[task.pk])).text
