"""R1, R3, P7: nothing is done that is not recorded, and what the workspace holds beside it is said."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.git import recording
from tasks_app.git.durable import Remembered, fingerprint
from tasks_app.git.recording import record
from tasks_app.models import Event, Run, Task, paths
from tasks_app.sandbox import Sandbox
from tasks_app.schemas.tasks import TaskOut
from tasks_app.services.bulk import retry_from
from tasks_app.services.sequences import create_sequence, start_sequence
from tasks_app.services.tasks import resume_task
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Call, End, Turn, ask, say, shell, write
from tests.people import acting
from tests.runner import Runner, diff_of, file_in

pytestmark = pytest.mark.django_db(transaction=True)

RETRY = "pipelines: {default: [{name: do, command: self, retry: 1}]}\n"
GUARDED = """\
pipelines:
  default:
    - name: first
      command: implement
      check: {type: shell, command: "mkdir -p build && date +%N > build/out"}
    - name: second
      command: implement
      fileAccess: {allowWrite: ["docs/**"]}
"""


def git(where: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True, text=True).stdout


def published(task: Task) -> set[str]:
    return set(git(paths.repository(task.project).path, "ls-tree", "-r", "--name-only", task.branch).split())


def told(task: Task) -> str:
    events = Event.objects.filter(run__step__task=task, kind__in=["note", "error"]).order_by("run", "seq")
    return "\n".join(event.payload["text"] for event in events)


def unrecordable() -> Call:
    """git takes no such name, so nothing can record it."""
    return shell("mkdir -p .GIT && echo x > .GIT/x")


@pytest.mark.parametrize("then", ["", " && git -C sub add . && git -C sub commit -qm one"])
def test_the_files_of_a_nested_repository_are_published(runner: Runner, then: str) -> None:
    """Without a commit of its own, and with one; also one within it, and its own ignore rules."""
    making = (
        "git init -q sub && cd sub && git config user.email a@b && git config user.name a && echo s > s.txt"
        " && echo '*.tmp' > .gitignore && echo t > t.tmp && echo l > x.log && git init -q deep"
        " && echo d > deep/d.txt && cd .."
    )
    project = runner.project(**{".gitignore": "*.log\n"})
    task = runner.task([Turn(calls=(shell(making + then),)), say("Done.")], project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert {"sub/s.txt", "sub/.gitignore", "sub/deep/d.txt"} <= published(task)
    assert not {"sub/t.tmp", "sub/x.log", "sub"} & published(task)
    assert "+s\n" in diff_of(task)
    assert "Nested repositories (sub/" in told(task)
    assert (
        any("Nested" in note for note in task.left_out) and TaskOut.from_row(task).left_out == task.left_out
    )


def test_a_later_step_sees_changes_in_a_nested_repository(runner: Runner) -> None:
    steps = "[{name: a, command: implement}, {name: b, command: implement}]"
    config = f"autoCommit: true\npipelines: {{default: {steps}}}\n"
    play = {
        "a": [Turn(calls=(shell("git init -q sub && echo 1 > sub/one"),)), say("Done.")],
        "b": [Turn(calls=(shell("echo 2 > sub/one; echo 2 > sub/two"),)), say("Done.")],
    }
    task = runner.advance(runner.task(play, config=config))
    assert task.phase == Phase.DONE
    assert {"sub/one", "sub/two"} <= published(task)
    assert git(paths.repository(task.project).path, "show", f"{task.branch}:sub/one") == "2\n"


def test_edits_and_commits_in_a_submodule_are_named_as_not_carried(runner: Runner) -> None:
    project = runner.project()
    source = Path(project.source)
    library = runner.folder / "library"
    git(runner.folder, "init", "-q", str(library))
    git(library, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one")
    allow = ("-c", "protocol.file.allow=always")
    git(source, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git(source, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "lib")
    paths.repository(project).fetch()
    project.refresh_from_db()
    change = (
        "git -c protocol.file.allow=always submodule --quiet update --init && cd lib && echo e > edited"
        " && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m own"
    )
    task = runner.task([Turn(calls=(shell(change),)), say("Done.")], project=project)
    runner.advance(task)
    lost = "Submodule lib: 1 changed or new files and 1 commits that no remote has"
    assert lost in told(task)
    assert any(note.startswith(lost) for note in task.left_out)
    before = git(source, "rev-parse", "HEAD:lib")
    assert git(paths.repository(project).path, "rev-parse", f"{task.branch}:lib") == before
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (one,) = clean_workspaces(older_than=timedelta(days=14), sandbox=Sandbox(None))
    assert "Submodule lib" in one.kept and file_in(task, "lib/edited").exists()


ELSEWHERE = {
    "a stash": ("echo s >> cat-herder.yaml; git stash -q", "stash"),
    "another branch": (
        "git checkout -qb idea; git commit -q --allow-empty -m one; git checkout -q -",
        "idea",
    ),
    "a tag": (
        "git checkout -q --detach; git commit -q --allow-empty -m one; git tag old; git checkout -q -",
        "old",
    ),
    "one within a nested repository": (
        "git init -q a; git init -q a/b; cd a/b; git commit -q --allow-empty -m one; echo > x",
        "a/b/",
    ),
    "a nested repository": ("git init -q sub; cd sub; git commit -q --allow-empty -m one; echo > x", "sub/"),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_workspace_with_history_that_is_nowhere_else_is_not_cleaned(runner: Runner, kind: str) -> None:
    """It is said on the page from the beginning, and cleaning names the folder."""
    command, named = ELSEWHERE[kind]
    me = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
    task = runner.advance(runner.task([Turn(calls=(shell(me + command),)), say("Done.")]))
    assert task.phase == Phase.DONE
    note = task.left_out[0]
    assert named in note and note in told(task)
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (one,) = clean_workspaces(older_than=timedelta(days=14), sandbox=Sandbox(None))
    assert note in one.kept and f"remove {one.path}" in one.kept and one.path.exists()


def test_v1_a_tag_is_said_not_to_be_part_of_the_result(runner: Runner) -> None:
    """A human had approved `git tag`, and nothing said that only the branch leaves the workspace."""
    task = runner.advance(runner.task([Turn(calls=(shell("git tag v2.0; git tag old"),)), say("Tagged.")]))
    (note,) = task.left_out
    assert "old, v2.0" in note and note in told(task)


def test_history_that_is_elsewhere_keeps_no_workspace(runner: Runner) -> None:
    """Branches that HEAD reaches, a clone of another repository, also a shallow one."""
    source = runner.folder / "library"
    git(runner.folder, "init", "-q", str(source))
    for number in "12":
        git(
            source, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", number
        )
    clones = f"git clone -q {source} whole; git clone -q --depth 1 file://{source} cut"
    play = f"git branch old; {clones}; echo > cut/x"
    task = runner.advance(runner.task([Turn(calls=(shell(play),)), say("Done.")]))
    assert "cut/x" in published(task)
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (one,) = clean_workspaces(older_than=timedelta(days=14), sandbox=Sandbox(None))
    assert not one.kept and not one.path.exists()


def test_a_guard_that_cannot_see_ignored_files_says_so(runner: Runner) -> None:
    """P7: their list before the step could not be made, for what the task before it left."""
    config = """\
