"""`cat-herder run_sequence`, `cancel`, `retry` and `status` of sequences (P10, P12, H4, H6, H11)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Sequence, Task, User
from tasks_app.services.projects.projects import add_project
from tasks_app.services.sequences import create_sequence
from tasks_app.services.tasks import create_task
from tests import fake_agent, fake_script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.installation import PLAIN_CONFIG, Installation
from tests.integration.conftest import FakeAgents, Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting

#: The work is done in a thread of its own, with a connection of its own.
pytestmark = [
    pytest.mark.django_db(transaction=True, reset_sequences=True),
    pytest.mark.once(on="sqlite"),
]

FOLDER = "tasks/prices"
RUN = ("run_sequence", FOLDER, "--project", "shop", "--no-input")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    repository = GitRepository.make(tmp_path / "shop", **{"cat-herder.yaml": PLAIN_CONFIG})
    (repository.path / FOLDER).mkdir(parents=True)
    words = {"01-first.md": "first", "02-second.md": "second", "_later.md": "later"}
    repository.commit(**{f"{FOLDER}/{name}": text_of(word) for name, word in words.items()})
    ann = UserFactory.create(username="ann", first_name="Ann", is_superuser=True)
    return add_project("shop", str(repository.path), by=ann)


@pytest.fixture
def ann(project: Project) -> User:
    return User.objects.get(username="ann")


def text_of(word: str) -> str:
    return f"# Task {word}\n\nword: {word}\n"


def asks(question: str) -> list[fake_script.Act]:
    return [fake_script.Turn(calls=(fake_script.ask(question),)), fake_script.say("The answer was: {result}")]


def test_a_folder_is_run_task_after_task_with_progress(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    code, out, err = manage(*RUN)
    assert (code, err) == (0, "")
    for told in (
        "Sequence 1 · shop/prices · tasks/prices",
        "task 1 of 2, step do (1 of 1)",
        "The first is done.",
        "Done: Task first",
        "task 2 of 2, step do (1 of 1)",
        "Done: tasks/prices, 2 tasks",
        "tokens in",
        "Fetch the result with  git fetch",
    ):
        assert told in out
    assert "later" not in out
    assert out.index("The first is done.") < out.index("Task 2 · ") < out.index("The second is done.")
    assert Sequence.objects.get().phase == Phase.DONE
    assert manage("run_sequence", "1")[:2] == (0, "Sequence 1 is already done: tasks/prices\n")


def test_a_task_that_an_agent_wrote_is_announced_and_run(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    agents.acts["first"] = [
        fake_script.Turn(calls=(fake_script.write(f"{FOLDER}/03-new.md", text_of("new")),))
    ]
    code, out, _ = manage(*RUN)
    assert code == 0
    assert out.index("+ New task in the folder: 03-new.md") < out.index("task 2 of 3, step do")
    assert "task 3 of 3, step do" in out and "The new is done." in out


def test_json_has_the_sequence_its_tasks_and_what_they_used(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    code, out, err = manage(*RUN, "--json")
    facts = json.loads(out)
    assert (code, facts["exit_code"], facts["phase"], facts["folder"]) == (0, 0, "done", FOLDER)
    assert [task["title"] for task in facts["tasks"]] == ["Task first", "Task second"]
    assert facts["tokens"]["output"] == sum(task["tokens"]["output"] for task in facts["tasks"]) > 0
    assert facts["models"] == {fake_agent.MODEL: {"tokens": facts["tokens"], "cost_usd": facts["cost_usd"]}}
    assert facts["paused_seconds"] == 0 and facts["seconds"] == facts["working_seconds"] > 0
    assert facts["fetch"].endswith("cat-herder/prices")
    assert "The first is done." in err


def test_a_question_halts_it_and_the_answer_is_known_to_later_tasks(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    """H10."""
    agents.acts["first"] = asks("Round up?")
    code, out, _ = manage(*RUN)
    assert code == 3
    assert "Round up?" in out and 'cat-herder answer 1 "…"' in out
    assert "Continue with  cat-herder run_sequence 1\n" in out
    assert Sequence.objects.get().phase == Phase.WAITING_FOR_INPUT
    assert manage("answer", "1", "Always")[0] == 0
    code, out, _ = manage(*RUN)
    assert code == 0
    assert "Resuming sequence 1 of this folder" in out
    assert Sequence.objects.count() == 1
    last = agents.agent.runs[-1].prompt or ""
    assert "Round up?" in last and "Always" in last


def test_a_task_that_fails_stops_it_until_it_is_continued(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    agents.acts["first"] = [fake_script.Fail("API Error: the disk is full")]
    code, out, _ = manage(*RUN)
    assert code == 1
    assert "Failed: API Error: the disk is full" in out
    assert "Continue with  cat-herder run_sequence 1 --continue" in out
    assert "with 0 of 2 tasks done" in out
    agents.acts["first"] = [fake_script.Fail("API Error: the disk is full"), fake_script.say("Now it fits.")]
    code, out, _ = manage(*RUN, "--continue")
    assert (code, Sequence.objects.count()) == (0, 1)
    assert "Now it fits." in out and "Done: tasks/prices" in out


def test_without_continue_a_failed_sequence_begins_anew_and_says_so(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    agents.acts["first"] = [fake_script.Fail("API Error: no")]
    manage(*RUN)
    del agents.acts["first"]
    code, out, _ = manage(*RUN)
    assert (code, Sequence.objects.count()) == (0, 2)
    assert "The last one is failed; to resume it:  cat-herder run_sequence 1 --continue" in out


def test_a_faulty_next_file_is_named_and_where_to_mend_it(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    bad = "---\ninteractionThreshold: 9\n---\nword: new\n"
    GitRepository(Path(project.source)).commit(**{f"{FOLDER}/015-bad.md": bad})
    code, out, _ = manage(*RUN)
    assert code == 1
    assert "Failed: tasks/prices/015-bad.md:2: interactionThreshold must be" in out
    folder = Path(out.split("The folder is  ")[1].split("\n")[0])
    assert manage(*RUN, "--continue")[0] == 1
    (folder / "015-bad.md").write_text(text_of("mended"))
    code, out, _ = manage(*RUN, "--continue")
    assert code == 0 and "The mended is done." in out


def test_the_folder_can_be_named_as_a_path_from_here(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    assert manage("run_sequence", Path(project.source) / FOLDER, *RUN[2:])[0] == 0
    assert Sequence.objects.get().folder == FOLDER


def test_threshold_and_pipeline_hold_for_all_tasks(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    assert manage(*RUN, "--threshold", "0")[0] == 0
    assert set(Task.objects.values_list("threshold", flat=True)) == {0}


def test_q1_whom_it_asks_holds_for_all_tasks(
    manage: Manage, project: Project, agents: FakeAgents, ann: User
) -> None:
    """Q1: also for a task that an agent wrote, instead of what its front matter says."""
    text = f"---\nask: [bob]\n---\n{text_of('new')}"
    agents.acts["first"] = [
        fake_script.Turn(calls=(fake_script.write(f"{FOLDER}/05-new.md", text),)),
        fake_script.say("Done."),
    ]
    code, out, _ = manage(*RUN, "--ask", "ann", "--json")
    assert (code, json.loads(out)["ask"]) == (0, ["ann"])
    assert [task.ask for task in Task.objects.all()] == [["ann"]] * 3
    page = signed_in(ann).get(reverse("sequence", args=[json.loads(out)["sequence"]]))
    assert "<dt>Asks</dt><dd>ann</dd>" in page.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere", "--project", "shop"], "nowhere: the newest commit of main has no such folder"),
        (["../shop", "--project", "shop"], "is not a folder within the repository"),
        ([FOLDER], "Name the project of the folder"),
        ([FOLDER, "--project", "shop", "--threshold", "9"], "--threshold: the threshold must be"),
        ([FOLDER, "--project", "shop", "--pipeline", "x"], "there is no pipeline"),
        (
            [FOLDER, "--project", "shop", "--ask", "nobody"],
            '"nobody" is neither a user who may answer in shop',
        ),
        (["1", "--ask", "ann"], "--ask is for a new sequence"),
        ([FOLDER, "--project", "shop", "--continue"], "There is no sequence to resume"),
        ([FOLDER, "--project", "shop", "--continue", "--new"], "exclude each other"),
        (["7"], "There is no sequence 7"),
        (["sequence:x"], "“x” is not a sequence's id"),
        (["1", "--new"], "--new is for a new sequence"),
        ([FOLDER, "--project", "shop", "--as", "vic"], "does not allow this"),
    ],
)
def test_wrong_use_is_reported_and_creates_nothing(
    manage: Manage, project: Project, agents: FakeAgents, words: list[str], told: str
) -> None:
    """R5."""
    MembershipFactory.create(project=project, user__username="vic", role="viewer")
    code, _, err = manage("run_sequence", *words)
    assert code == 2
    assert told in err
    assert not Sequence.objects.exists()


class TestCancelAndRetry:
    def test_a_waiting_task_is_cancelled_and_asks_again_when_retried(
        self, manage: Manage, project: Project, agents: FakeAgents
    ) -> None:
        agents.acts["first"] = asks("Round up?")
        manage(*RUN)
        assert manage("cancel", "1")[:2] == (0, "Cancelled: Task first\nResume with  cat-herder retry 1\n")
        assert Sequence.objects.get().phase == Phase.CANCELLED
        code, _, err = manage("cancel", "1")
        assert code == 1 and "is cancelled and cannot become cancelled" in err
        code, out, _ = manage("retry", "1", "--no-input")
        assert code == 3 and "Round up?" in out

    def test_a_sequence_is_cancelled_and_retried_to_its_end(
        self, manage: Manage, project: Project, agents: FakeAgents
    ) -> None:
        agents.acts["second"] = asks("Round up?")
        manage(*RUN)
        code, out, _ = manage("cancel", "sequence:1", "--json")
        assert (code, json.loads(out)["phase"]) == (0, "cancelled")
        assert manage("retry", "sequence:1", "--no-input")[0] == 3
        manage("answer", "1", "Yes")
        assert manage(*RUN)[0] == 0

    def test_a_failed_task_is_retried_here(
        self, manage: Manage, project: Project, agents: FakeAgents, ann: User
    ) -> None:
        task = create_task(project, text_of("alone"), by=acting(ann), where="alone.md")
        agents.acts["alone"] = [fake_script.Fail("API Error: no"), fake_script.say("Yes.")]
        assert manage("run_task", task.pk, "--no-input")[0] == 1
        code, out, _ = manage("retry", f"shop/{task.slug}", "--json", "--no-input")
        assert (code, json.loads(out)["phase"]) == (0, "done")

    @pytest.mark.parametrize("thing", ["1", "sequence:1"])
    def test_what_is_queued_is_left_to_the_portal(
        self, manage: Manage, project: Project, agents: FakeAgents, thing: str
    ) -> None:
        agents.acts["first"] = [fake_script.Fail("API Error: no")]
        manage(*RUN)
        runs = len(agents.agent.runs)
        code, out, _ = manage("retry", thing, "--queue")
        assert code == 0 and "pending. Waiting for a free worker." in out
        assert len(agents.agent.runs) == runs
        assert Task.objects.due().count() == 1

    @pytest.mark.parametrize(
        ("thing", "told"),
        [
            ("1", "Task 1 is done; --from STEP does it again from a step (do)."),
            ("sequence:1", "is done and cannot become pending"),
        ],
    )
    def test_what_is_done_cannot_be_retried(
        self, manage: Manage, project: Project, agents: FakeAgents, thing: str, told: str
    ) -> None:
        manage(*RUN)
        code, _, err = manage("retry", thing)
        assert code == 1 and told in err

    @pytest.mark.parametrize("command", ["cancel", "retry"])
    @pytest.mark.parametrize(
        ("thing", "told"),
        [
            ("99", "There is no task 99"),
            ("sequence:99", "There is no sequence 99"),
            ("x", "is not a task's id"),
        ],
    )
    def test_what_is_not_there_is_named(
        self, manage: Manage, project: Project, command: str, thing: str, told: str
    ) -> None:
        code, _, err = manage(command, thing)
        assert code == 2 and told in err

    def test_a_viewer_may_not(self, manage: Manage, project: Project, agents: FakeAgents) -> None:
        MembershipFactory.create(project=project, user__username="vic", role="viewer")
        agents.acts["first"] = asks("Round up?")
        manage(*RUN)
        for thing in ("1", "sequence:1"):
            code, _, err = manage("cancel", thing, "--as", "vic")
            assert code == 2 and "does not allow this" in err


class TestStatus:
    @pytest.fixture(autouse=True)
    def halted(self, manage: Manage, project: Project, agents: FakeAgents) -> None:
        agents.acts["second"] = asks("Round up?")
        manage(*RUN)

    def test_the_list_has_sequences_with_their_roll_up(self, manage: Manage) -> None:
        code, out, _ = manage("status")
        row = out.splitlines()[1]
        assert code == 0 and row.startswith("sequence:1 ") and " 1 of 2 " in row
        assert "waiting for input" in row and "tasks/prices" in row
        Task.objects.filter(file="02-second.md").delete()
        assert " 1 of 2 " in manage("status")[1].splitlines()[1], "upcoming ones count, as on its page"

    def test_one_is_shown_with_its_tasks_and_its_question(self, manage: Manage) -> None:
        _, out, _ = manage("status", "sequence:1")
        assert "Sequence 1 · shop/prices · tasks/prices" in out
        assert "Task first" in out and "Task second" in out
        assert "Question 1, asked by do:" in out and "Round up?" in out

    def test_its_upcoming_files_are_shown(self, manage: Manage) -> None:
        """As on its page."""
        assert "upcoming:" not in manage("status", "sequence:1")[1]
        Task.objects.filter(file="02-second.md").delete()
        out = manage("status", "sequence:1")[1]
        assert "upcoming: 02-second.md" in out and "_later.md" not in out

    def test_one_without_a_started_task_says_so(self, manage: Manage) -> None:
        Task.objects.update(phase=Phase.PENDING, started_at=None)
        row = manage("status")[1].splitlines()[1]
        assert "not started" in row and " of " not in row

    def test_a_done_one_counts_its_tasks_and_claims_no_checks(self, manage: Manage) -> None:
        Task.objects.update(phase=Phase.DONE)
        Sequence.objects.update(phase=Phase.DONE)
        _, out, _ = manage("status", "sequence:1")
        assert "done: 2 of 2 tasks done." in out and "checks" not in out

    def test_a_task_names_its_sequence(self, manage: Manage) -> None:
        assert "part of sequence:1, tasks/prices/01-first.md" in manage("status", "1")[1]

    def test_json_has_them_too(self, manage: Manage) -> None:
        facts = json.loads(manage("status", "--json")[1])
        assert facts["sequences"][0]["phase"] == "waiting_for_input"
        assert [task["sequence"] for task in facts["tasks"]] == [1, 1]
        one = json.loads(manage("status", "sequence:1", "--json")[1])
        assert one["tasks"][1]["question"]["items"][0]["question"] == "Round up?"


class TestAtATerminal:
    """With processes. The agent is the real one where it is interrupted."""

    @pytest.fixture
    def shop(self, installation: Installation) -> Installation:
        own = GitRepository.make(installation.data_dir / "own", **{"cat-herder.yaml": PLAIN_CONFIG})
        folder = own.path / "todo"
        folder.mkdir()
        (folder / "01-ask.md").write_text("# Ask once\n\nrehearsal: ask-and-end\n")
        (folder / "02-slow.md").write_text("# Take your time\n\nrehearsal: slow\n")
        own.commit()
        assert installation.manage("project", "add", "own", str(own.path)).returncode == 0
        return installation

    def test_it_asks_at_the_prompt_and_ctrl_c_interrupts_it(self, shop: Installation) -> None:
        command = ("run_sequence", "todo", "--project", "own")
        terminal = shop.terminal(*command)
        terminal.expect("task 1 of 2, step do (1 of 1)")
        terminal.expect("Stop here?")
        terminal.expect("> ")
        follow = shop.piped("log", "1", "--follow")
        terminal.type("Go on\n")
        terminal.expect("Answered by Ann in the terminal: Go on")
        terminal.expect("task 2 of 2, step do (1 of 1)")
        terminal.expect("$ touch slow-started.txt")
        terminal.expect(" tokens · $ touch slow-started.txt")  # the line that stands below
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert shop.phase(1) == "done" and shop.phase(2) == "interrupted"
        assert shop.row("SELECT phase FROM tasks_app_sequence") == ("interrupted",)
        assert "Continue with  cat-herder run_sequence 1\n" in terminal.seen
        log = follow.communicate()
        assert follow.poll() == 0 and '[USER_INPUT] User answered: "Go on"' in log

    def test_ctrl_c_at_the_prompt_leaves_it_waiting(self, shop: Installation) -> None:
        """H6."""
        terminal = shop.with_fake_agent().terminal("run_sequence", "todo", "--project", "own")
        terminal.expect("> ")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert shop.row("SELECT phase FROM tasks_app_sequence") == ("waiting_for_input",)


def test_a_sequence_made_in_the_portal_is_started_by_its_number(
    manage: Manage, project: Project, agents: FakeAgents, ann: User
) -> None:
    sequence = create_sequence(project, FOLDER, by=acting(ann))
    code, out, _ = manage("run_sequence", f"#{sequence.pk}", "--no-input")
    assert code == 0 and "Done: tasks/prices, 2 tasks" in out


def test_leaving_between_two_tasks_prints_how_to_continue(
    manage: Manage, project: Project, agents: FakeAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C in the moment in which a task ends: the next must not begin."""

    def press(workspace: Path) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "pressed"

    agents.acts["first"] = [fake_script.Turn(calls=(fake_script.Call("Bash", {"command": "true"}, press),))]
    monkeypatch.setattr("tasks_app.engine.runs.run_recorder.RunRecorder.tick", lambda self: None)
    monkeypatch.setattr("tasks_app.cli.local_worker.LocalWorker.stop", lambda self: None)
    code, out, _ = manage(*RUN)
    assert code == 130
    assert "You left between two tasks" in out
    assert list(Task.objects.order_by("pk").values_list("phase", flat=True)) == ["done", "pending"]


def test_r4_a_task_that_may_do_more_waits_for_the_person_at_the_terminal(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    """The printed command, and nothing less, lets it begin."""
    steps = "{name: do, command: self, model: %s}"
    config = f"defaultPipeline: a\npipelines:\n  a: [{steps % 'haiku'}]\n  b: [{steps % 'opus'}]\n"
    GitRepository(Path(project.source)).commit(**{"cat-herder.yaml": config})
    text = f"---\npipeline: b\n---\n{text_of('new')}"
    agents.acts["first"] = [fake_script.Turn(calls=(fake_script.write(f"{FOLDER}/015-new.md", text),))]
    code, out, _ = manage(*RUN)
    assert code == 3 and "model opus in step “do”" in out
    command = out.split("continue with  cat-herder ")[1].split("\n")[0].split()
    assert manage(*command[:-1], "no")[0] == 2
    code, _, refusal = manage(*command[: command.index("--allow")])
    assert code == 2 and " ".join(command) in " ".join(refusal.split()), "a retry says how, too"
    code, out, _ = manage(*command)
    assert code == 0 and "The new is done." in out
