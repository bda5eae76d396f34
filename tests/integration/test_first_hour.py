"""The first hour with a repository of one's own: agents ask, and a rehearsal is not taken for work."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Task
from tasks_app.services.publishing.publications import publication_hindrances
from tasks_app.services.task_groups import FINISHED, REVIEW, tasks_in_group
from tasks_app.services.tasks import create_task
from tests.browser import signed_in
from tests.factories import UserFactory
from tests.fake_script import Turn, say, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)  # PostgreSQL waits for the copy outside a transaction
@pytest.mark.parametrize(("given", "holds"), [({}, 3), ({"threshold": "1"}, 1)])
def test_agents_ask_in_a_new_project_unless_its_file_says_otherwise(
    tmp_path: Path, given: dict[str, str], holds: int
) -> None:
    assert settings.ENVIRONMENT.threshold == 0
    admin = UserFactory.create(is_superuser=True)
    client, found = signed_in(admin), {}
    for name, text in (("plain", "taskFolder: tasks\n"), ("own", "interactionThreshold: 5\n")):
        GitRepository.make(tmp_path / name, **{"cat-herder.yaml": text})
        done = client.post(reverse("projects"), {"name": name, "source": str(tmp_path / name), **given})
        assert done.status_code == 302
        project = Project.objects.get(name=name)
        found[name] = create_task(project, "# Do it\n", by=acting(admin), where="t").threshold
    assert found == {"plain": holds, "own": 5}
    page = client.get(reverse("project_settings", args=[Project.objects.get(name="plain").pk])).text
    assert f"{holds} (default of the project)" in page


def test_a_rehearsed_task_that_changed_nothing_ends_in_a_state_of_its_own(runner: Runner) -> None:
    assert settings.ENVIRONMENT.rehearsal
    task = runner.advance(runner.task([say("Nothing was changed.")]))
    assert (task.phase, task.only_rehearsed, task.phase_display.label) == (Phase.DONE, True, "rehearsed")
    assert "only rehearsed" in publication_hindrances(task, task.head_commit)[0]
    viewer = acting(runner.user)
    assert not tasks_in_group(Task.objects.all(), REVIEW, viewer).exists()
    assert tasks_in_group(Task.objects.all(), FINISHED, viewer).exists()
    page = signed_in(runner.user).get(reverse("task", args=[task.pk])).text
    assert "Connect a model" in page and 'href="#publishing-title">Publish' not in page
    assert "Connect a model" in signed_in(runner.user).get(reverse("tasks")).text


def test_what_changed_something_and_the_sample_are_done(runner: Runner) -> None:
    changing = [Turn(calls=(write("a.txt", "red"),)), say("Done.")]
    assert not runner.advance(runner.task(changing)).only_rehearsed
    project = runner.project()
    Project.objects.filter(pk=project.pk).update(is_sample=True)
    project.refresh_from_db()
    assert not runner.advance(runner.task([say("Done.")], project=project)).only_rehearsed