pipelines:
  default: [{name: do, command: implement, check: {type: shell, command: "mkdir .GIT && touch .GIT/x"}}]
  guarded: [{name: do, command: implement, fileAccess: {allowWrite: ["docs/**"]}}]
"""
    second = "---\npipeline: guarded\n---\n# Second\n"
    files = {"tasks/01-first.md": "# First\n", "tasks/02-second.md": second}
    project = runner.project(config, **files)
    mends = [Turn(calls=(shell("rm -r .GIT; mkdir docs; echo > docs/a"),)), say("Done.")]
    runner.agent = FakeAgent(lambda prompt: mends if "# Second" in prompt else [say("Done.")])
    sequence = create_sequence(project, "tasks", by=acting(runner.user))
    start_sequence(sequence, by=acting(runner.user))
    while due := Task.objects.due().first():
        runner.advance(due)
    first, last = sequence.tasks.order_by("pk")
    assert last.phase == Phase.DONE, last.failure
    assert "The files before step do could not be recorded" in told(first)
    checks = Run.objects.get(step__task=last).checks
    assert checks and "that .gitignore hides: they could not be listed" in checks[0]["check"]


def test_an_agent_that_removed_git_loses_nothing(runner: Runner) -> None:
    """Issue: green, without a branch. Now the branch has its work, and the log says what was lost."""
    hidden = (
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m mine; echo w > work.txt; rm -rf .git"
    )
    task = runner.advance(runner.task([Turn(calls=(shell(hidden),)), say("Done.")]))
    assert task.phase == Phase.DONE
    assert "work.txt" in published(task)
    assert "The workspace's .git was removed" in told(task) and "stashes" in told(task)
    git(paths.workspace(task).path, "status")


def test_a_run_whose_work_cannot_be_recorded_is_a_failed_attempt(runner: Runner) -> None:
    play: list[Act] = [
        Turn(calls=(unrecordable(),)),
        say("Done."),
        End(),
        Turn(calls=(shell("rm -rf .GIT"),)),
        say("So."),
    ]
    task = runner.advance(runner.task(play, config=RETRY))
    assert task.phase == Phase.DONE
    first, second = Run.objects.order_by("number")
    assert first.checks and not first.checks[0]["passed"] and first.checks[0]["check"] == "recording"
    assert ".GIT/x" in second.prompt and "record" in second.prompt
    assert second.head_commit == task.head_commit


@pytest.mark.parametrize("name", ["new.bin", "known.bin"])
def test_m7_a_large_file_of_holes_is_refused_at_once_and_the_agent_is_told(runner: Runner, name: str) -> None:
    """It takes no place on the disk, so that no limit of it holds, but git would read it for minutes."""
    play: list[Act] = [
        Turn(calls=(shell(f"truncate -s 15G {name}"),)),
        say("Done."),
        End(),
        Turn(calls=(shell(f"echo so > {name}"),)),
        say("So."),
    ]
    began = time.monotonic()
    task = runner.advance(runner.task(play, project=runner.project(RETRY, **{"known.bin": "x"})))
    assert task.phase == Phase.DONE and time.monotonic() - began < 30
    prompt = Run.objects.order_by("number").last().prompt  # type: ignore[union-attr]
    assert "large and mostly empty" in prompt and name in prompt


#: As on a file system that compresses: files take far fewer blocks than their content has.
COMPRESSED = """
from types import SimpleNamespace
known_lstat = os.lstat
def lstat(path):
    found = known_lstat(path)
    fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
    return SimpleNamespace(**fields | {"st_blocks": 1})
