"""The default branch of a source is renamed: that is said, and mended with one click or command (R5)."""

from __future__ import annotations

import threading
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.urls import reverse

from tasks_app.core.errors import BranchMissing, NotAllowed
from tasks_app.git import Repository
from tasks_app.models import Action, AuditEntry, Project, Role, User
from tasks_app.operations.doctor import Level, data
from tasks_app.services.projects.projects import PATIENCE, fetch
from tasks_app.services.projects.settings import use_default_branch
from tasks_app.services.tasks import create_task
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "# Paint it\n\nBlue.\n"


@pytest.fixture
def project(runner: Runner) -> Project:
    """Its branch was renamed from main to trunk, and the portal has fetched since."""
    found = runner.project()
    GitRepository(Path(found.source)).git("branch", "-m", "main", "trunk")
    with pytest.raises(BranchMissing, match=r"no branch main.*renamed.*default branch .* is trunk"):
        fetch(found)
    found.refresh_from_db()
    return found


@pytest.fixture
def root() -> User:
    return UserFactory.create(username="root", is_superuser=True)


def test_the_page_says_it_and_mends_it_with_one_click(project: Project, root: User) -> None:
    client = signed_in(root)
    page = client.get(reverse("project", args=[project.pk])).text
    assert page.count("has no branch main") == 1 and "default branch of the source is trunk" in page
    assert "default_branch" in page
    answer = client.post(reverse("project_settings", args=[project.pk]), {"default_branch": "1"}, follow=True)
    assert "Tasks now start from the branch trunk." in answer.text and "has no branch" not in answer.text
    project.refresh_from_db()
    assert (project.branch, project.fetch_fault) == ("trunk", "")
    entry = AuditEntry.objects.get(action=Action.SETTINGS_CHANGED)
    assert entry.detail["changed"]["branch"] == ["main", "trunk"]
    assert create_task(project, TEXT, by=acting(root), where="t").base_commit


def test_a_slow_source_keeps_no_page_waiting(
    project: Project, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch goes on in a thread; until it has ended the project's page says that it runs."""
    answered, in_time = threading.Event(), list[bool]()
    fetch_at_once = Repository.fetch

    def fetch_slowly(repository: Repository, **options: bool) -> object:
        in_time.append(answered.wait(PATIENCE + 20))
        return fetch_at_once(repository, **options)

    monkeypatch.setattr(Repository, "fetch", fetch_slowly)
    answer = signed_in(root).post(reverse("project_settings", args=[project.pk]), {"default_branch": "1"})
    answered.set()
    assert answer.status_code == 302
    wait_until(lambda: Project.objects.filter(pk=project.pk, fetching_since=None, fetch_fault="").exists())
    assert in_time == [True] and Project.objects.get(pk=project.pk).branch == "trunk"


def test_only_maintainers_mend_it(project: Project) -> None:
    member = MembershipFactory.create(project=project, role=Role.MEMBER).user
    client = signed_in(member)
    page = client.get(reverse("project", args=[project.pk])).text
    assert "has no branch main" in page and "default_branch" not in page
    where = reverse("project_settings", args=[project.pk])
    assert client.post(where, {"default_branch": "1"}).status_code == 403
    with pytest.raises(NotAllowed):
        use_default_branch(project, by=acting(member))
    project.refresh_from_db()
    assert project.branch == "main"


def test_doctor_and_the_settings_command_mend_it(project: Project, root: User) -> None:
    (finding,) = data.repositories()
    assert finding.level is Level.PROBLEM and "no branch main" in finding.text and finding.fix is not None
    assert "trunk" in finding.fix()
    (finding,) = data.repositories()
    assert finding.level is Level.OK
    GitRepository(Path(project.source)).git("branch", "other")
    fetch(Project.objects.get(pk=project.pk))
    call_command("project", "settings", project.name, "--branch", "other", "--as", "root", stdout=StringIO())
    project.refresh_from_db()
    assert project.branch == "other"
