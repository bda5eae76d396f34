"""M5: submodules are fetched into a new workspace when the project says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.engine.turns import QueueNotifier, take_turns
from tasks_app.engine.workers import heartbeat, leaving
from tasks_app.engine.workers.intake import DRAINED
from tasks_app.models import Project, Task, Transition, WorkerBeat, paths
from tasks_app.models.worker import KNOWN_PERIOD
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.services.bulk import retry_from
from tasks_app.services.projects.projects import add_project, remove_project
from tasks_app.services.tasks import resume_task
from tasks_app.services.workers.queue import queue_sentence
from tasks_app.services.workers.scheduling import next_turns
from tests.factories import WorkerBeatFactory
from tests.fake_script import Act, Turn, say, shell, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, diff_of, file_in, results, runs, step

ALLOW = ("-c", "protocol.file.allow=always")
CONFIG = """\
submodules: true
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "cat lib/a lib/deep/b"}}
"""
DONE: list[Act] = [Turn(calls=(write("work.txt", "done\n"),)), say("Done.")]


@pytest.fixture(autouse=True)
def allowed(runner: Runner, settings: Any) -> None:
    """The installation lists the folder of the test's repositories."""
    values = {"submodules": (str(runner.folder / "git"),)}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)


def made(runner: Runner, config: str = CONFIG) -> Project:
    """A project `shop` with a submodule `lib`, which has one at `deep`; all URLs are relative."""
    folder = runner.folder / "git"
    deep = GitRepository.make(folder / "deep", b="deep\n")
    library = GitRepository.make(folder / "lib", a="one\n")
    add_submodule(library, "../deep", "deep")
    shop = GitRepository.make(folder / "shop", **{"cat-herder.yaml": config})
    add_submodule(shop, "../lib", "lib")
    assert deep.path.is_dir()
    return add_project("shop", str(shop.path), by=runner.user)


def add_submodule(parent: GitRepository, url: str, path: str) -> None:
    parent.git(*ALLOW, "submodule", "--quiet", "add", str((parent.path / url).resolve()), path)
    parent.git("config", "--file", ".gitmodules", f"submodule.{path}.url", url)
    parent.commit()


def source_of(project: Project) -> GitRepository:
    return GitRepository(Path(project.source))


@pytest.mark.bubblewrap
def test_m5_submodules_and_nested_ones_are_in_a_new_workspace(runner: Runner) -> None:
    """Agent and checks see their files, git shows no change, and the result has the work alone."""
    runner.sandbox = detect(SandboxMode.REQUIRE)
    look = "git status --porcelain; git submodule status --recursive; git -C lib log --format=%s -1"
    task = runner.task([Turn(calls=(shell(look),)), *DONE], project=made(runner))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "lib/a").read_text() == "one\n"
    (seen,) = results(task)[:1]
    assert " lib (" in seen and " lib/deep (" in seen and "Change" in seen and "?? " not in seen
    assert "-" not in {line[:1] for line in seen.splitlines()}  # git counts them as initialised
    assert "work.txt" in diff_of(task) and "lib" not in diff_of(task)
    assert [note for note in task.left_out if "ubmodule" in note or "ested" in note] == []


def test_without_the_key_their_folders_are_empty(runner: Runner) -> None:
    task = runner.task(DONE, project=made(runner, "pipelines: {default: [{name: do, command: self}]}\n"))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert list(file_in(task, "lib").iterdir()) == []
    assert not paths.submodules_of(task.project).exists()


def test_what_an_agent_does_in_a_submodule_is_named(runner: Runner) -> None:
    acts: list[Act] = [Turn(calls=(write("lib/a", "mine\n"),)), say("Done.")]
    task = runner.task(acts, project=made(runner))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert any("Submodule lib: 1 changed" in note for note in task.left_out)


def test_a_workspace_that_is_made_anew_has_them_again_without_the_source(runner: Runner) -> None:
    """What was fetched once is on this host, and a retry that puts the files back uses it."""
    project = made(runner)
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    (runner.folder / "git" / "lib").rename(runner.folder / "gone")
    retry_from(task, step(task), by=acting(runner.user), put_back=True)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    paths.remove_folder(paths.workspace(task).path)
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure


def test_a_newer_commit_of_a_submodule_is_fetched_for_the_next_task(runner: Runner) -> None:
    project = made(runner)
    assert runner.advance(runner.task(DONE, project=project)).phase == Phase.DONE
    library, shop = GitRepository(runner.folder / "git" / "lib"), source_of(project)
    library.commit(a="two\n")
    shop.git(*ALLOW, "-C", "lib", "pull", "--quiet", "origin", "main")
    shop.commit()
    task = runner.advance(runner.task(DONE, project=project))
    assert task.phase == Phase.DONE, task.failure
    assert file_in(task, "lib/a").read_text() == "two\n"


