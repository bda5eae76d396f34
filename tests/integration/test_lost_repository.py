"""R1, R3: tasks go on from their last recorded commit after a power cut, and when the repository was lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.core.errors import RepositoryDamaged
from tasks_app.core.phases import Phase
from tasks_app.git import Repository
from tasks_app.models import Project, Task, paths
from tasks_app.services.bulk import retry_from
from tasks_app.services.projects.projects import check_repository, fetch, remove_project, repair_repository
from tests.fake_agent import FakeAgent
from tests.fake_script import Turn, ask, say, write
from tests.people import acting
from tests.runner import Runner, diff_of, file_in

ASKING = [
    Turn(calls=(write("made.txt", "before the question"),)),
    Turn(calls=(ask("Which colour?"),)),
    Turn(calls=(write("after.txt", "after the answer"),)),
    say("Done."),
]


def waiting(runner: Runner) -> Task:
    task = runner.advance(runner.task(ASKING))
    assert task.phase == Phase.WAITING_FOR_INPUT
    return task


def cut_power(repository: Repository) -> None:
    """What an older portal left after one: references are empty files; objects stayed."""
    for place in repository.path.glob("refs/**/*"):
        if place.is_file():
            place.write_bytes(b"")


def delete(repository: Repository) -> None:
    shutil.rmtree(repository.path)


def replace_by_a_file(repository: Repository) -> None:
    shutil.rmtree(repository.path)
    repository.path.write_text("not a repository")


def test_a_task_resumes_from_its_last_recorded_commit_after_a_power_cut(runner: Runner) -> None:
    """Its clone was lost as well; its recorded commit was not."""
    task = waiting(runner)
    cut_power(paths.repository(task.project))
    shutil.rmtree(paths.workspace(task).path)
    assert check_repository(task.project)
    fetch(task.project, thorough=True)
    assert check_repository(task.project) == []
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert file_in(task, "made.txt").read_text() == "before the question"
    assert "after the answer" in diff_of(task) and "before the question" in diff_of(task)
    assert paths.repository(task.project).commit(f"refs/heads/{task.branch}") == task.head_commit


@pytest.mark.parametrize("damage", [delete, replace_by_a_file], ids=lambda damage: damage.__name__)
def test_a_task_whose_workspace_is_left_is_recorded_again(
    runner: Runner, damage: Callable[[Repository], None]
) -> None:
    """The portal's repository is gone with all that only it had; the waiting task loses nothing."""
    task = waiting(runner)
    damage(paths.repository(task.project))
    (said, *more) = repair_repository(task.project)
    assert "again" in said or "aside" in said
    assert task.branch.removeprefix("refs/heads/") in " ".join(more), "the lost work is named"
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert "after the answer" in diff_of(task) and "before the question" in diff_of(task)


def test_the_page_says_that_a_task_was_recorded_again(runner: Runner, client: Client) -> None:
    """Also after its later recordings."""
    task = waiting(runner)
    delete(paths.repository(task.project))
    repair_repository(task.project)
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    client.force_login(runner.user)
    said = "Recorded again, because the portal&#x27;s repository had lost commit"
    assert client.get(reverse("task_details", args=[task.pk])).text.count(said) == 1


def test_a_task_that_lost_both_says_how_to_begin_again(runner: Runner) -> None:
    """Its workspace and what was recorded of it; from its first step on it is done anew."""
    task = waiting(runner)
    delete(paths.repository(task.project))
    shutil.rmtree(paths.workspace(task).path)
    repair_repository(task.project)
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.FAILED
    assert "The work of this task is lost" in task.failure
    assert "Retry from the first step and put the files back" in task.failure
    runner.agent = FakeAgent(lambda prompt: [Turn(calls=(write("made.txt", "anew"),)), say("Done.")])
    retry_from(task, task.steps.get(), by=acting(runner.user), put_back=True, notify=False)
    assert runner.advance(task).phase == Phase.DONE
    assert "anew" in diff_of(task)


def test_new_tasks_can_be_made_after_the_repository_was_fetched_again(runner: Runner) -> None:
    """Without anybody's help at the second attempt: the first met the damage."""
    task = waiting(runner)
    repository = paths.repository(task.project)
    cut_power(repository)
    with pytest.raises(RepositoryDamaged, match=f"repository of {task.project.name} is damaged"):
        repository.head(task.project.branch)
    again = runner.advance(runner.task([say("Done.")], project=Project.objects.get(pk=task.project_id)))
    assert again.phase == Phase.DONE
    assert Path(paths.workspace(again).path / "cat-herder.yaml").exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_workspace_replaced_by_something_else_is_made_anew(
    runner: Runner, kind: str, tmp_path: Path
) -> None:
    """From the last recorded commit; what stood in its place is kept, and a link is not followed."""
    task = waiting(runner)
    path = paths.workspace(task).path
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    if kind == "file":
        path.write_text("not a workspace")
    else:
        path.symlink_to(elsewhere)
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert file_in(task, "made.txt").read_text() == "before the question"
    assert not (elsewhere / "after.txt").exists() and not path.is_symlink()
    assert len(list(path.parent.glob("workspace.not-a-folder-*"))) == 1


def test_what_was_moved_aside_goes_with_the_project(runner: Runner) -> None:
    project = runner.advance(runner.task([say("Done.")])).project
    replace_by_a_file(paths.repository(project))
    repair_repository(project)
    assert list((paths.data_dir() / "repositories").glob("*.damaged-*"))
    remove_project(project, by=acting(runner.user))
    assert list((paths.data_dir() / "repositories").iterdir()) == []


def test_pages_say_what_is_damaged_and_what_to_do(runner: Runner, client: Client) -> None:
    """No page is an error, and the button on the project's page is the way out."""
    task = waiting(runner)
    client.force_login(runner.user)
    project = reverse("project", args=[task.project_id])
    cut_power(paths.repository(task.project))
    page = client.get(project)
    assert page.status_code == 200
    assert "is damaged" in page.text and "Fetch the project again" in page.text
    assert client.get(reverse("project_settings", args=[task.project_id])).status_code == 200
    assert client.get(reverse("task_new"), {"project": task.project_id}).status_code == 200
    client.post(reverse("project_fetch", args=[task.project_id]))
    assert "is damaged" not in client.get(project).text
    assert "made.txt" in client.get(reverse("task_diff", args=[task.pk])).text


def test_the_page_of_a_lost_change_says_so(runner: Runner, client: Client) -> None:
    task = waiting(runner)
    client.force_login(runner.user)
    delete(paths.repository(task.project))
    client.post(reverse("project_fetch", args=[task.project_id]))
    page = client.get(reverse("task_diff", args=[task.pk]))
    assert page.status_code == 200 and "no longer has the commit" in page.text
    patch = client.get(reverse("task_patch", args=[task.pk]), follow=True)
    assert patch.redirect_chain and "no longer has the commit" in patch.text
