"""Sequences: a folder of tasks, one after the other on one branch (P10), with the fake agent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence as Acts
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.engine.stopping import never
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.history import transitions
from tasks_app.models import (
    Channel,
    Delivery,
    Notice,
    Project,
    Question,
    Sequence,
    Task,
    Transition,
    User,
    paths,
)
from tasks_app.notifications.delivery import drop_reason
from tasks_app.notifications.message import message_of
from tasks_app.notifications.notices import create_notifications
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.services.projects.projects import add_project, remove_project
from tasks_app.services.publishing.publications import tasks_to_publish
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.sequences import (
    cancel_sequence,
    create_sequence,
    resume_sequence,
    sequence_files,
    start_sequence,
)
from tasks_app.services.tasks import create_task
from tasks_app.services.usage import statistics
from tasks_app.web.live import wakeup
from tests import fake_agent, fake_script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.installation import PLAIN_CONFIG
from tests.integration.git_repository import GitRepository
from tests.integration.test_notifications import hook
from tests.people import acting

pytestmark = pytest.mark.django_db

FOLDER = "tasks/prices"


@dataclass
class FakeAgents:
    """A sequence, who started it, and a worker with a fake agent that plays `acts` by the task's word."""

    project: Project
    person: User
    acts: dict[str, Acts[fake_script.Act]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agent = fake_agent.FakeAgent(self._script)
        self.context = WorkerContext(self.agent, detect(SandboxMode.OFF), never)

    def _script(self, prompt: str) -> Acts[fake_script.Act]:
        word = re.findall(r"^word: (\w+)$", prompt, re.MULTILINE)[-1]
        return self.acts.get(
            word,
            [fake_script.Turn(calls=(fake_script.write(f"{word}.txt", word),)), fake_script.say("Done.")],
        )

    def make(self) -> Sequence:
        self.sequence = create_sequence(self.project, FOLDER, by=acting(self.person))
        return self.sequence

    def start(self) -> Sequence:
        start_sequence(self.make(), by=acting(self.person))
        return self.work()

    def work(self) -> Sequence:
        """What a worker does, until nothing is due."""
        while due := Task.objects.due().values_list("pk", flat=True).first():
            advance(due, owner="worker", context=self.context)
        self.sequence.refresh_from_db()
        return self.sequence

    def answer(self, text: str) -> None:
        question = Question.objects.open().get()
        answer_question(question, Reply.to(question, text), by=acting(self.person), via=Channel.WEB)

    @property
    def tasks(self) -> list[Task]:
        return list(self.sequence.tasks.order_by("pk"))

    @property
    def workspace(self) -> Path:
        return paths.workspace(self.tasks[0]).path

    def phases(self) -> dict[str, str]:
        return {task.file: task.phase for task in self.tasks}


def task_text(word: str) -> str:
    return f"# Task {word}\n\nword: {word}\n"


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    made = GitRepository.make(tmp_path / "shop", **{"cat-herder.yaml": PLAIN_CONFIG})
    (made.path / FOLDER).mkdir(parents=True)
    names = {"02-second.md": "second", "01-first.md": "first", "_notes.md": "notes", "10-last.md": "last"}
    made.commit(**{f"{FOLDER}/{name}": task_text(word) for name, word in names.items()})
    made.commit(**{f"{FOLDER}/data.csv": "a,b\n"})
    return made


@pytest.fixture
def agents(repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAgents:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    ann = UserFactory.create(username="ann", is_superuser=True)
    return FakeAgents(add_project("shop", str(repository.path), by=ann), ann)


def write_task(name: str, text: str) -> fake_script.Call:
    return fake_script.write(f"{FOLDER}/{name}", text)


def test_tasks_run_in_the_order_of_their_names_on_one_branch_and_in_one_workspace(agents: FakeAgents) -> None:
    sequence = agents.start()
    assert (sequence.phase, sequence.failure) == (Phase.DONE, "")
    assert [task.file for task in agents.tasks] == ["01-first.md", "02-second.md", "10-last.md"]
    assert {task.branch for task in agents.tasks} == {sequence.branch} == {"cat-herder/prices"}
    assert len({order.paths.workspace for order in agents.agent.runs}) == 1
    assert {name for name in ("first", "second", "last") if (agents.workspace / f"{name}.txt").exists()} == {
        "first", "second", "last",
    }  # fmt: skip
    git = paths.repository(agents.project).git
    assert git.line("rev-parse", "refs/heads/cat-herder/prices") == sequence.head_commit
    assert sequence.head_commit == agents.tasks[-1].head_commit
    assert sequence.started_at and sequence.ended_at


def test_each_task_shows_what_it_changed_itself(agents: FakeAgents) -> None:
    """P9: not what the tasks before it did."""
    agents.start()
    client = signed_in(agents.person)
    page = client.get(reverse("task_diff", args=[agents.tasks[1].pk]))
    assert "second.txt" in page.text and "first.txt" not in page.text


def test_its_result_and_its_diff_have_what_all_tasks_changed(agents: FakeAgents) -> None:
    """V1, V2: the page of the sequence leads to the whole, that of a task to its own part."""
    sequence = agents.start()
    browser, last = signed_in(agents.person), agents.tasks[-1]
    page = browser.get(reverse("sequence", args=[sequence.pk])).text
    whole = f"{reverse('task_diff', args=[last.pk])}?from=sequence"
    assert f'href="{whole}"' in page and page.count('class="plus">+1<') == 3
    shown = browser.get(whole).text
    assert "Changes of the sequence" in shown and "first.txt" in shown and "last.txt" in shown
    own = browser.get(reverse("task_diff", args=[last.pk])).text
    assert "first.txt" not in own and "last.txt" in own and 'href="?from=sequence"' not in own
    assert f'href="{whole}"' in own


def test_each_commit_of_the_branch_has_the_title_of_its_own_task(agents: FakeAgents) -> None:
    """P9, P10. Without commits of the agents all work was one commit with the last task's title."""
    sequence = agents.start()
    git = paths.repository(agents.project).git
    titles = git.line("log", "--format=%s", f"{sequence.base_commit}..{sequence.head_commit}").splitlines()
    assert titles == ["Task last", "Task second", "Task first"]
    for task in agents.tasks:
        (name,) = git.line("show", "--format=", "--name-only", task.head_commit).splitlines()
        assert name == f"{task.title.removeprefix('Task ')}.txt"


def test_the_agent_is_told_of_the_folder(agents: FakeAgents) -> None:
    """P4."""
    agents.start()
    assert all(FOLDER in (order.prompt or "") for order in agents.agent.runs)


def test_the_agent_of_a_later_task_reads_what_the_agents_before_it_said_at_their_ends(
    agents: FakeAgents,
) -> None:
    """H10: as the agent of a later step does, with who said it and what it weighs."""
    for word in ("first", "second"):
        calls = (fake_script.write(f"{word}.txt", word),)
        said = f"Mind the {word} importer.\n--- FEEDBACK ---\n" + "x" * 20_000
        agents.acts[word] = [fake_script.Turn(calls=calls), fake_script.say(said)]
    agents.start()
    first, second, last = (order.prompt or "" for order in agents.agent.runs)
    assert "ACCOUNTS" not in first
    assert "step do of task “Task first” wrote when it ended:\n> Mind the first" in second
    assert "it may be wrong" in second and "--- FEEDBACK ---" not in second.split("\n")
    assert second.count("x" * 7_900) == 1 and len(second) < len(first) + 10_000, "bounded"
    assert last.index("Mind the first importer.") < last.index("of task “Task second” wrote")


def test_a_task_that_an_agent_wrote_is_picked_up(agents: FakeAgents) -> None:
    agents.acts["first"] = [
        fake_script.Turn(calls=(write_task("05-new.md", task_text("new")),)),
        fake_script.say("Split."),
    ]
    assert agents.make() and sequence_files(agents.sequence) == ["01-first.md", "02-second.md", "10-last.md"]
    start_sequence(agents.sequence, by=acting(agents.person))
    assert agents.work().phase == Phase.DONE
    assert [task.file for task in agents.tasks][2:] == ["05-new.md", "10-last.md"]
    assert sequence_files(agents.sequence)[2] == "05-new.md"
    assert (agents.workspace / "new.txt").read_text() == "new"


TWO_PIPELINES = """\
pipelines:
  quiet:
    - {name: do, command: self}
  release:
    publish: {squash: true}
    steps:
      - {name: do, command: self}
"""


def write_last(pipeline: str) -> list[fake_script.Act]:
    text = f"---\npipeline: {pipeline}\n---\n{task_text('new')}"
    return [fake_script.Turn(calls=(write_task("99-x.md", text),)), fake_script.say("Split.")]


@pytest.mark.long
def test_a_task_that_an_agent_wrote_cannot_have_the_sequence_published(
    agents: FakeAgents, repository: GitRepository
) -> None:
    """V7: the agent named a pipeline that publishes, and its work was, with the rights of who started it."""
    repository.commit(**{"cat-herder.yaml": TWO_PIPELINES})
    agents.acts["first"] = write_last("release")
    assert agents.start().phase == Phase.DONE
    last = agents.tasks[-1]
    assert (last.file, last.pipeline) == ("99-x.md", "release")
    assert {(task.publish is None, task.publish_due) for task in agents.tasks} == {(True, False)}
    assert not tasks_to_publish().exists()


@pytest.mark.long
def test_a_task_that_an_agent_wrote_cannot_keep_the_sequence_from_being_published(
    agents: FakeAgents, repository: GitRepository
) -> None:
    first = f"---\npipeline: release\n---\n{task_text('first')}"
    repository.commit(**{"cat-herder.yaml": TWO_PIPELINES, f"{FOLDER}/01-first.md": first})
    agents.acts["first"] = write_last("quiet")
    assert agents.start().phase == Phase.DONE
    last = agents.tasks[-1]
    assert (last.file, last.pipeline, last.publishing_pipeline) == ("99-x.md", "quiet", "release")
    assert last.publish == agents.tasks[0].publish and last.publish is not None
    assert last in tasks_to_publish()


def test_an_agent_that_changes_the_first_file_does_not_change_what_is_published(
    agents: FakeAgents, repository: GitRepository
) -> None:
    repository.commit(**{"cat-herder.yaml": TWO_PIPELINES})
    text = f"---\npipeline: release\n---\n{task_text('first')}"
    calls = (write_task("01-first.md", text), write_task("00-before.md", text))
    agents.acts["first"] = [fake_script.Turn(calls=calls), fake_script.say("Done.")]
    assert agents.start().phase == Phase.DONE
    assert not tasks_to_publish().exists()


@pytest.mark.long
def test_a_name_that_belongs_to_a_task_of_its_own_already_is_no_obstacle(agents: FakeAgents) -> None:
    """The first task was done and marked as failed, as the second could not get its name."""
    create_task(agents.project, "# Other", by=acting(agents.person), where="x", slug="prices-02-second")
    agents.start()
    assert [task.slug for task in agents.tasks] == ["prices-01-first", "prices-02-second-2", "prices-10-last"]


@pytest.mark.long
def test_a_file_of_any_name_is_a_task(agents: FakeAgents) -> None:
    name = f"03 Ü {'x' * 200}.md"
    agents.acts["first"] = [fake_script.Turn(calls=(write_task(name, task_text("odd")),))]
    assert agents.start().phase == Phase.DONE
    odd = next(task for task in agents.tasks if task.file == name)
    assert len(odd.slug) <= 160 and re.fullmatch(r"[\w-]+", odd.slug)


@pytest.mark.long
def test_a_file_name_that_is_not_text_is_a_failed_check_of_who_made_it(agents: FakeAgents) -> None:
    command = f"printf 'x' > \"$(printf '{FOLDER}/03-\\377.md')\""
    agents.acts["second"] = [fake_script.Turn(calls=(fake_script.shell(command),))]
    sequence = agents.start()
    assert sequence.phase == Phase.FAILED
    assert "03-\ufffd.md: the name of this file is not UTF-8" in sequence.failure
    assert agents.phases()["02-second.md"] == Phase.FAILED


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "---\ninteractionThreshold: 9\n---\nword: new\n",
            f"{FOLDER}/02-a.md:2: interactionThreshold must be",
        ),
        ("---\npipeline: nowhere\n---\nword: new\n", f"{FOLDER}/02-a.md:2: there is no pipeline"),
        ("", f"{FOLDER}/02-a.md:1: the task has no text"),
    ],
)
def test_a_faulty_next_file_fails_the_sequence_which_resumes_after_a_fix(
    agents: FakeAgents, repository: GitRepository, text: str, told: str
) -> None:
    repository.commit(**{f"{FOLDER}/02-a.md": text})
    sequence = agents.start()
    assert sequence.phase == Phase.FAILED
    assert sequence.failure.startswith(told)
    assert agents.phases() == {"01-first.md": Phase.DONE}

    resume_sequence(sequence, by=acting(agents.person))
    sequence.refresh_from_db()
    assert sequence.phase == Phase.FAILED and sequence.failure.startswith(told)

    (agents.workspace / FOLDER / "02-a.md").write_text(task_text("mended"))
    resume_sequence(sequence, by=acting(agents.person))
    assert agents.work().phase == Phase.DONE
    assert sequence.failure == ""
    assert list(agents.phases())[1] == "02-a.md"


