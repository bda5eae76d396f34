"""What git says about a repository, without running anything of it (SPEC R4, R5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.config.validation import Report, validate
from tests.integration.git_repository import GitRepository

PROMPTS = Path(__file__).parents[2] / "prompts"


def report(root: Path) -> Report:
    return validate(root, prompts=PROMPTS)


def told(root: Path) -> list[str]:
    return [f"{one.severity} {one.file}: {one.problem.sentence}" for one in report(root).findings]


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "repository", README="Hello.\n")


def test_a_committed_repository_is_clean(repository: GitRepository) -> None:
    assert told(repository.path) == []


def test_r5_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    assert told(tmp_path) == [f"error : {tmp_path} is not the top folder of a git repository."]


def test_r5_a_folder_within_a_repository_is_not_its_top(repository: GitRepository) -> None:
    (repository.path / "sub").mkdir()
    (fault,) = told(repository.path / "sub")
    assert fault.endswith("is not the top folder of a git repository.")


def test_r5_a_repository_without_commits(tmp_path: Path) -> None:
    fresh = GitRepository.make(tmp_path / "fresh")
    assert told(fresh.path) == [f"error : {fresh.path}: the repository has no commit on its current branch."]


def test_r5_a_repository_on_no_branch(repository: GitRepository) -> None:
    repository.git("checkout", "--quiet", "--detach")
    (fault,) = told(repository.path)
    assert "on no branch (detached HEAD)" in fault


def test_r5_what_is_not_committed_is_a_warning_that_names_it(repository: GitRepository) -> None:
    for name in "abcdef":
        (repository.path / f"{name} ☃").write_text("")
    (repository.path / "README").write_text("Changed.\n")
    assert told(repository.path) == [
        "warning : not committed: README, a ☃, b ☃, c ☃, d ☃ and 2 more. Tasks start from the last commit "
        "and do not see this."
    ]
    assert report(repository.path).ok


def test_r5_settings_that_git_does_not_know_do_not_count(repository: GitRepository) -> None:
    repository.commit(**{".gitignore": "cat-herder.yaml\n"})
    (repository.path / "cat-herder.yaml").write_text("autoCommit: true\n")
    assert told(repository.path) == [
        "warning cat-herder.yaml: this file is not in git: tasks will work with the defaults"
    ]


def test_a_worktree_is_as_good_as_any(repository: GitRepository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "--quiet", str(tmp_path / "other"), "-b", "other")
    assert told(tmp_path / "other") == []


def test_r5_a_program_that_git_does_not_know_is_missing_in_a_clone(repository: GitRepository) -> None:
    config = "pipelines: {a: [{name: a, command: x, check: {type: shell, command: bin/check}}]}\n"
    (repository.path / ".claude" / "commands").mkdir(parents=True)
    (repository.path / ".claude" / "commands" / "x.md").write_text("Do.\n")
    repository.commit(**{"cat-herder.yaml": config, ".gitignore": "bin/\n.claude/\n"})
    (repository.path / "bin").mkdir()
    (repository.path / "bin" / "check").write_text("#!/bin/sh\n")
    (repository.path / "bin" / "check").chmod(0o755)
    assert told(repository.path) == [
        'warning cat-herder.yaml: pipelines.a[0].check.command runs "bin/check", which is not in git: '
        "a task's clone will not have it",
        "warning .claude/commands/x.md: this file is not in git: a task's clone will not have it",
    ]


def test_r4_looking_runs_nothing_that_the_repository_names(repository: GitRepository, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    repository.commit(**{".gitattributes": "* filter=trap diff=trap\n"})
    for name in ("filter.trap.clean", "filter.trap.process", "core.fsmonitor", "diff.trap.textconv"):
        repository.git("config", name, str(trap))
    repository.git("config", "filter.trap.required", "true")
    for hook in ("post-index-change", "fsmonitor-watchman"):
        (repository.path / ".git" / "hooks").mkdir(exist_ok=True)
        (repository.path / ".git" / "hooks" / hook).symlink_to(trap)
    (repository.path / "README").write_text("Jello.\n")
    (warned,) = told(repository.path)
    assert "not committed: README" in warned
    assert not (tmp_path / "sprung").exists()


def test_r5_a_listed_pattern_that_matches_no_file_is_a_warning(tmp_path: Path) -> None:
    """With its line. What a check of the step or a plan will make is no new file that nobody expects."""
    config = """\
askBefore: ["Bash(git push*)", "Read(secrets/**)", "Write(app/(group)/**)", "Write(/etc/**)"]
pipelines:
  default:
    - name: do
      command: implement
      check: {type: fileExists, path: docs/report.md}
      fileAccess:
        allowWrite:
          - app/[id]/**
          - app/[ib]/**
          - app
          - PLAN.md
          - docs/report.md
      askBefore: ["Edit(src/[0-9].py)"]
      allowedTools: [Read, "Write(app/[id]/page.tsx)", "Edit(app/page.tsx)"]
"""
    files = {"app/[id]/page.tsx": "", "app/(group)/page.tsx": "", "src/1.py": "", "cat-herder.yaml": config}
    made = GitRepository.make(tmp_path / "odd", **files)
    new_files = "and matches no file of the repository, which is right only for new files"
    step = "pipelines.default[0]"
    assert [(one.problem.line, one.problem.sentence) for one in report(made.path).warnings] == [
        (1, f'askBefore[1] is "secrets/**" {new_files}'),
        (10, f'{step}.fileAccess.allowWrite[1] is "app/[ib]/**" {new_files}'),
        (
            11,
            f'{step}.fileAccess.allowWrite[2] is "app" and matches no file of the repository; '
            'did you mean "app/"?',
        ),
        (15, f'{step}.allowedTools[2] is "app/page.tsx" {new_files}'),
    ]