os.lstat = lstat
if __name__ == "__main__":
"""


@pytest.mark.parametrize(
    "make",
    [
        "head -c 300000 /dev/urandom > new.bin",
        "truncate -s 0 known.bin && truncate -s 300000 known.bin",
        "truncate -s 0 known.bin && truncate -s 300000 known.bin && echo x | dd of=known.bin conv=notrunc",
        "truncate -s 400000 kept.bin",
    ],
    ids=["compressed data", "zeros as holes", "changed in part", "content in Git LFS"],
)
def test_m7_a_file_system_that_stores_large_files_in_few_blocks_is_no_reason_to_refuse_them(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, settings: Any, make: str
) -> None:
    program = recording._PROGRAM.replace("_SPARSE_BYTES = 256 * 1024**2", "_SPARSE_BYTES = 100_000")
    monkeypatch.setattr(recording, "_PROGRAM", program.replace('if __name__ == "__main__":\n', COMPRESSED))
    filters = (("lfs", "cat"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": filters})
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 400000\n"
    project = runner.project(RETRY, **{"known.bin": "\0" * 300_000, "kept.bin": pointer})
    play: list[Act] = [
        Turn(calls=(shell(f"{make}; echo 'kept.bin filter=lfs' > .gitattributes"),)),
        say("Done."),
    ]
    task = runner.advance(runner.task(play, project=project))
    assert task.phase == Phase.DONE
    assert Run.objects.count() == 1, Run.objects.order_by("number").last().prompt  # type: ignore[union-attr]


def test_m7_more_than_can_be_recorded_is_refused_at_once_but_not_what_git_lfs_keeps(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    small = recording._PROGRAM.replace("_RECORDED_BYTES = 2 * 1024**3", "_RECORDED_BYTES = 100_000")
    monkeypatch.setattr(recording, "_PROGRAM", small)
    make = "head -c 60000 /dev/urandom > a.bin; head -c 50000 /dev/urandom > b.bin"
    play: list[Act] = [
        Turn(calls=(shell(make),)),
        say("Done."),
        End(),
        Turn(calls=(shell("rm b.bin"),)),
        say("So."),
    ]
    assert runner.advance(runner.task(play, config=RETRY)).phase == Phase.DONE
    prompt = Run.objects.order_by("number").last().prompt  # type: ignore[union-attr]
    assert "The largest: a.bin, b.bin. Remove them" in prompt
    filters = (("lfs", "cat"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": filters})
    play = [Turn(calls=(shell(f"{make}; echo '*.bin filter=lfs' > .gitattributes"),)), say("Done.")]
    assert runner.advance(runner.task(play)).phase == Phase.DONE


def test_after_the_last_attempt_the_task_has_failed_and_says_why(runner: Runner) -> None:
    play = [Turn(calls=(unrecordable(), write("work.txt", "x"))), say("Done.")]
    task = runner.advance(runner.task(play))
    assert task.phase == Phase.FAILED
    assert "could not be recorded" in task.failure and ".GIT/x" in task.failure
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (one,) = clean_workspaces(older_than=timedelta(days=14), sandbox=Sandbox(None))
    assert "cannot be recorded" in one.kept and file_in(task, "work.txt").exists()


def test_files_that_git_refuses_are_the_workspaces_fault(runner: Runner) -> None:
    """A name of a submodule that would lead out of `.git`: the agent is told that, and nothing is broken."""
    evil = write(".gitmodules", '[submodule "../../x"]\n\tpath = sub\n\turl = y\n')
    play: list[Act] = [
        Turn(calls=(evil,)),
        say("Done."),
        End(),
        Turn(calls=(shell("rm .gitmodules"),)),
        say("So."),
    ]
    task = runner.advance(runner.task(play, config=RETRY))
    assert task.phase == Phase.DONE and ".git was" not in told(task)
    prompt = Run.objects.order_by("number").last().prompt  # type: ignore[union-attr]
    assert "git refuses what is in it" in prompt and "disallowed submodule name" in prompt
    assert "own repository" not in prompt


def test_a_question_is_asked_although_the_work_beside_it_cannot_be_recorded(runner: Runner) -> None:
    play = [
        Turn(calls=(unrecordable(),)),
        Turn(calls=(ask("Which?"),)),
        Turn(calls=(shell("rm -rf .GIT"),)),
        say("D"),
    ]
    task = runner.advance(runner.task(play))
    assert task.phase == Phase.WAITING_FOR_INPUT and task.questions.open().count() == 1
    assert "The work could not be recorded" in told(task)
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE


def replace_by_file(git: Path) -> None:
    shutil.rmtree(git)
    git.write_text("gitdir: /nowhere\n")


def replace_by_link(git: Path) -> None:
    shutil.rmtree(git)
    git.symlink_to("/nowhere")


def leave_locks(git: Path) -> None:
    for name in ("index.lock", "HEAD.lock"):
        (git / name).touch()


def empty_objects(git: Path) -> None:
    for one in git.glob("objects/??/*"):
        one.chmod(0o600)
        one.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "a file": replace_by_file,
    "a link": replace_by_link,
    "locked": leave_locks,
    "corrupt": empty_objects,
    "empty ref": lambda git: [one.write_bytes(b"") for one in git.glob("refs/heads/**/*") if one.is_file()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_going_on_works_in_a_damaged_workspace(runner: Runner, damage: str) -> None:
    """A power cut or an agent; the file stays, and the step's work ends up in the branch."""
    config = (
        "pipelines: {default: [{name: do, command: self, check: {type: shell, command: test -e b.txt}}]}\n"
    )
    play: list[Act] = [
        Turn(calls=(write("a.txt", "x"),)),
        say("Half."),
        End(),
        Turn(calls=(shell("git add . && echo > b.txt"),)),
        say("D"),
    ]
    task = runner.advance(runner.task(play, config="autoCommit: true\n" + config))
    assert task.phase == Phase.FAILED
    DAMAGES[damage](paths.workspace(task).path / ".git")
    resume_task(task, by=acting(runner.user), notify=False)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert {"a.txt", "b.txt"} <= published(task)
    git(paths.workspace(task).path, "fsck")
    assert git(paths.workspace(task).path, "status", "--porcelain") == ""


