"""An existing `cat-herder.config.js` in the words of `cat-herder.yaml` (SPEC P1, P2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.config.check import FileExistsCheck, NoCheck, ShellCheck
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.importing import Exported, Imported, convert, to_yaml
from tasks_app.config.pipeline import ProjectConfig, load_project_config

ROOT = Path("/srv/shop")


def imported(**values: Any) -> Imported:
    return convert(Exported(values), repository=ROOT)


def config(**values: Any) -> ProjectConfig:
    """The settings as they are read back from the file that is written."""
    return load_project_config(to_yaml(imported(**values), source="cat-herder.config.js"))


def test_p1_every_key_that_both_know_is_carried_over() -> None:
    read = config(
        taskFolder="./work/tasks/",
        interactionThreshold=2,
        defaultPipeline="docs",
        manageGitBranch=False,
        autoCommit=True,
        waitForRateLimitReset=True,
        model="claude-opus-4-1",
        pipelines={
            "default": [
                {"name": "plan", "command": "plan-task", "check": {"type": "fileExists", "path": "PLAN.md"}},
                {
                    "name": "code",
                    "command": "implement",
                    "model": "sonnet",
                    "retry": 3,
                    "fileAccess": {"allowWrite": ["src/**/*"]},
                    "check": [
                        {"type": "none"},
                        {"type": "shell", "command": "npm test", "expect": "fail"},
                    ],
                },
            ],
            "docs": [{"name": "do", "command": "self"}],
        },
    )
    assert (read.task_folder, read.interaction_threshold, read.default_pipeline) == ("work/tasks", 2, "docs")
    assert (read.manage_git_branch, read.auto_commit, read.wait_for_rate_limit_reset) == (False, True, True)
    assert read.model == "claude-opus-4-1"
    plan, code = read.pipelines[0].steps
    assert plan.checks == (FileExistsCheck(type="fileExists", path="PLAN.md"),)
    assert code.checks == (
        NoCheck(type="none"),
        ShellCheck(type="shell", command="npm test", expect="fail"),
    )
    assert (code.retry, code.model, code.allow_write) == (3, "sonnet", ("src/**/*",))


def test_p1_the_old_name_of_the_threshold_counts_where_the_new_one_is_not() -> None:
    assert config(autonomyLevel=4).interaction_threshold == 4
    both = imported(autonomyLevel=4, interactionThreshold=1)
    assert both.settings == {"interactionThreshold": 1}
    assert both.notes == ("autonomyLevel 4: interactionThreshold says something else, and counts",)
    assert imported(autonomyLevel=1, interactionThreshold=1).notes == ()


def test_what_is_not_carried_over_is_reported_also_in_the_file() -> None:
    exported = Exported(
        {
            "statePath": "a",
            "logsPath": "b",
            "autocommit": True,
            "pipelines": {
                "default": [
                    {
                        "name": "do",
                        "command": "implement",
                        "retries": 2,
                        "fileAccess": {"allowWrite": [], "allowRead": []},
                        "check": {"type": "shell", "command": "x", "shell": "zsh"},
                    }
                ]
            },
        },
        dropped=("onEnd",),
    )
    result = convert(exported, repository=ROOT)
    assert result.notes == (
        "onEnd is no plain value (a function, say)",
        "statePath: state is kept in the portal's database",
        "logsPath: logs are kept in the portal's database",
        'autocommit is not known here; did you mean "autoCommit"?',
        'pipelines.default[0].retries is not known here; did you mean "retry"?',
        "pipelines.default[0].check[0].shell is not known here",
        'pipelines.default[0].fileAccess.allowRead is not known here; did you mean "allowWrite"?',
    )
    text = to_yaml(result, source="old.js")
    assert all(f"#   {note}\n" in text for note in result.notes)
    assert load_project_config(text).pipelines[0].steps[0].retry == 0


def test_several_files_in_one_check_become_several_checks() -> None:
    step = {"name": "do", "command": "self", "check": {"type": "fileExists", "path": ["a", "b"]}}
    checks = config(pipelines={"default": [step]}).pipelines[0].steps[0].checks
    assert [check.path for check in checks if isinstance(check, FileExistsCheck)] == ["a", "b"]


def test_steps_without_a_pipeline_become_the_default_one() -> None:
    result = imported(steps=[{"name": "do", "command": "self"}])
    assert result.settings == {"pipelines": {"default": [{"name": "do", "command": "self"}]}}
    assert result.notes == ('steps became the pipeline "default"',)


@pytest.mark.parametrize(
    ("folder", "written"),
    [("/srv/shop/work", "work"), ("./a/../b", "b"), ("/srv/other", "/srv/other"), ("../x", "../x")],
)
def test_a_folder_within_the_repository_becomes_relative(folder: str, written: str) -> None:
    assert imported(taskFolder=folder).settings["taskFolder"] == written


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"autonomyLevel": "high"}, "4: interactionThreshold must be a whole number from 0 to 5"),
        ({"taskFolder": "/etc"}, "4: taskFolder must be relative"),
        ({"pipelines": {"a": "b"}}, r"5: pipelines\.a must be a list"),
        ({"pipelines": {"a": [{"check": 7}]}}, r"check must be a list"),
        ({"pipelines": {"a": [3]}}, r"pipelines\.a\[0\] must be a mapping"),
    ],
)
def test_r5_invalid_values_stay_and_are_reported_by_the_line_of_the_new_file(
    values: dict[str, Any], fault: str
) -> None:
    text = to_yaml(imported(**values), source="old.js").replace("\n\n", "\n\n\n", 1)
    with pytest.raises(ConfigInvalid, match=fault):
        load_project_config(text)


def test_notes_cannot_break_out_of_their_comment() -> None:
    text = to_yaml(convert(Exported({"a\nmodel: x": 1}), repository=ROOT), source="old.js")
    assert load_project_config(text).model is None