def test_people_are_notified_that_the_sequence_cannot_continue_and_not_that_all_is_well(
    agents: FakeAgents,
    repository: GitRepository,
) -> None:
    """W6: the last task is done, nothing runs, and nobody looks at the page."""
    repository.commit(**{f"{FOLDER}/02-a.md": ""})
    sequence = agents.start()
    target = hook(agents.tasks[0])
    create_notifications()
    told = Notice.objects.get(user=agents.person)
    fault = f"{FOLDER}/02-a.md:1: the task has no text"
    assert told.event_type == "failed" and told.headline.startswith(fault)
    page = signed_in(agents.person).get(reverse("notices")).text
    assert f'href="{reverse("sequence", args=[sequence.pk])}"' in page

    sent = Delivery.objects.get(target=target)
    message = message_of(sent)
    assert message.headline == f"Failed: the sequence {FOLDER}"
    assert message.url.endswith(reverse("sequence", args=[sequence.pk]))
    assert message.as_json()["sequence"] == {"id": sequence.pk, "folder": FOLDER}
    assert message.failure.startswith(fault) and drop_reason(sent) == ""

    (agents.workspace / FOLDER / "02-a.md").write_text(task_text("mended"))
    resume_sequence(sequence, by=acting(agents.person))
    assert drop_reason(Delivery.objects.get()) == "The sequence was resumed meanwhile."


