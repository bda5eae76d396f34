"""What `cat-herder run_task` refuses before there is a task (P12, R5, H1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.conf import settings

from tasks_app.cli.lookup import find_unfinished_task
from tasks_app.core.phases import Phase
from tasks_app.models import Project, Task
from tasks_app.services.projects.projects import add_project
from tests.factories import MembershipFactory, TaskFactory, UserFactory
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "data")
    UserFactory.create(username="ann", is_superuser=True)
    repository = GitRepository.make(tmp_path / "billing", **{"README.md": "Billing\n"})
    added = add_project("billing", str(repository.path))
    MembershipFactory.create(project=added, user__username="vic", role="viewer")
    return added


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    path = tmp_path / "rounding.md"
    path.write_text("# Round\n")
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--threshold", "6"], '--threshold: the threshold must be a whole number from 0 to 5, not "6"'),
        (["--threshold", "high"], 'must be a whole number from 0 to 5, not "high"'),
        (["--threshold=-1"], "must be a whole number from 0 to 5"),
        (["--threshold", "2.5"], "must be a whole number from 0 to 5"),
        (["--threshold", ""], "must be a whole number from 0 to 5"),
        (["--project", "nowhere"], "There is no project “nowhere”. Known: billing."),
        (["--pipeline", "nowhere"], "nowhere"),
        (["--ask", ""], "--ask: must not be empty"),
        (["--ask", "ann", "--ask", "a\tb\nc"], "--ask: must be one line"),
        (["--as", "eve"], "There is no user “eve”"),
        (["--as", "vic"], "does not allow this"),
    ],
)
def test_a_wrong_word_is_refused_and_makes_no_task(
    manage: Manage, project: Project, task_file: Path, words: list[str], told: str
) -> None:
    code, out, err = manage("run_task", task_file, "--project", "billing", "--as", "ann", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "rounding.md:1: the task has no text"),
        (b"---\ntitle: Nothing\n---\n\n", "the task has no text"),
        (b"---\ninteractionThreshold: 6\n---\nDo it.\n", "rounding.md:2: interactionThreshold must be"),
        (b"---\ninteractionThreshold: high\n---\nDo it.\n", "rounding.md:2: interactionThreshold must be"),
        (b"---\npipeline: nowhere\n---\nDo it.\n", "nowhere"),
        (b"---\ntitle: [\n---\nDo it.\n", "rounding.md:"),
        (b"---\nunclosed\n", "rounding.md:1: the front matter that begins here is never closed"),
        (b"caf\xe9\n", "rounding.md:1: this is not UTF-8 text"),
    ],
)
def test_a_bad_task_file_is_refused_with_file_and_line(
    manage: Manage, project: Project, task_file: Path, text: bytes, told: str
) -> None:
    task_file.write_bytes(text)
    code, out, err = manage("run_task", task_file, "--project", "billing", "--as", "ann", "--json")
    assert code == 2
    assert told in err
    assert json.loads(out) == {"error": err.strip().removeprefix("error: "), "exit_code": 2}
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["4711"], "There is no task 4711"),
        (["README.md"], "Name the project of the task: --project NAME."),
        (["1", "--new"], "--new is for a new task"),
        (["#1", "--threshold", "3"], "--threshold is for a new task"),
        (["1", "--ask", "ann"], "--ask is for a new task"),
        (["nothing.md", "--project", "billing"], "nothing.md: the task file cannot be read: No such file"),
        (["/", "--project", "billing"], "/: this is not a file"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(
    manage: Manage, project: Project, words: list[str], told: str
) -> None:
    code, _, err = manage("run_task", "--as", "ann", *words)
    assert code == 2
    assert told in err


def test_a_repository_that_has_gone_is_named(manage: Manage, project: Project, task_file: Path) -> None:
    Path(project.source).rename(project.source + "-moved")
    code, _, err = manage("run_task", task_file, "--project", "billing", "--as", "ann")
    assert code == 2
    assert project.source in err


class TestTheSameCommandAgain:
    """The same file goes on with its task as long as that has not ended."""

    @pytest.fixture
    def waiting(self) -> Task:
        return TaskFactory.create(
            slug="rounding-2", text="# Round\n", threshold=3, ask=["ann"], phase=Phase.WAITING_FOR_INPUT
        )

    def found(self, task: Task, **asked: object) -> Task | None:
        wanted = {"slug": "Rounding", "text": "# Round\n", "threshold": None, "pipeline": None, **asked}
        return find_unfinished_task(task.project, **wanted)  # type: ignore[arg-type]

    def test_it_is_found_by_name_and_text(self, waiting: Task) -> None:
        assert self.found(waiting) == waiting
        assert self.found(waiting, threshold=3, pipeline="default", ask=("ann",)) == waiting

    @pytest.mark.parametrize(
        "asked",
        [
            {"text": "# Round up\n"},
            {"slug": "round"},
            {"threshold": 5},
            {"pipeline": "other"},
            {"ask": ("bob",)},
        ],
        ids=str,
    )
    def test_anything_else_is_another_task(self, waiting: Task, asked: dict[str, object]) -> None:
        assert self.found(waiting, **asked) is None

    @pytest.mark.parametrize("phase", [Phase.DONE, Phase.FAILED, Phase.CANCELLED])
    def test_a_task_that_has_ended_is_not_taken_up(self, waiting: Task, phase: Phase) -> None:
        Task.objects.update(phase=phase)
        assert self.found(waiting) is None
