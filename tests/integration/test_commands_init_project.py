"""`manage.py init_project`: a repository gets what tasks need and keeps what it has (P1, P12, R4, R5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks_app.config.importing import read_exported
from tasks_app.config.pipeline import load_project_config
from tasks_app.config.task_file import read_task_file
from tasks_app.core.errors import BadInput
from tasks_app.management.commands import init_project
from tasks_app.sandbox import Sandbox, SandboxMode, detect
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository

COMMON_JS = """\
const path = require("node:path");
console.log("loading …");
module.exports = {
  taskFolder: path.join(__dirname, "work"),
  autonomyLevel: 4,
  logsPath: ".logs",
  onEnd() {},
  pipelines: { default: [{ name: "do", command: "self" }] },
};
"""
ES_MODULE = 'import { level } from "./level.mjs";\nexport default { interactionThreshold: level };\n'


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
        assert out.endswith(f"manage.py project add shop {repository.path}\n")
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
        assert "left alone  .claude/settings.json (`manage.py validate --fix` adds what it lacks)" in out

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
        assert f"manage.py validate {repository.path}" in out


@pytest.mark.node
class TestImporting:
    @pytest.fixture(params=["open", pytest.param("sandboxed", marks=pytest.mark.bubblewrap)])
    def sandbox(self, request: pytest.FixtureRequest) -> Sandbox:
        return detect(SandboxMode.AUTO) if request.param == "sandboxed" else Sandbox(None, "for this test")

    @pytest.fixture
    def read(self, repository: GitRepository, sandbox: Sandbox) -> Callable[..., Any]:
        """What a file exports."""

        def run(text: str, *, name: str = "cat-herder.config.js", timeout: float = 30) -> Any:
            path = repository.path / name
            path.write_text(text)
            return read_exported(path, repository=repository.path, sandbox=sandbox, timeout=timeout)

        return run

    def test_common_js(self, read: Callable[..., Any], repository: GitRepository) -> None:
        exported = read(COMMON_JS)
        assert exported.values["taskFolder"] == str(repository.path / "work")
        assert exported.values["autonomyLevel"] == 4
        assert exported.dropped == ("onEnd",)

    @pytest.mark.parametrize(
        ("name", "package"),
        [
            ("cat-herder.config.mjs", None),
            ("cat-herder.config.js", '{"type": "module"}'),
        ],
    )
    def test_an_es_module_with_imports(
        self, read: Callable[..., Any], repository: GitRepository, name: str, package: str | None
    ) -> None:
        (repository.path / "level.mjs").write_text("export const level = 3;\n")
        if package:
            (repository.path / "package.json").write_text(package)
        assert read(ES_MODULE, name=name).values == {"interactionThreshold": 3}

    @pytest.mark.parametrize(
        ("text", "package"),
        [
            ("export default { autoCommit: true };", '{"type": "commonjs"}'),
            ("module.exports = { autoCommit: true };", '{"type": "module"}'),
            ("exports.default = { autoCommit: true }; exports.__esModule = true;", "{}"),
            ("export const autoCommit = true;", '{"type": "module"}'),
            ("module.exports = Promise.resolve({ autoCommit: true });", "{}"),
        ],
    )
    def test_the_other_kind_of_module_than_package_json_says(
        self, read: Callable[..., Any], repository: GitRepository, text: str, package: str
    ) -> None:
        (repository.path / "package.json").write_text(package)
        assert read(text).values == {"autoCommit": True}

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ('\n\nthrow new Error("no luck");', r"config\.js:3: it fails with Error: no luck"),
            ("module.exports = {\n  a: 1,\n  b:: 2\n};", r"config\.js:3: it fails with SyntaxError"),
            ("require('no-such-package')", r"it fails with Error: Cannot find module 'no-such-package'"),
            ("process.stdout.write('garbage'); process.exit(3);", r'ended \(exit 3\).*: "garbage"'),
            ("process.kill(process.pid, 'SIGKILL');", r"ended \(exit 137\).*: \"it said nothing\""),
            ("module.exports = () => ({});", "must export an object with settings, not function"),
            ("module.exports = [1];", "must export an object with settings, not a list"),
            ("module.exports = null;", "must export an object with settings, not null"),
            ("console.log('{}');", "it exports nothing"),
            ("const a = {}; a.a = a; module.exports = a;", "nested too deeply, or contains itself"),
        ],
    )
    def test_r5_a_file_that_exports_no_settings(
        self, read: Callable[..., Any], text: str, fault: str
    ) -> None:
        with pytest.raises(BadInput, match=fault):
            read(text)

    @pytest.mark.parametrize(
        "text", ["for (;;) {}", "module.exports = new Promise(() => setInterval(() => {}, 9));"]
    )
    def test_r5_a_file_that_hangs(self, read: Callable[..., Any], text: str) -> None:
        with pytest.raises(BadInput, match=r"config\.js: it did not end within 1 seconds"):
            read(text, timeout=1)

    def test_timers_that_are_left_do_not_hold_it_up(self, read: Callable[..., Any]) -> None:
        assert read("setInterval(() => {}, 1000); module.exports = { model: 'opus' };").values

    @pytest.mark.bubblewrap
    def test_r4_in_the_sandbox_it_sees_the_repository_and_can_write_nowhere(
        self, repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "secret").write_text("secret")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
        path = repository.path / "cat-herder.config.js"
        path.write_text(
            f"""
