"""P9: branches, checkpoints, and workspaces that are cleaned away."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.models import Task, paths
from tasks_app.sandbox import Limits, Sandbox
from tasks_app.services.tasks import cancel_task, resume_task
from tests.fake_script import Turn, ask, say, shell, write
from tests.people import acting
from tests.runner import ONE_STEP, TWO_STEPS, Runner, file_in

pytestmark = pytest.mark.django_db(transaction=True)

PLAY = {
    "plan": [Turn(calls=(write("PLAN.md", "blue"),)), say("Planned.")],
    "implement": [Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")],
}
LONG_AGO = timedelta(days=30)
FORTNIGHT = timedelta(days=14)


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def source_refs(task: Task) -> str:
    return git(Path(task.project.source), "for-each-ref")


def end_long_ago(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(ended_at=timezone.now() - LONG_AGO)


def cleaned(**more: bool) -> list[tuple[int, bool]]:
    """The tasks that were looked at, and whether each workspace was kept."""
    found = clean_workspaces(older_than=FORTNIGHT, sandbox=Sandbox(None), **more)
    return [(one.task.pk, bool(one.kept)) for one in found]


def test_auto_commit_makes_a_checkpoint_of_each_step_on_the_tasks_branch(runner: Runner) -> None:
    task = runner.task(PLAY, config="autoCommit: true\n" + TWO_STEPS)
    before = source_refs(task)
    assert runner.advance(task).phase == Phase.DONE
    workspace = paths.workspace(task).path
    subjects = git(workspace, "log", "--format=%s", f"{task.base_commit}..HEAD").splitlines()
    assert subjects == ["chore(implement): checkpoint", "chore(plan): checkpoint"]
    assert git(workspace, "branch", "--show-current") == task.branch
    assert git(workspace, "status", "--porcelain") == ""
    bare = paths.repository(task.project).path
    assert git(bare, "rev-parse", task.branch) == git(workspace, "rev-parse", "HEAD")
    assert source_refs(task) == before, "nothing is pushed"


def test_the_commit_of_a_task_names_no_step_because_it_holds_the_work_of_all(runner: Runner) -> None:
    task = runner.task(PLAY, config=TWO_STEPS)
    assert runner.advance(task).phase == Phase.DONE
    bare = paths.repository(task.project).path
    assert git(bare, "log", "-1", "--format=%B", task.branch).strip() == task.title


HALTS_IN_BOTH = {
    name: [
        Turn(calls=(write(f"{name}-1.txt", "1"), write(f"{name}.log", "ignored"))),
        Turn("A question.", (ask("Which colour?"),)),
        Turn(calls=(write(f"{name}-2.txt", "2"),)),
        say("Done."),
    ]
    for name in ("plan", "implement")
}


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("lost", ["workspace", ".git"])
def test_a_step_whose_workspace_is_lost_after_a_halt_is_one_commit(
    runner: Runner, lost: str, auto_commit: bool
) -> None:
    """R2. Another host makes the workspace anew, or its `.git` was destroyed."""
    config = f"autoCommit: {str(auto_commit).lower()}\n{TWO_STEPS}"
    task = runner.task(HALTS_IN_BOTH, config=config)
    for _ in range(2):
        assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
        workspace = paths.workspace(task).path
        shutil.rmtree(workspace if lost == "workspace" else workspace / ".git")
        runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    bare = paths.repository(task.project).path
    subjects = git(bare, "log", "--format=%s", f"{task.base_commit}..{task.branch}").splitlines()
    assert subjects == (
        ["chore(implement): checkpoint", "chore(plan): checkpoint"] if auto_commit else [task.title]
    )
    names = git(bare, "ls-tree", "--name-only", task.branch).split()
    assert {f"{name}-{n}.txt" for name in HALTS_IN_BOTH for n in (1, 2)} <= {*names}


def test_what_the_agent_committed_itself_stays_a_commit(runner: Runner) -> None:
    """Its workspace is lost after the halt; what it had not committed is one commit with the rest."""
    own = "git add -A && git -c user.name=Al -c user.email=al@example.org commit -qm 'Mine'"
    play = [
        Turn(calls=(write("one.txt", "1"), shell(own), write("two.txt", "2"))),
        Turn("A question.", (ask("Which colour?"),)),
        Turn(calls=(write("three.txt", "3"),)),
        say("Done."),
    ]
    task = runner.task(play, config="autoCommit: true\n" + ONE_STEP)
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    shutil.rmtree(paths.workspace(task).path)
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    bare = paths.repository(task.project).path
    subjects = git(bare, "log", "--format=%s", f"{task.base_commit}..{task.branch}").splitlines()
    assert subjects == ["chore(do): checkpoint", "Mine"]


def test_without_auto_commit_the_agents_branch_and_index_are_its_own(runner: Runner) -> None:
    task = runner.task(PLAY, config="publishPlan: true\n" + TWO_STEPS)
    runner.advance(task)
    workspace = paths.workspace(task).path
    assert git(workspace, "rev-parse", "HEAD") == task.base_commit
    assert "?? PLAN.md" in git(workspace, "status", "--porcelain")
    published = git(paths.repository(task.project).path, "ls-tree", "--name-only", task.branch)
    assert {"PLAN.md", "paint.txt"} <= set(published.splitlines())


def test_without_a_managed_branch_the_projects_own_is_checked_out_and_never_moved(runner: Runner) -> None:
    task = runner.task(PLAY, config="manageGitBranch: false\nautoCommit: true\n" + TWO_STEPS)
    before = source_refs(task)
    runner.advance(task)
    assert git(paths.workspace(task).path, "branch", "--show-current") == task.project.branch
    bare = paths.repository(task.project).path
    assert git(bare, "for-each-ref", "--format=%(refname)", "refs/heads") == f"refs/heads/{task.branch}"
    assert source_refs(task) == before


def test_old_workspaces_go_and_what_nobody_judged_is_kept_beside_the_result(runner: Runner) -> None:
    """The branch of a task that is done stays the tree that was judged."""
    task = runner.advance(runner.task(PLAY, config=TWO_STEPS))
    file_in(task, "late.txt").write_text("written after the last run")
    end_long_ago(task)
    assert cleaned(dry_run=True) == [(task.pk, False)]
    assert paths.workspace(task).path.exists()
    (one,) = clean_workspaces(older_than=FORTNIGHT, sandbox=Sandbox(None))
    assert not one.kept and not paths.workspace(task).path.exists()
    bare = paths.repository(task.project).path
    assert git(bare, "rev-parse", task.branch) == task.head_commit
    assert "+written after the last run" in git(bare, *shlex.split(one.late)[3:])
    assert cleaned() == []


def test_what_a_task_that_is_not_done_left_becomes_its_result(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Which?"),)), say("Done.")]))
    cancel_task(task, by=acting(runner.user))
    file_in(task, "late.txt").write_text("written after the last run")
    end_long_ago(task)
    assert cleaned() == [(task.pk, False)]
    bare = paths.repository(task.project).path
    assert git(bare, "show", f"{task.branch}:late.txt") == "written after the last run"


def test_workspaces_of_young_and_of_waiting_tasks_stay(runner: Runner) -> None:
    young = runner.advance(runner.task(PLAY, config=TWO_STEPS))
    waiting = runner.advance(runner.task([Turn(calls=(ask("Which?"),)), say("Done.")]))
    assert waiting.phase == Phase.WAITING_FOR_INPUT
    Task.objects.filter(pk=waiting.pk).update(created_at=timezone.now() - LONG_AGO)
    assert cleaned() == []
    assert paths.workspace(young).path.exists() and paths.workspace(waiting).path.exists()


def test_a_workspace_that_cannot_be_recorded_is_kept(runner: Runner) -> None:
    task = runner.advance(runner.task(PLAY, config=TWO_STEPS))
    file_in(task, ".GIT").mkdir()  # git takes no file in it
    file_in(task, ".GIT/x").touch()
    end_long_ago(task)
    assert cleaned() == [(task.pk, True)]
    assert file_in(task, "paint.txt").exists()


def test_nothing_outside_the_data_directory_is_removed(runner: Runner, tmp_path: Path) -> None:
    """A link where the home was leads to somebody's files."""
    task = runner.advance(runner.task(PLAY, config=TWO_STEPS))
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "diary.txt").write_text("mine")
    home = paths.home(task)
    home.rename(home.with_name("old-home"))
    home.symlink_to(precious)
    end_long_ago(task)
    assert cleaned() == [(task.pk, True)]
    assert (precious / "diary.txt").read_text() == "mine"


def test_a_disk_that_is_too_full_for_agents_is_cleaned(runner: Runner) -> None:
    """The error that agents get there says that this command helps."""
    task = runner.advance(runner.task(PLAY, config=TWO_STEPS))
    file_in(task, "late.txt").write_text("x")
    end_long_ago(task)
    full = Sandbox(None).with_limits(Limits(free_disk=10**18), cgroup=None)
    (one,) = clean_workspaces(older_than=FORTNIGHT, sandbox=full)
    assert not one.kept and not paths.workspace(task).path.exists()


def test_a_task_whose_workspace_was_cleaned_resumes_from_the_recording(runner: Runner) -> None:
    play = {**PLAY, "implement": [Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")]}
    config = TWO_STEPS + '      check: {type: shell, command: "test -e never"}\n'
    task = runner.advance(runner.task(play, config=config))
    assert task.phase == Phase.FAILED
    end_long_ago(task)
    assert cleaned() == [(task.pk, False)]
    resume_task(task, by=acting(runner.user), notify=False)
    runner.advance(task)
    assert file_in(task, "PLAN.md").read_text() == "blue"
