"""`cat-herder status`, `stats`, `log` and `project`, on rows (P12, R5)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from tasks_app.cli.lookup import acting_user
from tasks_app.core.phases import Phase
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import EventKind, Project, Run, Task, WorkerBeat, paths
from tasks_app.services.wait_sentences import phase_sentence
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    TaskFactory,
    UserFactory,
    WorkerBeatFactory,
)
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def worker() -> WorkerBeat:
    return WorkerBeatFactory.create()


@pytest.fixture
def asked() -> Task:
    """A task that waits, after a run that cost something."""
    began = timezone.now() - timedelta(hours=3)
    task = TaskFactory.create(
        title="Round [red]half[/red] cents\x1b[2J", phase=Phase.WAITING_FOR_INPUT, started_at=began
    )
    run = RunFactory.create(
        task=task, step=task.steps.get(name="implement"), input_tokens=1200, output_tokens=34, cost_usd=0.5
    )
    said = {"text": "Let me look."}
    append(run, [NewEvent(EventKind.TEXT, said, raw=said)], seq=run.next_seq())
    QuestionFactory.create(task=task, run=run)
    return task


def test_status_names_what_is_not_in_the_result(manage: Manage) -> None:
    note = "Not part of the result, because .gitignore names it or tools fill it: .env. Checks saw it."
    task = TaskFactory.create(phase=Phase.DONE, left_out=[note])
    assert note in " ".join(manage("status", str(task.pk))[1].split())


def test_a_table_of_tasks_begins_with_what_needs_a_person(manage: Manage, asked: Task) -> None:
    done = TaskFactory.create(phase=Phase.DONE)
    running = TaskFactory.create(phase=Phase.RUNNING)
    code, out, _ = manage("status")
    rows = out.splitlines()[1:]
    assert code == 0
    assert [int(row.split()[0]) for row in rows] == [asked.pk, running.pk, done.pk]
    assert "Round [red]half[/red] cents" in rows[0]
    assert "\x1b" not in out


def test_a_task_is_shown_with_its_question_and_how_to_answer_it(manage: Manage, asked: Task) -> None:
    question = asked.questions.get()
    _, out, _ = manage("status", asked.pk)
    assert f"waiting for input: {phase_sentence(asked)}" in out
    assert f'cat-herder answer {question.pk} "…"' in out
    assert f"http://127.0.0.1:8000/questions/{question.pk}/" in out
    assert "2  Half up" in out
    assert "1,200 tokens in, 34 out" in out
    assert "$0.50" in out
    assert "asks" not in out
    Task.objects.update(ask=["ann", "@leads"])
    assert "asks ann, @leads" in manage("status", asked.pk)[1]


def test_a_task_can_be_named_by_its_project_and_slug(manage: Manage, asked: Task) -> None:
    _, out, _ = manage("status", f"{asked.project.name}/{asked.slug}", "--json")
    facts = json.loads(out)
    assert (facts["task"], facts["phase"]) == (asked.pk, "waiting_for_input")
    assert facts["question"]["items"][0]["header"] == "Rounding"
    assert facts["tokens"] == {"input": 1200, "output": 34, "cache_write": 0, "cache_read": 0}
    assert facts["steps"][1]["runs"][0]["cost_usd"] == 0.5
    assert facts["ask"] == []


def test_json_of_all_tasks_can_be_narrowed_to_a_project(manage: Manage, asked: Task) -> None:
    TaskFactory.create()
    _, out, _ = manage("status", "--json", "--project", asked.project.name)
    assert [task["task"] for task in json.loads(out)["tasks"]] == [asked.pk]


def test_long_lists_are_cut_and_say_so(manage: Manage) -> None:
    project = ProjectFactory.create(name="shop")  # a longer name can wrap a line
    for _ in range(51):
        TaskFactory.create(project=project)
    assert "… and 1 more; --all shows them." in manage("status")[1]
    assert len(manage("status", "--all")[1].splitlines()) == 52


def test_status_shows_the_workers_or_that_there_is_none(manage: Manage, worker: WorkerBeat) -> None:
    TaskFactory.create()
    assert "No worker" not in manage("status")[1]
    told = json.loads(manage("status", "--json")[1])["workers"]
    assert [(one["host"], one["pid"], one["slots"]) for one in told] == [("here", worker.pid, 4)]
    WorkerBeat.objects.update(ended=True)
    assert "No worker is running: tasks wait." in manage("status")[1]
    assert json.loads(manage("status", "--json")[1])["workers"] == []


@pytest.fixture
def used() -> None:
    """Two projects of one person, and a task whose person is gone, with two models."""
    ann = UserFactory.create(username="ann")
    for name, person, model, dollars in (
        ("shop", ann, "opus", 1.5),
        ("billing", ann, "haiku", 0.25),
        ("billing", None, "opus", 2.0),
    ):
        project = Project.objects.filter(name=name).first() or ProjectFactory.create(name=name)
        task = TaskFactory.create(project=project, created_by=person)
        tokens = {"input_tokens": 1000, "output_tokens": 50, "cache_read_tokens": 200}
        RunFactory.create(task=task, model=model, cost_usd=dollars, **tokens)


@pytest.mark.parametrize(
    ("by", "costs"),
    [
        ("model", {"opus": 3.5, "haiku": 0.25}),
        ("user", {"": 2.0, "ann": 1.75}),
        ("project", {"billing": 2.25, "shop": 1.5}),
    ],
)
def test_usage_can_be_split(manage: Manage, used: None, by: str, costs: dict[str, float]) -> None:
    """P11."""
    told = json.loads(manage("stats", "--by", by, "--json")[1])
    parts = {name: part["cost_usd"] for name, part in told["parts"].items()}
    assert list(parts.items()) == list(costs.items())
    assert told["by"] == by and told["total"]["cost_usd"] == 3.75
    assert told["total"]["tokens"] == {"input": 3000, "output": 150, "cache_write": 0, "cache_read": 600}


def test_what_was_used_is_a_table_with_its_sum(manage: Manage, used: None) -> None:
    """P11."""
    _, out, _ = manage("stats", "--by", "user")
    rows = [line.split("  ") for line in out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["USER", "TOKENS IN", "OF THESE CACHED", "TOKENS OUT", "COST"],
        ["nobody", "1,200", "200", "50", "$2.00"],
        ["ann", "2,400", "400", "100", "$1.75"],
        ["total", "3,600", "600", "150", "$3.75"],
    ]


def test_nothing_was_used_yet(manage: Manage) -> None:
    assert manage("stats")[1] == "No task has run yet.\n"
    assert json.loads(manage("stats", "--json")[1])["parts"] == {}


@pytest.mark.parametrize(
    ("step", "kind", "seen"), [("implement", "output", True), ("2", "raw", True), ("1", "output", False)]
)
def test_the_log_of_a_step(manage: Manage, asked: Task, step: str, kind: str, seen: bool) -> None:
    """H8."""
    code, out, _ = manage("log", asked.pk, "--step", step, "--kind", kind)
    assert code == 0
    assert ("Let me look." in out) is seen


def test_the_log_of_a_task_is_that_of_all_its_steps(manage: Manage, asked: Task) -> None:
    RunFactory.create(step=asked.steps.get(name="plan"))
    out = manage("log", asked.pk)[1]
    assert out.index("1 plan") < out.index("2 implement") < out.index("Let me look.")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("status", "4711"), "There is no task 4711"),
        (("status", "9" * 30), "is not a task's id"),
        (("status", "nowhere/nothing"), "There is no task nowhere/nothing"),
        (("status", "half"), "“half” is not a task's id, or PROJECT/TASK"),
        (("status", "--project", "nowhere"), "There is no project “nowhere”"),
        (("log", "4711"), "There is no task 4711"),
        (("project", "add", "x", "/nowhere/at/all"), "/nowhere/at/all does not exist"),
        (("project", "add", "x", "/usr"), "/usr is not the top folder of a git repository"),
        (("project", "add", "x", "ext::sh -c id"), "only https and ssh URLs and plain paths"),
    ],
)
def test_bad_words_are_refused_with_what_and_where(manage: Manage, words: tuple[str, ...], told: str) -> None:
    """R5."""
    code, out, err = manage(*words)
    assert (code, out) == (2, "")
    assert told in err


def test_an_unknown_step_is_reported_with_the_known_ones(manage: Manage, asked: Task) -> None:
    code, _, err = manage("log", asked.pk, "--step", "deploy")
    assert code == 2
    assert err == f"error: --step: Task {asked.pk} has no step “deploy”. Its steps: 1 plan, 2 implement.\n"


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "billing", **{"README.md": "Billing\n"})


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    return tmp_path / "data"


def test_a_project_is_added_listed_and_removed(
    manage: Manage, repository: GitRepository, data_dir: Path
) -> None:
    ann = UserFactory.create(username="ann", is_superuser=True)
    assert manage("project", "add", "billing", repository.path, "--as", "ann")[0] == 0
    project = Project.objects.get()
    assert project.memberships.get(user=ann).role == "maintainer"
    facts = {"name": "billing", "source": str(repository.path), "branch": "main", "tasks": 0}
    assert json.loads(manage("project", "list", "--json")[1]) == {"projects": [facts]}
    assert str(repository.path) in manage("project", "list")[1]
    task = TaskFactory.create(project=project)
    paths.workspace(task).path.mkdir(parents=True)

    code, out, _ = manage("project", "remove", "billing", "--yes", "--as", "ann")

    assert (code, out) == (0, f"Project “billing” is removed. {repository.path} was not touched.\n")
    assert not Task.objects.exists()
    assert not paths.task_dir(task).exists()
    assert not paths.repository(project).path.exists()
    assert (repository.path / ".git").is_dir()


def test_a_project_can_be_added_before_anybody_has_a_login(
    manage: Manage, repository: GitRepository, data_dir: Path
) -> None:
    assert manage("project", "add", "billing", repository.path)[0] == 0


@pytest.mark.parametrize("name", ["Billing", "a b", "-x", "../x", "x" * 61, ""])
def test_a_name_that_cannot_be_used_is_refused(
    manage: Manage, repository: GitRepository, data_dir: Path, name: str
) -> None:
    code, _, err = manage("project", "add", "--", name, repository.path)
    assert code == 2
    assert "name:" in err
    assert not Project.objects.exists()


def test_a_name_that_is_taken_is_refused(manage: Manage, repository: GitRepository, data_dir: Path) -> None:
    ProjectFactory.create(name="billing")
    err = manage("project", "add", "billing", repository.path)[2]
    assert (
        err.startswith("error: project: “billing” is the name of the project from ")
        and "choose another" in err
    )


def test_nothing_is_removed_unasked(manage: Manage) -> None:
    ProjectFactory.create(name="billing")
    UserFactory.create(username="ann", is_superuser=True)
    code, _, err = manage("project", "remove", "billing")
    assert (code, err) == (2, "error: Cannot ask for confirmation here; use --yes to remove “billing”.\n")
    assert Project.objects.exists()


def test_only_a_maintainer_removes_a_project(manage: Manage) -> None:
    project = MembershipFactory.create(project__name="billing", user__username="bob", role="member").project
    code, _, err = manage("project", "remove", "billing", "--yes", "--as", "bob")
    assert code == 2
    assert "maintainers can remove it" in err
    project.refresh_from_db()


def test_a_project_in_which_an_agent_is_at_work_is_not_removed(manage: Manage) -> None:
    task = TaskFactory.create(phase=Phase.RUNNING)
    UserFactory.create(username="ann", is_superuser=True)
    code, _, err = manage("project", "remove", task.project.name, "--yes", "--as", "ann")
    assert code == 1
    assert f"Task {task.pk} of {task.project.name} is running" in err
    assert Run.objects.count() == 0
    task.refresh_from_db()


class TestWhoSitsThere:
    """Who acts is `--as`, CATHERDER_USER, the login name, or the only admin, in this order."""

    @pytest.fixture(autouse=True)
    def login(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOGNAME", "carla")

    def test_the_only_admin(self) -> None:
        ann = UserFactory.create(username="ann", is_superuser=True)
        UserFactory.create(username="bob")
        assert acting_user(None) == ann

    def test_the_login_name_goes_before_the_only_admin(self) -> None:
        UserFactory.create(username="ann", is_superuser=True)
        carla = UserFactory.create(username="carla")
        assert acting_user(None) == carla

    def test_the_variable_goes_before_the_login_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        named = settings.ENVIRONMENT.model_copy(update={"user": "bob"})
        monkeypatch.setattr(settings, "ENVIRONMENT", named)
        UserFactory.create(username="carla")
        bob, dora = UserFactory.create(username="bob"), UserFactory.create(username="dora")
        assert acting_user(None) == bob
        assert acting_user("dora") == dora

    def test_with_two_admins_one_has_to_say_who_one_is(self, manage: Manage) -> None:
        question = QuestionFactory.create()
        for name in ("ann", "bob"):
            UserFactory.create(username=name, is_superuser=True)
        code, _, err = manage("answer", question.pk, "yes")
        assert code == 2
        assert err == "error: Which user is this? Use --as USERNAME or set CATHERDER_USER. Known: ann, bob.\n"

    def test_without_any_login_it_says_how_to_make_one(self, manage: Manage) -> None:
        code, _, err = manage("answer", QuestionFactory.create().pk, "yes")
        assert code == 2
        assert "Start the portal once: cat-herder up" in err

    def test_an_unknown_or_closed_login_is_refused(self, manage: Manage) -> None:
        UserFactory.create(username="ann", is_superuser=True, is_active=False)
        assert "There is no user “eve”" in manage("answer", 1, "yes", "--as", "eve")[2]
        assert "The account of “ann” is deactivated" in manage("answer", 1, "yes", "--as", "ann")[2]