@pytest.mark.long
def test_of_a_continuing_sequence_each_task_is_reported_as_done(agents: FakeAgents) -> None:
    agents.start()
    target = hook(agents.tasks[0])
    create_notifications()
    assert set(Delivery.objects.filter(target=target).values_list("event_type", flat=True)) == {"done"}
    assert Delivery.objects.filter(target=target).count() == 3


def test_only_one_of_two_resumptions_at_once_creates_the_next_task(
    agents: FakeAgents, repository: GitRepository
) -> None:
    """R1: the second was an error page."""
    repository.commit(**{f"{FOLDER}/02-a.md": ""})
    sequence = agents.start()
    (agents.workspace / FOLDER / "02-a.md").write_text(task_text("mended"))
    other = Sequence.objects.get(pk=sequence.pk)
    resume_sequence(sequence, by=acting(agents.person))
    with pytest.raises(IllegalMove):
        resume_sequence(other, by=acting(agents.person))
    assert len(agents.tasks) == 2
    with pytest.raises(IllegalMove):
        proceed_late(other, agents)


def proceed_late(sequence: Sequence, agents: FakeAgents) -> None:
    """As if the other had looked into the folder before the first had stored what it found."""
    Task.objects.filter(pk=agents.tasks[-1].pk).update(phase=Phase.DONE)
    sequence.phase = Phase.FAILED
    resume_sequence(sequence, by=acting(agents.person))