def test_a_commit_that_is_on_no_branch_is_fetched(runner: Runner) -> None:
    """People rebase a library after others have pinned a commit of it."""
    project = made(runner)
    library = GitRepository(runner.folder / "git" / "lib")
    library.git("commit", "--quiet", "--amend", "-m", "Rewritten")
    task = runner.advance(runner.task(DONE, project=project))
    assert task.phase == Phase.DONE, task.failure


FAULTS: Mapping[str, tuple[str, str]] = {
    "missing": ("../absent", "does not exist"),
    "not listed": ("/srv/elsewhere/lib", "CATHERDER_SUBMODULES lists"),
    "another host": ("https://other.example.org/lib", "CATHERDER_SUBMODULES lists"),
    "a program": ("ext::sh -c true", "only https and ssh URLs"),
    "does not answer": ("https://127.0.0.1:9/lib", "Failed to connect"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_m5_a_submodule_that_cannot_be_fetched_fails_the_task_before_anything_is_spent(
    runner: Runner, settings: Any, fault: str
) -> None:
    """The sentence names the submodule, its URL and why; once that is mended the task goes on."""
    url, why = FAULTS[fault]
    listed = (*settings.ENVIRONMENT.submodules, "https://127.0.0.1:9")
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"submodules": listed})
    project = made(runner)
    shop = source_of(project)
    shop.git("config", "--file", ".gitmodules", "submodule.lib.url", url)
    shop.commit()
    task = runner.advance(runner.task(DONE, project=project))
    assert task.phase == Phase.FAILED and runs(task) == []
    assert task.failure.startswith("The submodule lib cannot be fetched from ") and why in task.failure
    assert not paths.workspace(task).path.exists()


def test_a_task_goes_on_once_its_submodule_can_be_fetched(runner: Runner) -> None:
    project = made(runner)
    away = (runner.folder / "git" / "lib").rename(runner.folder / "away")
    task = runner.advance(runner.task(DONE, project=project))
    assert task.phase == Phase.FAILED
    away.rename(runner.folder / "git" / "lib")
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure


def on_host(monkeypatch: pytest.MonkeyPatch, name: str, runner: Runner, task: Task) -> Task:
    """Work on the task as the worker of a host."""
    for module in (leaving, heartbeat):
        monkeypatch.setattr(module, "host_name", lambda: name)
    advance(task.pk, owner=f"{name}:1", context=replace(runner.context, labels=frozenset()))
    task.refresh_from_db()
    return task


def unreachable(settings: Any, *, listed: tuple[str, ...] = ()) -> None:
    """Let this host reach the submodules only where they are listed."""
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"submodules": listed})


