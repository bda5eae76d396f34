"""`cat-herder watch_tasks`: task files are run as they are written (P12, R5)."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings

from tasks_app.cli.command import Exit
from tasks_app.cli.terminal import Screen
from tasks_app.cli.watch import Watch
from tasks_app.models import Project, Task, User
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import cancel_task, create_task
from tests import fake_script
from tests.factories import MembershipFactory, UserFactory
from tests.installation import PLAIN_CONFIG, Installation
from tests.integration.conftest import FakeAgents, Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting

pytestmark = [
    pytest.mark.django_db(transaction=True, reset_sequences=True),
    pytest.mark.once(on="sqlite"),
]

ONCE = ("watch_tasks", "--project", "shop", "--once", "--no-input")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    config = f"taskFolder: todo\n{PLAIN_CONFIG}"
    repository = GitRepository.make(tmp_path / "shop", **{"cat-herder.yaml": config})
    ann = UserFactory.create(username="ann", first_name="Ann", is_superuser=True)
    return add_project("shop", str(repository.path), by=ann)


@pytest.fixture
def folder(project: Project) -> Path:
    """The project's task folder; nothing of it is committed."""
    folder = Path(project.source) / "todo"
    folder.mkdir()
    return folder


def text_of(word: str) -> str:
    return f"# Task {word}\n\nword: {word}\n"


def phases() -> dict[str, str]:
    return dict(Task.objects.order_by("pk").values_list("slug", "phase"))


