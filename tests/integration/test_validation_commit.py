"""Validation of a commit in a bare repository: the findings of its folder, and nothing followed (P1, R4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.config.validation import Report, validate, validate_commit
from tasks_app.config.validation.repository import laid_out
from tasks_app.git import Repository
from tests.integration.git_repository import GitRepository

PROMPTS = Path(__file__).parents[2] / "prompts"
CONFIG = """\
interactionThreshold: 2
taskFolder: tasks
pipelines:
  feature:
    - {name: plan, command: plann}
    - name: implement
      command: implement
      check:
        - {type: shell, command: ./run.sh}
        - {type: shell, command: ./tool/absent.sh}
        - {type: shell, command: npm run lint}
        - {type: shell, command: make chekc}
"""
FILES = {
    "cat-herder.yaml": CONFIG,
    "run.sh": "not executable",
    "package.json": '{"scripts": {"test": "x"}}',
    "Makefile": "check:\n\ttrue\n",
    ".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n',
    "assets/.gitattributes": "*.psd filter=lfs diff=lfs merge=lfs -text\n",
    "package-lock.json": "{}",
    "pyproject.toml": "[project]\nname = 'x'\n",
    ".nvmrc": "20\n",
    "tasks/one.md": "---\npipeline: none\n---\n# One",
    "tasks/deep/01-two.md": "---\nmodle: x\n---\n# Two",
    "src/elsewhere.py": "x = 1",
}


def committed(source: Path) -> Report:
    repository = fetched(source)
    return validate_commit(repository, repository.head("main"), prompts=PROMPTS)


def fetched(source: Path) -> Repository:
    repository = Repository(source.parent / f"{source.name}.git", str(source))
    repository.fetch()
    return repository


def test_p4_imports_of_imported_files_are_followed(tmp_path: Path) -> None:
    """As a folder's are: the page of a project says which of them agents do not get."""
    files = {"CLAUDE.md": "@docs/style.md\n", "docs/style.md": "@more.md\n", "docs/more.md": "@./gone.md\n"}
    source = GitRepository.make(tmp_path / "source", **files).path
    report = committed(source)
    assert report == validate(source, prompts=PROMPTS)
    assert "docs/more.md" in {one.file for one in report.findings}


def test_a_commit_has_the_findings_of_its_folder(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "source", **FILES).path
    report = committed(source)
    assert report == validate(source, prompts=PROMPTS)
    assert len(report.findings) >= 12
    lacking = {".gitmodules", "assets/.gitattributes", "package.json", "pyproject.toml", ".nvmrc"}
    assert lacking <= {one.file for one in report.warnings}  # M5


def test_links_that_lead_outside_are_reported_and_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "Makefile").write_text("root-password:\n\ttrue\n")
    repository = GitRepository.make(tmp_path / "source", **{"README.md": "x"})
    (repository.path / "build").symlink_to(secret)
    (repository.path / "up").symlink_to("../secret")
    (repository.path / "cat-herder-tasks").symlink_to("../../../../../..")
    text = "pipelines:\n  a:\n    - name: x\n      command: implement\n      check:\n"
    checks = [
        f"        - {{type: shell, command: make -C {place} root-pasword}}\n" for place in ("build", "up")
    ]
    repository.commit(**{"cat-herder.yaml": text + "".join(checks)})
    report = committed(repository.path)
    told = " ".join(one.problem.sentence for one in report.findings)
    assert "leads out of the repository" in told
    assert "root-password" not in told


@pytest.mark.parametrize(
    ("link", "target", "leads_out"),
    [
        ("a", "b", False),
        ("d/a", "../b", False),
        ("a", "../b", True),
        ("a", "d/../b", True),
        ("a", "/b", True),
    ],
)
def test_only_links_that_stay_inside_for_certain_are_kept(
    tmp_path: Path, link: str, target: str, leads_out: bool
) -> None:
    repository = GitRepository.make(tmp_path / "source", **{"d/x": "x", "b": "y"})
    (repository.path / link).symlink_to(target)
    repository.commit()
    bare = fetched(repository.path)
    with laid_out(bare, bare.head("main"), prompts=PROMPTS) as context:
        assert context.leads_out(context.root / link) == leads_out


def test_nothing_of_the_repository_is_run_or_left(tmp_path: Path) -> None:
    repository = GitRepository.make(tmp_path / "source", **FILES)
    (repository.path / ".gitattributes").write_text("* filter=evil export-subst\n")
    repository.commit()
    bare = fetched(repository.path)
    with laid_out(bare, bare.head("main"), prompts=PROMPTS) as context:
        assert (context.root / "cat-herder.yaml").read_text() == CONFIG
        assert not (context.root / "src").exists()
    assert not context.root.exists()