@pytest.mark.parametrize("damage", ["gone", "a file", "corrupt", "unrecordable"])
def test_putting_the_files_back_works_in_a_damaged_workspace(runner: Runner, damage: str) -> None:
    play = [Turn(calls=(write("a.txt", "x"),)), say("Done.")]
    task = runner.advance(runner.task(play))
    file_in(task, "late.txt").write_text("late")
    if damage == "unrecordable":
        file_in(task, ".GIT").mkdir()
        file_in(task, ".GIT/x").touch()
    else:
        DAMAGES[damage](paths.workspace(task).path / ".git")
    retry_from(task, task.steps.get(), by=acting(runner.user), put_back=True, notify=False)
    runner.advance(task)
    assert task.phase == Phase.DONE and not file_in(task, "late.txt").exists()
    if damage == "unrecordable":
        (aside,) = paths.workspace(task).path.parent.glob("workspace.*/late.txt")
        assert aside.read_text() == "late" and "could not be recorded; they are in" in told(task)
    else:
        assert "late.txt" in git(paths.repository(task.project).path, "log", "--all", "--name-only")


def test_a_stale_lock_of_the_portals_repository_does_not_stop_a_recording(runner: Runner) -> None:
    task = runner.task([Turn(calls=(write("a.txt", "x"),)), say("Done.")])
    lock = paths.repository(task.project).path / f"refs/heads/{task.branch}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1, 1))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert "a.txt" in published(task) and not lock.exists()


