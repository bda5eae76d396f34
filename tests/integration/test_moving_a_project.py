"""A project's repository moves: the project follows, and keeps what it has (P1, R5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.models import Action, AuditEntry, Project, Role, User, paths
from tasks_app.services.tasks import create_task
from tests.api import PROBLEM, Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import ONE_STEP, Runner

pytestmark = pytest.mark.django_db(transaction=True)  # the fetch is a thread with its own connection
TEXT = "# Paint it\n\nBlue.\n"


@pytest.fixture
def project(runner: Runner) -> Project:
    return runner.project()


@pytest.fixture
def root() -> User:
    return UserFactory.create(username="root", is_superuser=True)


def page_of(project: Project, user: User) -> tuple[Client, str]:
    client = signed_in(user)
    return client, reverse("project_settings", args=[project.pk])


def moved(project: Project, to: Path) -> str:
    Path(project.source).rename(to)
    return str(to)


def test_tasks_stay_and_new_ones_start_from_there(
    runner: Runner, project: Project, root: User, tmp_path: Path
) -> None:
    old = create_task(project, TEXT, by=acting(runner.user), where="t")
    place = moved(project, tmp_path / "elsewhere")
    newest = GitRepository(Path(place)).commit(**{"new.txt": "new"})
    client, address = page_of(project, root)
    answer = client.post(address, {"source": f" {place} "}, follow=True)
    assert f"Source changed to {place}." in answer.text
    project.refresh_from_db()
    assert (project.source, project.branch, project.fetch_fault) == (place, "main", "")
    assert project.tasks.get() == old
    assert create_task(project, TEXT, by=acting(runner.user), where="t").base_commit == newest
    entry = AuditEntry.objects.get(action=Action.SETTINGS_CHANGED)
    assert entry.detail["changed"]["source"][1] == place
    assert place in client.get(address).text.split("changes-title")[2]


def test_without_the_branch_tasks_start_from_the_one_that_is_checked_out(
    project: Project, root: User, tmp_path: Path
) -> None:
    other = GitRepository.make(tmp_path / "other", **{"cat-herder.yaml": ONE_STEP})
    other.git("branch", "-m", "trunk")
    client, address = page_of(project, root)
    answer = client.post(address, {"source": str(other.path)}, follow=True)
    assert "It has no branch main, so tasks start from trunk." in answer.text
    project.refresh_from_db()
    assert project.branch == "trunk"
    assert paths.repository(project).head("trunk") == other.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ("", "Enter a folder"),
        ("/no/such/folder", "/no/such/folder does not exist"),
        ("http://example.org/shop.git", "only https and ssh"),
        ("https://ann:secret@example.org/shop.git", "must not contain a password"),
        ("x\0y", "Null characters are not allowed"),
    ],
)
def test_a_folder_without_a_repository_is_reported_and_nothing_changes(
    typed: str, fault: str, project: Project, root: User
) -> None:
    client, address = page_of(project, root)
    answer = client.post(address, {"source": typed})
    assert answer.status_code == 400 and fault in answer.text
    after = Project.objects.get()
    assert (after.source, after.fetch_fault) == (project.source, "")
    assert not AuditEntry.objects.filter(action=Action.SETTINGS_CHANGED).exists()


def test_a_fetch_that_fails_puts_the_old_place_back(project: Project, root: User, tmp_path: Path) -> None:
    """The place answers, but a file in it is damaged."""
    other = GitRepository.make(tmp_path / "other", **{"only-here.txt": "x"})
    blob = other.git("rev-parse", "HEAD:only-here.txt")
    damaged = other.path / ".git" / "objects" / blob[:2] / blob[2:]
    damaged.chmod(0o600)
    damaged.write_bytes(b"nothing")
    client, address = page_of(project, root)
    answer = client.post(address, {"source": str(other.path)})
    assert answer.status_code == 400 and "fetch failed" in answer.text
    assert f'value="{other.path}"' in answer.text  # what was typed stays
    after = Project.objects.get()
    assert (after.source, after.branch) == (project.source, "main")


def test_a_maintainer_sees_it_and_cannot_change_it(project: Project, tmp_path: Path) -> None:
    """Who could name any folder of the portal's machine would read what its user can."""
    other = GitRepository.make(tmp_path / "other", **{"cat-herder.yaml": ONE_STEP})
    maintainer = MembershipFactory.create(project=project, role=Role.MAINTAINER).user
    client, address = page_of(project, maintainer)
    assert "Change source" not in client.get(address).text
    assert client.post(address, {"source": str(other.path)}).status_code == 403
    answer = Script(maintainer).send("patch", f"/projects/{project.name}", {"source": str(other.path)})
    assert (answer.status_code, answer["Content-Type"]) == (403, PROBLEM)
    assert Project.objects.get().source == project.source


def test_the_api_moves_it_too(project: Project, root: User, tmp_path: Path) -> None:
    place, name, script = moved(project, tmp_path / "elsewhere"), f"/projects/{project.name}", Script(root)
    said = script.send("patch", name, {"source": place}).json()
    assert (said["source"], said["branch"], said["fetch_fault"]) == (place, "main", "")
    refused = script.send("patch", name, {"source": "/no/such/folder"})
    assert refused.status_code == 409 and "does not exist" in refused.json()["detail"]
    assert script.send("patch", name, {}).json()["source"] == place