@pytest.mark.long
def test_a_folder_that_vanishes_fails_the_sequence_and_nothing_is_lost(agents: FakeAgents) -> None:
    agents.acts["first"] = [fake_script.Turn(calls=(fake_script.shell(f"rm -r {FOLDER}"),))]
    sequence = agents.start()
    assert sequence.phase == Phase.FAILED
    assert sequence.failure == f"The folder {FOLDER} is gone, or has no task file any more."
    assert agents.phases() == {"01-first.md": Phase.DONE}


@pytest.mark.long
def test_a_folder_that_became_a_link_elsewhere_is_gone(agents: FakeAgents, tmp_path: Path) -> None:
    """R4."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "03-stolen.md").write_text(task_text("stolen"))
    agents.acts["first"] = [
        fake_script.Turn(calls=(fake_script.shell(f"rm -r {FOLDER}; ln -s {tmp_path}/elsewhere {FOLDER}"),))
    ]
    assert agents.start().failure.startswith(f"The folder {FOLDER} is gone")


@pytest.mark.long
def test_a_sequence_whose_workspace_was_cleaned_resumes_from_the_recording(
    agents: FakeAgents,
    repository: GitRepository,
) -> None:
    repository.commit(**{f"{FOLDER}/02-a.md": ""})
    sequence = agents.start()
    (agents.workspace / FOLDER / "02-a.md").unlink()
    shutil.rmtree(agents.workspace)
    resume_sequence(sequence, by=acting(agents.person))
    sequence.refresh_from_db()
    assert sequence.failure == f"{FOLDER}/02-a.md:1: the task has no text"


@pytest.mark.long
def test_the_result_of_a_sequence_that_is_done_stays_when_it_is_cleaned(agents: FakeAgents) -> None:
    sequence = agents.start()
    before = sequence.head_commit
    (agents.workspace / "late.txt").write_text("late")
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (cleaned,) = clean_workspaces(older_than=timedelta(days=14), sandbox=agents.context.sandbox)
    sequence.refresh_from_db()
    assert not cleaned.kept and cleaned.late and not agents.workspace.exists()
    assert before == sequence.head_commit == sequence.tasks.latest("pk").head_commit


@pytest.mark.parametrize("folder", ["nowhere", "tasks", "tasks/prices/01-first.md"])
def test_a_folder_that_is_missing_or_empty_is_refused(agents: FakeAgents, folder: str) -> None:
    with pytest.raises(BadInput, match=f"{folder}: the newest commit of main has no such folder"):
        create_sequence(agents.project, folder, by=acting(agents.person))
    assert not Sequence.objects.exists()


@pytest.mark.parametrize("folder", ["../elsewhere", "/etc", "", "tasks/../../etc"])
def test_a_folder_outside_is_refused(agents: FakeAgents, folder: str) -> None:
    with pytest.raises(BadInput, match="not a folder within the repository"):
        create_sequence(agents.project, folder, by=acting(agents.person))


def test_a_faulty_first_file_is_refused(agents: FakeAgents, repository: GitRepository) -> None:
    repository.commit(**{f"{FOLDER}/00-bad.md": "---\ntitle: [\n---\n"})
    with pytest.raises(BadInput, match=re.escape(f"{FOLDER}/00-bad.md:")):
        create_sequence(agents.project, FOLDER, by=acting(agents.person))
    assert not Sequence.objects.exists() and not Task.objects.exists()


@pytest.mark.long
def test_a_second_sequence_of_the_folder_has_a_branch_of_its_own(agents: FakeAgents) -> None:
    agents.start()
    assert agents.make().branch == "cat-herder/prices-2"


class TestHistory:
    """Every move of a sequence leaves a row, also those between two tasks."""

    def moves(self, agents: FakeAgents) -> list[str]:
        return [str(move) for move in agents.sequence.transitions.all()]

    def test_it_has_the_moves_of_the_task_at_hand_and_those_between_tasks(self, agents: FakeAgents) -> None:
        agents.acts["first"] = [
            fake_script.Turn(calls=(fake_script.ask("Round?"),)),
            fake_script.say("{result}"),
        ]
        agents.start()
        agents.answer("Yes")
        agents.work()
        asked = ["pending → running", "running → waiting_for_input", "waiting_for_input → pending"]
        assert self.moves(agents) == [
            *asked,
            *["pending → running", "running → pending"] * 2,
            *["pending → running", "running → done"],
        ]
        answered = agents.sequence.transitions.get(source=Phase.WAITING_FOR_INPUT)
        assert answered.actor == agents.person

    @pytest.mark.long
    def test_a_fault_of_the_folder_is_the_reason_and_who_looks_again_the_actor(
        self, agents: FakeAgents, repository: GitRepository
    ) -> None:
        repository.commit(**{f"{FOLDER}/02-a.md": ""})
        sequence = agents.start()
        resume_sequence(sequence, by=acting(agents.person))  # it is at fault as before: no move
        (agents.workspace / FOLDER / "02-a.md").write_text(task_text("mended"))
        resume_sequence(sequence, by=acting(agents.person))
        _, failed, went_on = agents.sequence.transitions.all()
        assert str(failed) == "running → failed"
        assert failed.reason == f"{FOLDER}/02-a.md:1: the task has no text" and failed.actor is None
        assert (str(went_on), went_on.actor) == ("failed → pending", agents.person)


class TestHalting:
    """H4, H10."""

    def test_it_shows_in_the_sequence(self, agents: FakeAgents) -> None:
        agents.acts["second"] = [
            fake_script.Turn(calls=(fake_script.ask("Round?"),)),
            fake_script.say("So be it: {result}"),
        ]
        assert agents.start().phase == Phase.WAITING_FOR_INPUT
        assert agents.phases() == {"01-first.md": Phase.DONE, "02-second.md": Phase.WAITING_FOR_INPUT}

    def test_it_does_so_in_the_transaction_that_stores_the_question(
        self, agents: FakeAgents, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        follow = transitions._move_sequence_with_task

        def breaks(sequence_id: int, target: Phase, *rest: Any, **named: Any) -> None:
            if target is Phase.WAITING_FOR_INPUT:
                raise RuntimeError("the power went")
            follow(sequence_id, target, *rest, **named)

        monkeypatch.setattr(transitions, "_move_sequence_with_task", breaks)
        agents.acts["first"] = [fake_script.Turn(calls=(fake_script.ask("Round?"),))]
        assert agents.start().phase == Phase.FAILED
        assert not Question.objects.exists()
        assert not Transition.objects.filter(target=Phase.WAITING_FOR_INPUT).exists()
        assert not agents.sequence.transitions.filter(target=Phase.WAITING_FOR_INPUT).exists()

    def test_an_answer_resumes_the_task_and_later_tasks_know_it(self, agents: FakeAgents) -> None:
        agents.acts["first"] = [
            fake_script.Turn(calls=(fake_script.ask("Round half cents up?"),)),
            fake_script.say("{result}"),
        ]
        agents.start()
        agents.answer("Yes, always")
        agents.sequence.refresh_from_db()
        assert agents.sequence.phase == Phase.PENDING
        assert agents.work().phase == Phase.DONE
        for order in agents.agent.runs[2:]:
            assert "--- HUMAN INTERACTION HISTORY ---" in (order.prompt or "")
            assert "Round half cents up?" in (order.prompt or "")
            assert "Yes, always" in (order.prompt or "")
        assert "HISTORY" not in (agents.agent.runs[0].prompt or "")

    def test_pauses_tokens_and_dollars_roll_up(self, agents: FakeAgents) -> None:
        """P10, P11, H11."""
        agents.acts["first"] = [
            fake_script.Turn(calls=(fake_script.ask("Round?"),)),
            fake_script.say("{result}"),
        ]
        agents.start()
        agents.answer("Yes")
        Task.objects.update(paused_seconds=5.0)
        agents.work()
        metrics = statistics.of_sequence(agents.sequence)
        parts = statistics.of_tasks(agents.tasks).values()
        assert metrics.duration.paused == sum(part.duration.paused for part in parts) > 5.0
        assert metrics.usage.cost_usd == pytest.approx(sum(part.usage.cost_usd for part in parts))
        assert metrics.usage.output_tokens == sum(part.usage.output_tokens for part in parts) > 0
        assert metrics.by_model == {fake_agent.MODEL: metrics.usage}


class TestStopping:
    def test_a_failed_task_stops_the_sequence_until_it_is_resumed(self, agents: FakeAgents) -> None:
        agents.acts["second"] = [fake_script.Fail("API Error: 500 for a while")]
        sequence = agents.start()
        assert (sequence.phase, len(agents.tasks)) == (Phase.FAILED, 2)
        assert "500 for a while" in sequence.failure
        assert sequence.ended_at
        agents.acts["second"] = [
            fake_script.Fail("API Error: 500 for a while"),
            fake_script.say("It works again."),
        ]
        resume_sequence(sequence, by=acting(agents.person))
        resumed = Sequence.objects.get(pk=sequence.pk)
        assert (resumed.phase, resumed.ended_at) == (Phase.PENDING, None)
        assert agents.work().phase == Phase.DONE
        assert (resumed.failure, len(agents.tasks)) == ("", 3)

    def test_a_sequence_is_cancelled_with_its_task_and_can_be_resumed(self, agents: FakeAgents) -> None:
        agents.acts["second"] = [
            fake_script.Turn(calls=(fake_script.ask("Round?"),)),
            fake_script.say("{result}"),
        ]
        sequence = agents.start()
        cancel_sequence(sequence, by=acting(agents.person))
        assert agents.work().phase == Phase.CANCELLED
        assert agents.phases()["02-second.md"] == Phase.CANCELLED
        with pytest.raises(IllegalMove):
            cancel_sequence(sequence, by=acting(agents.person))
        resume_sequence(sequence, by=acting(agents.person))
        assert agents.work().phase == Phase.WAITING_FOR_INPUT
        agents.answer("Yes")
        assert agents.work().phase == Phase.DONE

    def test_a_sequence_cannot_be_resumed_after_its_end(self, agents: FakeAgents) -> None:
        sequence = agents.start()
        with pytest.raises(IllegalMove):
            resume_sequence(sequence, by=acting(agents.person))
        with pytest.raises(IllegalMove):
            cancel_sequence(sequence, by=acting(agents.person))

    def test_starting_twice_changes_nothing(self, agents: FakeAgents) -> None:
        agents.make()
        for _ in range(2):
            start_sequence(agents.sequence, by=acting(agents.person))
        assert agents.work().phase == Phase.DONE
        start_sequence(agents.sequence, by=acting(agents.person))
        assert len(agents.tasks) == 3

    @pytest.mark.parametrize("action", [start_sequence, cancel_sequence, resume_sequence])
    def test_a_viewer_changes_nothing(self, agents: FakeAgents, action: object) -> None:
        """W1: said before anything about its phase."""
        sequence = agents.start()
        viewer = MembershipFactory.create(project=agents.project, role="viewer").user
        with pytest.raises(NotAllowed):
            action(sequence, by=acting(viewer))  # type: ignore[operator]


@pytest.mark.long
def test_a_process_that_works_on_the_next_task_itself_notifies_nobody(
    agents: FakeAgents, django_capture_on_commit_callbacks: object
) -> None:
    agents.make()
    start_sequence(agents.sequence, by=acting(agents.person), notify=False)
    for queues_next, expected in ((False, 0), (True, 1)):
        context = WorkerContext(agents.agent, agents.context.sandbox, never, queues_next=queues_next)
        with django_capture_on_commit_callbacks() as callbacks:  # type: ignore[operator]
            advance(agents.tasks[-1].pk, owner="worker", context=context)
        # Each change also wakes the web server.
        queued = [one for one in callbacks if one.__module__ != wakeup.__name__]
        assert len(queued) == expected


@pytest.mark.long
def test_a_project_takes_its_sequences_workspaces_with_it(agents: FakeAgents) -> None:
    """They stayed behind on the disk."""
    agents.start()
    folder = paths.shared_dir(agents.tasks[0])
    assert folder.exists()
    remove_project(agents.project, by=acting(agents.person))
    assert not folder.exists()
    assert Path(agents.project.source).exists()


@pytest.mark.long
def test_a_folder_that_cannot_be_read_is_reported(
    agents: FakeAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The portal may run as a user to whom the agent closed the folder; as root nothing is closed."""
    agents.make()

    def closed(*_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tasks_app.services.sequences.working_names", closed)
    start_sequence(agents.sequence, by=acting(agents.person))
    sequence = agents.work()
    assert sequence.phase == Phase.FAILED
    assert sequence.failure == f"The folder {FOLDER} cannot be read: Permission denied"