CHECKED = """\
pipelines:
  default:
    - {name: first, command: implement, check: {type: shell, command: test -e .env}}
    - {name: second, command: implement, check: {type: shell, command: "true"}}
"""


def test_files_that_a_check_saw_and_the_branch_lacks_are_mentioned_once(runner: Runner) -> None:
    """The list of the task follows what there is now; the log says it once, after the check."""
    project = runner.project(CHECKED, **{".gitignore": ".env\nout/\n"})
    play = {
        "first": [Turn(calls=(shell("echo k > .env"),)), say("Done.")],
        "second": [Turn(calls=(shell("mkdir out; echo o > out/o"),)), say("Done.")],
    }
    task = runner.advance(runner.task(play, project=project))
    said = "Not part of the result, because .gitignore names it or tools fill it:"
    assert task.left_out == [f"{said} .env, out/. Checks saw it."] and told(task).count(said) == 1
    kinds = Event.objects.filter(run__step__task=task, kind__in=["note", "check"]).order_by("pk")
    assert [event.kind for event in kinds] == ["note", "check", "check"]


def test_without_a_check_nothing_is_said_of_what_git_ignores(runner: Runner) -> None:
    project = runner.project(**{".gitignore": ".env\n"})
    task = runner.task([Turn(calls=(shell("echo k > .env"),)), say("Done.")], project=project)
    assert runner.advance(task).left_out == [] and told(task) == ""


