"""`cat-herder validate` as people and scripts run it (SPEC P1, P12, H12, R5)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tasks_app.config.pipeline import json_schema
from tasks_app.rehearsal.sample import create_sample_repository
from tests import forkserver
from tests.factories import ProjectFactory
from tests.forkserver import REPOSITORY
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository

BROKEN = "interactionThreshold: 7\nmodel: gpt-4\n"


@pytest.fixture
def validate(manage: Manage) -> Manage:
    return partial(manage, "validate")


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "shop", **{"cat-herder.yaml": BROKEN})


def test_errors_and_warnings_stand_apart_under_their_files(
    validate: Manage, repository: GitRepository
) -> None:
    code, out, _ = validate(repository.path)
    assert code == 1
    assert out == (
        "1 error:\n"
        "  cat-herder.yaml\n"
        "    cat-herder.yaml:1: interactionThreshold must be a whole number from 0 to 5, not 7\n"
        "\n"
        "1 warning:\n"
        "  cat-herder.yaml\n"
        '    cat-herder.yaml:2: model is "gpt-4", which is no model of a known family\n'
        "\n"
        f"1 error, 1 warning in {repository.path}: cat-herder.yaml, 1 pipeline, 2 steps, 0 task files.\n"
    )


def test_warnings_alone_are_no_failure(validate: Manage, repository: GitRepository) -> None:
    repository.commit(**{"cat-herder.yaml": "model: gpt-4\n"})
    assert validate(repository.path)[0] == 0


def test_the_sample_repository_is_clean(validate: Manage, tmp_path: Path) -> None:
    create_sample_repository(tmp_path / "sample")
    code, out, _ = validate(tmp_path / "sample")
    assert (code, out) == (
        0,
        f"No problems in {tmp_path}/sample: cat-herder.yaml, 2 pipelines, 4 steps, 1 task file.\n",
    )


def test_json_for_scripts(validate: Manage, repository: GitRepository) -> None:
    code, out, _ = validate(repository.path, "--json")
    facts = json.loads(out)
    assert (code, facts["ok"], facts["mended"]) == (1, False, [])
    assert [(one["file"], one["line"], one["key"], one["fixable"]) for one in facts["errors"]] == [
        ("cat-herder.yaml", 1, "interactionThreshold", False)
    ]
    assert [one["key"] for one in facts["warnings"]] == ["model"]


def test_h12_fix_adds_the_permission_and_says_to_commit_it(
    validate: Manage, repository: GitRepository
) -> None:
    repository.commit(**{"cat-herder.yaml": "interactionThreshold: 3\n"})
    assert validate(repository.path)[1].startswith("No problems")
    code, out, _ = validate(repository.path, "--fix")
    assert code == 0
    assert out.startswith("Fixed .claude/settings.json: the agent may ask. Commit it")
    assert "not committed: .claude/" in out
    repository.commit()
    assert validate(repository.path, "--fix", "--json")[:1] == (0,)
    assert validate(repository.path)[1].startswith("No problems")


def test_h12_a_file_without_the_permission_is_a_hint_and_no_fault(
    validate: Manage, repository: GitRepository
) -> None:
    (repository.path / ".claude").mkdir()
    (repository.path / ".claude" / "settings.json").write_text("{}\n")
    repository.commit(**{"cat-herder.yaml": "interactionThreshold: 3\n"})
    code, out, _ = validate(repository.path)
    assert code == 0 and "1 hint:" in out and "(--fix)" in out and "No problems in" in out
    facts = json.loads(validate(repository.path, "--json")[1])
    assert facts["ok"] and (facts["errors"], facts["warnings"]) == ([], [])
    assert [one["file"] for one in facts["hints"]] == [".claude/settings.json"]
    assert validate(repository.path, "--fix")[1].startswith("Fixed .claude/settings.json")


def test_r5_fix_leaves_broken_json_as_it_is(validate: Manage, repository: GitRepository) -> None:
    (repository.path / ".claude").mkdir()
    settings = repository.path / ".claude" / "settings.json"
    settings.write_text('{\n  "permissions": {,}\n}\n')
    repository.commit(**{"cat-herder.yaml": "interactionThreshold: 3\n"})
    code, out, _ = validate(repository.path, "--fix")
    assert code == 0
    assert "1 hint:" in out and ".claude/settings.json:2: this is not JSON: " in out
    assert settings.read_text() == '{\n  "permissions": {,}\n}\n'


@pytest.mark.django_db
def test_a_project_is_found_by_its_name(validate: Manage, repository: GitRepository) -> None:
    ProjectFactory.create(name="shop", source=str(repository.path))
    code, out, _ = validate("shop")
    assert code == 1
    assert f"in {repository.path}:" in out


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["no-such-place", "/etc/hostname"])
def test_r5_a_path_that_is_not_a_folder_is_wrong_use(validate: Manage, path: str) -> None:
    code, _, err = validate(path)
    assert code == 2
    assert path in err
    assert "folder" in err


def test_a_bare_repository_is_looked_at_in_a_copy(
    validate: Manage, repository: GitRepository, tmp_path: Path
) -> None:
    repository.commit(**{"cat-herder.yaml": "interactionThreshold: 3\n"})
    bare = tmp_path / "bare.git"
    repository.git("clone", "--quiet", "--bare", str(repository.path), str(bare))
    code, out, _ = validate(bare)
    assert code == 0
    assert f"No problems in {bare}:" in out
    code, _, err = validate(bare, "--fix")
    assert code == 2
    assert "fix it in a clone" in err


def test_r5_an_address_that_is_not_there_is_wrong_use(validate: Manage) -> None:
    code, _, err = validate("https://127.0.0.1:9/shop.git")
    assert code == 2
    assert "127.0.0.1" in err


def test_p1_the_schema_is_printed_for_editors(validate: Manage) -> None:
    code, out, _ = validate("--schema")
    assert (code, json.loads(out)) == (0, json_schema())


def test_no_portal_is_needed(tmp_path: Path, repository: GitRepository) -> None:
    """Without PATH, the repository in the folder where one stands; before anything was set up."""
    env = {"PATH": "/usr/bin:/bin", "CATHERDER_DATA_DIR": str(tmp_path / "nothing-here-yet")}
    done = forkserver.run([str(REPOSITORY / "manage.py"), "validate"], env, cwd=repository.path)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"1 error, 1 warning in {repository.path}" in done.stdout
    missing = forkserver.run(["manage.py", "validate", "no-such-project"], env)
    assert missing.returncode == 2
    assert "no-such-project: there is no such folder, and no project of that name" in missing.stderr