class TestOnce:
    def test_every_task_file_that_is_there_is_run(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        for name in ("b", "a", "_c"):
            (folder / f"{name}.md").write_text(text_of(name.strip("_")))
        (folder / "notes.txt").write_text(text_of("notes"))
        code, out, err = manage(*ONCE)
        assert (code, err) == (0, "")
        assert phases() == {"a": "done", "b": "done"}
        assert f"Watching {folder} for tasks of shop" in out and "2 task files there" in out
        assert out.index("+ a.md: task 1, Task a") < out.index("The a is done.") < out.index("The b is done.")

    def test_what_ran_is_not_run_again_until_it_is_changed(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        """Decided from the rows: the second watch is another one."""
        (folder / "a.md").write_text(text_of("a"))
        manage(*ONCE)
        assert manage(*ONCE)[0] == 0
        assert len(agents.agent.runs) == 1
        (folder / "a.md").write_text(text_of("b"))
        assert manage(*ONCE)[0] == 0
        assert phases() == {"a": "done", "a-2": "done"}
        (folder / "a.md").write_text(text_of("a"))
        manage(*ONCE)
        assert len(agents.agent.runs) == 2

    def test_the_same_text_under_another_name_is_another_task(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        (folder / "a.md").write_text(text_of("a"))
        (folder / "b.md").write_text(text_of("a"))
        manage(*ONCE)
        assert list(phases()) == ["a", "b"]

    def test_faulty_files_are_reported_with_their_line_and_the_others_run(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        (folder / "a.md").write_text("---\ntitle: A\ninteractionThreshold: 9\n---\nDo it.\n")
        (folder / "b.md").write_bytes(b"# B\n\ncaf\xe9\n")
        (folder / "c.md").write_text(text_of("c"))
        code, out, _ = manage(*ONCE)
        assert code == 1
        assert f"{folder}/a.md:3: interactionThreshold must be" in out
        assert f"{folder}/b.md:3: this is not UTF-8 text" in out
        assert phases() == {"c": "done"}

    def test_a_failed_task_does_not_hold_up_the_next(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        agents.acts["a"] = [fake_script.Fail("API Error: no")]
        for word in ("a", "b"):
            (folder / f"{word}.md").write_text(text_of(word))
        assert manage(*ONCE)[0] == 1
        assert phases() == {"a": "failed", "b": "done"}

    def test_a_waiting_task_does_not_delay_the_next_and_resumes_later(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        agents.acts["a"] = [
            fake_script.Turn(calls=(fake_script.ask("Round up?"),)),
            fake_script.say("So: {result}"),
        ]
        for word in ("a", "b"):
            (folder / f"{word}.md").write_text(text_of(word))
        code, out, _ = manage(*ONCE)
        assert code == 3
        assert 'cat-herder answer 1 "…"' in out
        assert phases() == {"a": "waiting_for_input", "b": "done"}
        manage("answer", "1", "Yes")
        code, out, _ = manage(*ONCE)
        assert code == 0 and "So: The user answered" in out
        assert phases() == {"a": "done", "b": "done"}

    def test_a_task_that_was_cancelled_meanwhile_is_left_alone(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        agents.acts["a"] = [fake_script.Turn(calls=(fake_script.ask("Round up?"),))]

        def cancel(workspace: Path) -> str:
            cancel_task(Task.objects.get(slug="a"), by=acting(User.objects.get(username="ann")))
            return ""

        agents.acts["b"] = [fake_script.Turn(calls=(fake_script.Call("Bash", {"command": "true"}, cancel),))]
        for word in ("a", "b"):
            (folder / f"{word}.md").write_text(text_of(word))
        code, out, _ = manage(*ONCE)
        assert code == 1 and "· task 1, Task a: cancelled" in out
        assert phases() == {"a": "cancelled", "b": "done"}

    def test_a_file_written_while_a_task_runs_is_run_after_it(
        self, manage: Manage, folder: Path, agents: FakeAgents
    ) -> None:
        def write(workspace: Path) -> str:
            (folder / "b.md").write_text(text_of("b"))
            return ""

        agents.acts["a"] = [fake_script.Turn(calls=(fake_script.Call("Bash", {"command": "true"}, write),))]
        (folder / "a.md").write_text(text_of("a"))
        assert manage(*ONCE)[0] == 0
        assert phases() == {"a": "done", "b": "done"}

    def test_a_new_task_has_the_settings_of_the_project_as_they_are_now(
        self, manage: Manage, project: Project, folder: Path, agents: FakeAgents
    ) -> None:
        def write(workspace: Path) -> str:
            Project.objects.filter(pk=project.pk).update(overrides={"soft_cost_usd": 0.15})
            (folder / "b.md").write_text(text_of("b"))
            return ""

        agents.acts["a"] = [fake_script.Turn(calls=(fake_script.Call("Bash", {"command": "true"}, write),))]
        (folder / "a.md").write_text(text_of("a"))
        assert manage(*ONCE)[0] == 0
        assert dict(Task.objects.values_list("slug", "soft_cost_usd")) == {"a": None, "b": 0.15}

    def test_an_empty_folder_is_no_fault(self, manage: Manage, folder: Path, agents: FakeAgents) -> None:
        assert manage(*ONCE)[0] == 0

    def test_another_folder_can_be_named(
        self, manage: Manage, project: Project, agents: FakeAgents, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a.md").write_text(text_of("a"))
        assert manage(*ONCE, tmp_path / "elsewhere")[0] == 0
        assert phases() == {"a": "done"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "todo: there is no such folder."),
        (("nowhere",), "nowhere: there is no such folder."),
        (("--parallel", "-1"), "--parallel: a number from 1 is needed."),
        (("--as", "vic"), "does not allow this"),
    ],
)
def test_wrong_use_is_reported(
    manage: Manage, project: Project, agents: FakeAgents, words: tuple[str, ...], told: str
) -> None:
    MembershipFactory.create(project=project, user__username="vic", role="viewer")
    code, _, err = manage(*ONCE, *words)
    assert code == 2 and told in err


def test_a_faulty_configuration_is_reported_with_its_line(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    (Path(project.source) / "cat-herder.yaml").write_text("taskFolder: [1]\n")
    code, _, err = manage(*ONCE)
    assert code == 2 and "cat-herder.yaml:1: taskFolder" in err


def test_a_project_elsewhere_needs_a_folder_here(
    manage: Manage, project: Project, agents: FakeAgents
) -> None:
    Project.objects.update(source="https://git.example.org/shop.git")
    code, _, err = manage(*ONCE)
    assert code == 2 and "is not on this machine: name a folder here." in err


def test_work_on_the_projects_own_branch_is_announced_before_it_begins(
    manage: Manage, project: Project, folder: Path, agents: FakeAgents
) -> None:
    GitRepository(Path(project.source)).commit(
        **{"cat-herder.yaml": f"taskFolder: todo\nmanageGitBranch: false\n{PLAIN_CONFIG}"}
    )
    (folder / "a.md").write_text(text_of("a"))
    _, out, _ = manage(*ONCE)
    assert "works directly on the project's branch main" in out
    assert out.index("works directly on the project's branch") < out.index("The a is done.")


def test_a_task_that_may_not_be_started_is_reported_and_watching_continues(
    project: Project, folder: Path
) -> None:
    """Somebody took the role away while the watch ran."""
    admin = acting(UserFactory.create(is_superuser=True))
    for word in ("a", "b"):
        (folder / f"{word}.md").write_text(text_of(word))
        create_task(project, text_of(word), by=admin, where="test", slug=word)
    viewer = MembershipFactory.create(project=project, role="viewer").user
    out = StringIO()
    watch = Watch(project, folder, acting(viewer), Screen(out, no_color=True), may_prompt=False, parallel=1)
    assert watch.run(once=True) == Exit.FAILED
    assert "Task a: Your role in shop does not allow this" in out.getvalue()
    assert "Task b: Your role in shop does not allow this" in out.getvalue()


class TestUnderWatch:
    """With processes and terminals. The agent is the real one where it is interrupted or a worker's."""

    @pytest.fixture
    def todo(self, installation: Installation) -> Path:
        own = GitRepository.make(installation.data_dir / "own", **{"cat-herder.yaml": PLAIN_CONFIG})
        assert installation.manage("project", "add", "own", str(own.path)).returncode == 0
        folder = own.path / "cat-herder-tasks"
        folder.mkdir()
        return folder

    def test_files_are_run_as_they_come_and_ctrl_c_ends_it(
        self, installation: Installation, todo: Path
    ) -> None:
        terminal = installation.with_fake_agent().terminal("watch_tasks", "--project", "own")
        terminal.expect("0 task files there")
        (todo / "bad.md").write_text("---\nthreshold: 1\n---\n")
        terminal.expect("bad.md:2:")
        (todo / "half.md").write_text("")
        (todo / "ask.md").write_text("# Ask once\n\nrehearsal: ask-and-end\n")
        terminal.expect("+ ask.md: task 1, Ask once")
        terminal.expect("> ")
        terminal.type("Go on\n")
        terminal.expect("Rehearsed: Ask once")
        with (todo / "half.md").open("a") as file:
            file.write("# Half\n\nrehear")
            file.flush()
            file.write("sal: no-questions\n")
        terminal.expect("Done: Half")
        terminal.press_ctrl_c()
        terminal.expect("Watching has ended.")
        assert terminal.end() == 0
        assert installation.row("SELECT count(*) FROM tasks_app_task WHERE phase = 'done'") == (2,)

    def test_ctrl_c_interrupts_the_task_and_the_next_watch_resumes_it(
        self, installation: Installation, todo: Path
    ) -> None:
        (todo / "slow.md").write_text("# Take your time\n\nrehearsal: slow\n")
        terminal = installation.terminal("watch_tasks", "--project", "own", "--existing")
        terminal.expect("$ touch slow-started.txt")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert installation.phase() == "interrupted"
        terminal = installation.terminal("watch_tasks", "--project", "own")
        terminal.expect("run 2 after an interruption")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert installation.row("SELECT count(*) FROM tasks_app_task") == (1,)

    def test_what_is_there_already_is_left_alone_until_it_is_changed(
        self, installation: Installation, todo: Path
    ) -> None:
        """A folder may hold years of tasks; nobody wants them all run because a watch begins."""
        for name in ("old", "changed"):
            (todo / f"{name}.md").write_text(f"# {name}\n\nrehearsal: no-questions\n")
        (todo / "faulty.md").write_text("---\nthreshold: 1\n---\n")
        terminal = installation.with_fake_agent().terminal("watch_tasks", "--project", "own")
        terminal.expect("3 task files there, left alone until they are changed; --existing runs them")
        (todo / "changed.md").write_text("# Changed\n\nrehearsal: no-questions\n")
        terminal.expect("Done: Changed")
        terminal.press_ctrl_c()
        assert terminal.end() == 0
        assert "faulty" not in terminal.seen
        assert installation.row("SELECT count(*), max(slug) FROM tasks_app_task") == (1, "changed")

    def test_a_folder_that_goes_and_comes_back_is_watched_on(
        self, installation: Installation, todo: Path
    ) -> None:
        """As when git changes to a branch without it, and back."""
        terminal = installation.with_fake_agent().terminal("watch_tasks", "--project", "own")
        terminal.expect("0 task files there")
        todo.rmdir()
        todo.mkdir()
        (todo / "a.md").write_text("# Quick\n\nrehearsal: no-questions\n")
        terminal.expect("Done: Quick")
        terminal.press_ctrl_c()
        assert terminal.end() == 0

    def test_a_portal_gets_as_many_as_were_allowed(self, installation: Installation, todo: Path) -> None:
        for name in ("a", "b", "c"):
            (todo / f"{name}.md").write_text(f"# {name}\n\nrehearsal: no-questions\n")
        watch = installation.terminal("watch_tasks", "--project", "own", "--parallel", "2", "--once")
        watch.expect("task 2, b: pending")
        queued = "SELECT count(*) FROM tasks_app_task WHERE queued_at IS NOT NULL"
        assert installation.row(queued) == (2,)
        worker = installation.popen("worker")
        try:
            watch.expect("task 3, c: done")
            assert watch.end() == 0
        finally:
            worker.terminate()
            worker.communicate()