def guarded(runner: Runner, command: str, ignore: str = "*.log\nbuild/\nlocal/\n") -> Task:
    project = runner.project(GUARDED, **{".gitignore": ignore})
    play = {
        "first": [
            Turn(calls=(shell("mkdir local; echo 1 > local/before; echo 1 > first.log"),)),
            say("Done."),
        ],
        "second": [Turn(calls=(shell(command),)), say("Done.")],
    }
    return runner.advance(runner.task(play, project=project))


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("echo x > new.log", "new.log"),
        ("echo 2 > local/before", "local/before"),
        ("mkdir -p local/deep; echo x > local/deep/x", "local/deep/x"),
        ("ln -s /etc/passwd local/link", "local/link"),
        ("mkdir -p .git/info; echo code.py > .git/info/exclude; echo x > code.py", "code.py"),
    ],
)
def test_ignored_files_are_held_against_the_guard(runner: Runner, command: str, named: str) -> None:
    task = guarded(runner, command)
    assert task.phase == Phase.FAILED and named in task.failure.splitlines(), task.failure
    assert "first.log" not in task.failure


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p docs; echo x > docs/a.log",
        "mkdir -p src/__pycache__ .pytest_cache; echo x > src/__pycache__/a.pyc; echo x > .pytest_cache/x",
        "mkdir -p node_modules/x; echo x > node_modules/x/y",
        "date > build/out",
        "touch local/before first.log",
        "rm -r local",
    ],
)
def test_what_tools_and_checks_write_is_no_violation(runner: Runner, command: str) -> None:
    """Allowed by a glob; caches and dependencies; what a check wrote before; content that is the same."""
    task = guarded(runner, command, "*.log\nbuild/\nlocal/\n__pycache__/\n.pytest_cache\nnode_modules\n")
    assert task.phase == Phase.DONE, task.failure


@pytest.mark.both
def test_who_lost_the_task_during_a_recording_publishes_nothing(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: the successor may have published newer work, which an older snapshot must not replace."""
    task = runner.task([Turn(calls=(write("one.txt", "1\n"),)), say("Done.")])

    def taken_over_meanwhile(*words: Any, **options: Any) -> Any:
        made = record(*words, **options)
        Task.objects.filter(pk=task.pk).update(lease_epoch=F("lease_epoch") + 1, lease_owner="successor")
        return made

    monkeypatch.setattr("tasks_app.git.clone.record", taken_over_meanwhile)
    runner.advance(task)
    references = git(paths.repository(task.project).path, "for-each-ref", "refs/heads", "refs/cat-herder")
    assert references == ""
    assert task.phase == Phase.RUNNING and task.lease_owner == "successor"


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The workspaces whose files were read, one entry for each time."""
    made: list[Path] = []
    run_program = recording._run_program

    def noted(source: recording.Source, *rest: Any, **more: Any) -> Any:
        made.append(source.workspace)
        return run_program(source, *rest, **more)

    monkeypatch.setattr(recording, "_run_program", noted)
    return made


def two_runs(runner: Runner, first: Turn, *second: Act) -> Task:
    """A task whose agent asks at the end of its first turn, and does `second` after the answer."""
    task = runner.advance(runner.task([first, *second, say("Done.")]))
    assert task.phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task)
    return runner.advance(task)


def remembers(task: Task) -> bool:
    return fingerprint([paths.workspace(task).path]) is not None


def test_a_run_that_changes_nothing_is_not_recorded_again(runner: Runner, recordings: list[Path]) -> None:
    """Most runs end with a question, and look at files before."""
    task = two_runs(runner, Turn(calls=(write("a.txt", "one"), ask("Red?"))))
    assert task.phase == Phase.DONE, task.failure
    assert len(recordings) == (1 if remembers(task) else 2)
    assert "a.txt" in published(task) and "+one" in diff_of(task)
    heads = set(Run.objects.filter(step__task=task).values_list("head_commit", flat=True))
    assert heads == {task.head_commit}


@pytest.mark.parametrize(
    "change",
    [
        "echo two > a.txt",
        "echo two > a.txt; touch -d @1 a.txt",
        "rm a.txt",
        "git add -A; git -c user.name=a -c user.email=a@b commit -qm own",
    ],
)
def test_a_run_that_changes_something_is_recorded(
    runner: Runner, recordings: list[Path], change: str
) -> None:
    first = Turn(calls=(write("a.txt", "one\n"), shell("touch -d @1 a.txt"), ask("Red?")))
    task = two_runs(runner, first, Turn(calls=(shell(change),)))
    assert task.phase == Phase.DONE, task.failure
    assert len(recordings) == 2
    assert ("a.txt" in published(task)) is (change != "rm a.txt")
    assert ("+two" in diff_of(task)) is ("two" in change)