const fs = require("fs");
const tried = (what) => {{ try {{ return String(what()); }} catch (error) {{ return error.code; }} }};
module.exports = {{
  model: tried(() => fs.readFileSync({str(tmp_path / "secret")!r}, "utf8")),
  taskFolder: tried(() => fs.writeFileSync(__dirname + "/new", "x")),
  defaultPipeline: String(process.env.ANTHROPIC_API_KEY),
  readme: tried(() => fs.readFileSync(__dirname + "/README", "utf8")),
}};
"""
        )
        exported = read_exported(path, repository=repository.path, sandbox=detect(SandboxMode.AUTO))
        assert exported.values == {
            "model": "ENOENT",
            "taskFolder": "EROFS",
            "defaultPipeline": "undefined",
            "readme": "Hello.\n",
        }
        assert not (repository.path / "new").exists()

    @pytest.mark.bubblewrap
    def test_the_command_writes_it_and_says_what_is_lost(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        repository.commit(**{"cat-herder.config.js": COMMON_JS})
        code, out, _ = manage("init_project", repository.path, "--import", "cat-herder.config.js")
        assert code == 0
        assert "Not carried over as it was:\n  onEnd is no plain value (a function, say)\n  logsPath:" in out
        config = load_project_config((repository.path / "cat-herder.yaml").read_text())
        assert (config.task_folder, config.interaction_threshold) == ("work", 4)
        assert (repository.path / "work" / "tests-in-the-readme.md").is_file()
        assert "No problems" in out

    def test_r4_without_a_sandbox_it_is_run_only_if_trusted(
        self, manage: Manage, repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(init_project, "detect", lambda mode, hidden: Sandbox(None, "There is none."))
        repository.commit(
            **{
                "old.js": f'require("fs").writeFileSync({str(tmp_path / "ran")!r}, "");\n'
                'module.exports = {model: "opus"};\n'
            }
        )
        words = ("init_project", repository.path, "--import", "old.js")
        code, _, err = manage(*words)
        assert code == 2
        assert "there is no sandbox to run it in (There is none). Read it, then use --trust" in err
        assert not (tmp_path / "ran").exists()
        assert not (repository.path / "cat-herder.yaml").exists()
        assert manage(*words, "--trust")[0] == 0
        assert (tmp_path / "ran").exists()

    def test_r5_settings_that_are_there_are_left_alone(
        self, manage: Manage, repository: GitRepository
    ) -> None:
        repository.commit(**{"old.js": "module.exports = {autoCommit: true}", "cat-herder.yaml": "# mine\n"})
        _, out, _ = manage("init_project", repository.path, "--import", "old.js", "--trust")
        assert "left alone  cat-herder.yaml" in out
        assert (repository.path / "cat-herder.yaml").read_text() == "# mine\n"


def test_r5_a_file_to_import_that_is_not_there(manage: Manage, repository: GitRepository) -> None:
    code, _, err = manage("init_project", repository.path, "--import", "no.js")
    assert code == 2
    assert "no.js: there is no such file to import" in err


def test_r5_without_node_that_is_reported(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    repository_file = repository.path / "README"
    with pytest.raises(BadInput, match="node is needed to read this file, and it is not installed"):
        read_exported(repository_file, repository=repository.path, sandbox=Sandbox(None))