def test_m6_a_host_that_cannot_fetch_submodules_leaves_the_task_to_another_once(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = runner.task(DONE, project=made(runner))
    WorkerBeatFactory.create(host="first", busy=0)
    WorkerBeatFactory.create(host="second", busy=4)
    unreachable(settings)
    assert on_host(monkeypatch, "first", runner, task).phase == Phase.PENDING
    assert step(task).phase == Phase.PENDING and runs(task) == []
    reason = Transition.objects.filter(task=task, step=None).latest("pk").reason
    assert reason.startswith("another host may reach its submodules: The submodule lib cannot be fetched")
    assert queue_sentence(task) == "Next in line: waits for a free worker.", "the first one is free"
    epoch = task.lease_epoch
    assert on_host(monkeypatch, "first", runner, task).lease_epoch == epoch, "it does not try again"
    unreachable(settings, listed=(str(runner.folder / "git"),))
    assert on_host(monkeypatch, "second", runner, task).phase == Phase.DONE, task.failure


@pytest.mark.parametrize("busy", [0, 4])
def test_m6_a_host_that_leaves_a_task_wakes_another_if_one_is_free(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    """Once, not again and again; the next look of the same host wakes it, too, in case that was lost."""
    task = runner.task(DONE, project=made(runner))
    WorkerBeatFactory.create(host="first", busy=0)
    WorkerBeatFactory.create(host="second", busy=busy)
    unreachable(settings)
    woken: list[int] = []
    notifier = QueueNotifier(lambda task_id: pytest.fail("any"), woken.append, lambda: len(woken))
    for module in (leaving, heartbeat):
        monkeypatch.setattr(module, "host_name", lambda: "first")
    context = replace(runner.context, labels=frozenset())
    assert take_turns(owner="first:1", context=context, notifier=notifier) == [task.pk]
    assert woken == [task.pk][busy:]
    woken.clear()
    assert take_turns(owner="first:1", context=context, notifier=notifier) == []
    assert woken == [task.pk][busy:]


def test_m6_a_submodule_that_no_host_can_fetch_fails_the_task(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host tries once; after it was resumed, each may try again."""
    task = runner.task(DONE, project=made(runner))
    for host in ("first", "second"):
        WorkerBeatFactory.create(host=host)
    WorkerBeatFactory.create(host="full-disk", problem="No disk.")
    unreachable(settings)
    assert on_host(monkeypatch, "first", runner, task).phase == Phase.PENDING
    assert on_host(monkeypatch, "second", runner, task).phase == Phase.FAILED
    assert "The submodule lib cannot be fetched" in task.failure and task.left_by == []
    resume_task(task, by=acting(runner.user))
    assert on_host(monkeypatch, "second", runner, task).phase == Phase.PENDING
    gone = timezone.now() - KNOWN_PERIOD - timedelta(seconds=1)
    WorkerBeat.objects.filter(host="first").update(seen_at=gone, ended=True)
    assert on_host(monkeypatch, "second", runner, task).phase == Phase.FAILED, "nobody else is left"


@pytest.mark.parametrize(
    "away",
    [
        {"draining": True, "problem": DRAINED},
        {"ended": True},
        {"ended": True, "draining": True, "problem": DRAINED},
        {"seconds_ago": 60},
    ],
    ids=["draining", "restarting", "drained and restarting", "killed"],
)
def test_m6_a_task_waits_for_a_host_that_is_known_and_takes_no_tasks_now(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch, away: dict[str, Any]
) -> None:
    """Others of its project go on meanwhile, also with a limit. Once that host is back, it has its turn."""
    seen_at = timezone.now() - timedelta(seconds=away.get("seconds_ago", 0))
    task = runner.task(DONE, project=made(runner))
    Project.objects.update(overrides={"max_running_tasks": 1})
    WorkerBeatFactory.create(host="first", busy=0)
    fields = {name: value for name, value in away.items() if name != "seconds_ago"}
    WorkerBeatFactory.create(host="second", busy=0, seen_at=seen_at, **fields)
    unreachable(settings)
    assert on_host(monkeypatch, "first", runner, task).phase == Phase.PENDING and task.left_by == ["first"]
    assert queue_sentence(task) == (
        "Next in line: waits for a worker on second, which takes no tasks now; "
        "first cannot fetch its submodules."
    )
    epoch = task.lease_epoch
    assert on_host(monkeypatch, "first", runner, task).lease_epoch == epoch, "it does not try again"
    other = runner.task(DONE, project=task.project)
    assert [due.task_id for due in next_turns(of=frozenset())] == [other.pk]
    assert "will take it within seconds" in queue_sentence(other)
    WorkerBeat.objects.filter(host="second").update(
        ended=False, draining=False, problem="", seen_at=timezone.now()
    )
    assert [due.task_id for due in next_turns(of=frozenset())] == [task.pk]
    unreachable(settings, listed=(str(runner.folder / "git"),))
    assert on_host(monkeypatch, "second", runner, task).phase == Phase.DONE, task.failure


def test_m6_a_task_that_waited_for_a_host_in_vain_is_tried_again_and_fails(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = runner.task(DONE, project=made(runner))
    WorkerBeatFactory.create(host="first", busy=0)
    WorkerBeatFactory.create(host="second", ended=True)
    unreachable(settings)
    assert on_host(monkeypatch, "first", runner, task).phase == Phase.PENDING
    assert next_turns(of=frozenset()) == []
    gone = timezone.now() - KNOWN_PERIOD - timedelta(seconds=1)
    WorkerBeat.objects.filter(host="second").update(seen_at=gone)
    assert [due.task_id for due in next_turns(of=frozenset())] == [task.pk]
    assert on_host(monkeypatch, "first", runner, task).phase == Phase.FAILED and task.left_by == []


def test_r4_an_agent_cannot_have_the_portal_fetch_from_elsewhere(runner: Runner) -> None:
    """What its .gitmodules says has no effect on a workspace that is made anew from its work."""
    GitRepository.make(runner.folder / "git" / "other", a="not for this project\n")
    evil = '[submodule "lib"]\n\tpath = lib\n\turl = ../other\n'
    task = runner.task([Turn(calls=(write(".gitmodules", evil),)), say("Done.")], project=made(runner))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert "../other" in diff_of(task)
    paths.remove_folder(paths.workspace(task).path)
    paths.remove_folder(paths.submodules_of(task.project))
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "lib/a").read_text() == "one\n"


def test_the_page_says_why_a_submodule_could_not_be_fetched(runner: Runner, client: Client) -> None:
    project = made(runner)
    (runner.folder / "git" / "lib").rename(runner.folder / "away")
    task = runner.advance(runner.task(DONE, project=project))
    client.force_login(runner.user)
    page = client.get(reverse("task_result", args=[task.pk])).content.decode()
    assert "The submodule lib cannot be fetched from" in page
    page = client.get(reverse("task", args=[task.pk])).content.decode()
    assert "Failed before step “do” began." in page and "Failed in step" not in page


def test_removing_a_project_removes_its_copies(runner: Runner) -> None:

    task: Task = runner.advance(runner.task(DONE, project=made(runner)))
    folder = paths.submodules_of(task.project)
    assert len(list(folder.glob("*.git"))) == 2
    remove_project(task.project, by=acting(runner.user))
    assert not folder.exists()
