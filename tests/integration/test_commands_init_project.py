"""`cat-herder init_project`: a repository gets what tasks need and keeps what it has (P1, P12, R4, R5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks_app.config.pipeline import load_project_config
from tasks_app.config.task_file import read_task_file
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "shop", README="Hello.\n")


def files(repository: GitRepository) -> dict[str, bytes]:
    found = (path for path in repository.path.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(repository.path)): path.read_bytes() for path in found}


class TestMaking:
    def test_what_is_made_has_no_faults_and_no_warnings_once_committed(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        code, out, _ = manage("init_project", repository.path, "--prompts", "--schema")
        assert code == 0
        assert f"No problems in {repository.path}: cat-herder.yaml, 2 pipelines, 4 steps, 1 task file." in out
        assert out.endswith(f"cat-herder project add shop {repository.path}\n")
        for line in out.splitlines():
            if line.startswith("  git -C"):
                repository.git(*line.split('"')[0].split()[3:], *line.split('"')[1:2])
        assert set(files(repository)) == {
            "README",
            "cat-herder.yaml",
            "cat-herder.schema.json",
            "cat-herder-tasks/tests-in-the-readme.md",
            ".claude/settings.json",
            *(
                f".claude/commands/{name}.md"
                for name in ("docs-update", "implement", "plan-task", "self-review", "write-tests")
            ),
        }
        assert manage("validate", repository.path) == (
            0,
            f"No problems in {repository.path}: cat-herder.yaml, 2 pipelines, 4 steps, 1 task file.\n",
            "",
        )

    def test_the_first_task_can_be_run_as_it_is(self, manage: Manage, repository: GitRepository) -> None:
        manage("init_project", repository.path)
        _, task = read_task_file(repository.path / "cat-herder-tasks" / "tests-in-the-readme.md")
        assert (task.title, task.pipeline, task.threshold) == (
            "Say in the README how to run the tests",
            "quick",
            4,
        )

    def test_an_editor_finds_the_schema_without_a_network(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        manage("init_project", repository.path, "--schema")
        first = (repository.path / "cat-herder.yaml").read_text().splitlines()[0]
        assert first == "# yaml-language-server: $schema=cat-herder.schema.json"
        assert json.loads((repository.path / "cat-herder.schema.json").read_text())["title"]

    def test_the_repositorys_own_tests_become_the_check(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        repository.commit(Makefile="test:\n\ttrue\n")
        manage("init_project", repository.path)
        config = load_project_config((repository.path / "cat-herder.yaml").read_text())
        assert [check.type for check in config.pipelines[0].steps[1].checks] == ["shell"]
        assert "command: make test}" in (repository.path / "cat-herder.yaml").read_text()

    def test_nothing_that_is_there_is_changed(self, manage: Manage, repository: GitRepository) -> None:
        """Twice the same; then with other files in place of each."""
        manage("init_project", repository.path, "--prompts")
        before = files(repository)
        code, out, _ = manage("init_project", repository.path, "--prompts", "--json")
        facts = json.loads(out)
        assert (code, {one["outcome"] for one in facts["files"]}) == (0, {"there already"})
        assert files(repository) == before

        for name in before:
            (repository.path / name).write_text("{}")
        code, out, _ = manage("init_project", repository.path, "--prompts")
        assert set(files(repository).values()) == {b"{}"}
        assert "left alone  cat-herder.yaml" in out
        assert "left alone  .claude/settings.json (`cat-herder validate --fix` adds what it lacks)" in out

    def test_tasks_that_are_there_get_no_sample_beside_them(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        repository.commit(**{"cat-herder.yaml": "taskFolder: work\ninteractionThreshold: 1\n"})
        (repository.path / "work").mkdir()
        (repository.path / "work" / "mine.md").write_text("Do it.\n")
        code, out, _ = manage("init_project", repository.path)
        assert code == 0
        assert "there already  work/tests-in-the-readme.md (there are tasks in that folder)" in out
        assert "made           .claude/settings.json" in out
        assert not (repository.path / "work" / "tests-in-the-readme.md").exists()

    def test_a_dry_run_writes_nothing(self, manage: Manage, repository: GitRepository) -> None:
        before = files(repository)
        code, out, _ = manage("init_project", repository.path, "--dry-run", "--prompts")
        assert (code, files(repository)) == (0, before)
        assert "made  cat-herder.yaml" in out
        assert out.endswith("A dry run: nothing was written.\n")
        assert "would be made  cat-herder.yaml" in out and "\n  made" not in out

    def test_a_repository_without_commits_is_welcome(self, manage: Manage, tmp_path: Path) -> None:
        fresh = GitRepository.make(tmp_path / "fresh")
        assert manage("init_project", fresh.path)[0] == 0

    def test_r5_a_folder_without_git_is_refused_unless_forced(self, manage: Manage, tmp_path: Path) -> None:
        code, _, err = manage("init_project", tmp_path)
        assert code == 2
        assert "is not the top folder of a git repository; use --force to continue" in err
        assert list(tmp_path.iterdir()) == []
        assert manage("init_project", tmp_path, "--force")[0] == 0
        assert (tmp_path / "cat-herder.yaml").exists()

    def test_r4_links_are_not_followed_out_of_the_repository(
        self, manage: Manage, repository: GitRepository, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").mkdir()
        (repository.path / ".claude").symlink_to(tmp_path / "outside")
        (repository.path / "cat-herder-tasks").symlink_to(tmp_path / "outside")
        code, _, err = manage("init_project", repository.path)
        assert code == 2
        assert "leads out of the repository" in err
        assert list((tmp_path / "outside").iterdir()) == []

    def test_existing_errors_are_reported_and_fail(self, manage: Manage, repository: GitRepository) -> None:
        repository.commit(**{"cat-herder.yaml": "model: 3\n"})
        code, out, _ = manage("init_project", repository.path)
        assert code == 1
        assert "cat-herder.yaml:1: model must be text, not 3" in out
        assert f"cat-herder validate {repository.path}" in out