def test_a_recording_that_the_repository_has_lost_is_made_again(
    runner: Runner, recordings: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording._Recorded, "is_in", lambda *_: False)
    task = two_runs(runner, Turn(calls=(write("a.txt", "one"), ask("Red?"))))
    assert task.phase == Phase.DONE, task.failure
    assert len(recordings) == 2 and "+one" in diff_of(task)


def test_few_objects_are_kept_of_a_recorded_workspace(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker keeps a thousand of them."""
    remembered: Remembered[Any] = Remembered()
    monkeypatch.setattr(recording, "_remembered", remembered)
    task = runner.advance(runner.task([say("I only looked.")]))
    if not remembers(task):
        pytest.skip("this file system may not set the times of changes")
    (entry,) = remembered._results.items()
    assert len(objects_with_parts(entry)) <= 5  # the entry, its value, the recording, the snapshot


def objects_with_parts(whole: object) -> list[object]:
    """Return what the garbage collector would look at: the object, and all that it has, without types."""
    found: dict[int, object] = {}
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        if gc.is_tracked(one) and not isinstance(one, type) and id(one) not in found:
            found[id(one)] = one
            waiting += gc.get_referents(one)
    return list(found.values())


#: The listing of a folder in the newest commit is replaced by the changed one, under the same id: then git
#: finds nothing changed. git checks the ids of commits only.
FORGE = r"""
set -e
for pack in .git/objects/pack/*.pack; do
    if [ -e "$pack" ]; then
        mv "$pack" ../moved; rm -f "${pack%.pack}".*; git unpack-objects -q < ../moved; rm ../moved
    fi
done
object() { echo ".git/objects/$(echo "$1" | cut -c1-2)/$(echo "$1" | cut -c3-)"; }
old=$(git rev-parse HEAD:tests)
echo 'assert True' > tests/check.py
new=$(printf '100644 blob %s\tcheck.py\n' "$(git hash-object -w tests/check.py)" | git mktree)
rm -f "$(object "$old")"
cp "$(object "$new")" "$(object "$old")"
test -z "$(git status --porcelain)"
"""


@pytest.mark.parametrize("config", ["", 'fileAccess: {allowWrite: ["docs/**"]}'])
def test_p7_a_forged_folder_of_the_newest_commit_hides_nothing(runner: Runner, config: str) -> None:
    pipeline = f"pipelines: {{default: [{{name: do, command: implement, {config}}}]}}\n"
    project = runner.project(pipeline, **{"tests/check.py": "assert total() == 1\n"})
    task = runner.advance(runner.task([Turn(calls=(shell(FORGE),)), say("Done.")], project=project))
    if config:
        assert task.phase == Phase.FAILED and "tests/check.py" in task.failure
    else:
        assert task.phase == Phase.DONE and "+assert True" in diff_of(task)


def test_v1_what_tools_fill_is_no_part_of_the_result_without_gitignore(
    runner: Runner,
) -> None:
    """The virtual environment that `setup` made was 60 files of the result."""
    makes = "mkdir -p .venv/bin a/__pycache__ node_modules/x; echo x > paint.txt"
    files = "for one in .venv/bin/python a/__pycache__/b.pyc node_modules/x/i.js; do echo y > $one; done"
    seen = "git status --porcelain > status.txt"
    task = runner.advance(runner.task([Turn(calls=(shell(f"{makes}; {files}; {seen}"),)), say("Done.")]))
    names = git(paths.repository(task.project).path, "ls-tree", "-r", "--name-only", task.branch).split()
    assert {"paint.txt", "status.txt"} <= set(names)
    assert not [name for name in names if "venv" in name or "cache" in name or "node_modules" in name]
    assert "venv" not in file_in(task, "status.txt").read_text(), "nor does the agent see it as its own"
