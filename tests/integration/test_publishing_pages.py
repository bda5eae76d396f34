"""Publishing in the browser: the button, the outcome, and a project's settings for it (V6)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Publication, PublishCredential, PullRequest, Role, Task
from tasks_app.services.publishing.pull_request_text import commit_message
from tests.browser import signed_in
from tests.factories import MembershipFactory, TaskFactory, UserFactory
from tests.git_servers import ssh_key
from tests.markup import tidy

pytestmark = pytest.mark.django_db

TOKEN = "glpat-0123456789abcdef"


@pytest.fixture
def task(project: Project) -> Task:
    """A task that is done, with a result."""
    return TaskFactory.create(project=project, phase=Phase.DONE, base_commit="a" * 40, head_commit="b" * 40)


def browser_of(project: Project, role: Role = Role.MEMBER) -> Client:
    return signed_in(MembershipFactory.create(project=project, role=role).user)


def page_of(task: Task, role: Role = Role.MEMBER, name: str = "task") -> str:
    return tidy(browser_of(task.project, role).get(reverse(name, args=[task.pk])).text)


def publish(task: Task, **given: str) -> Any:
    return browser_of(task.project).post(reverse("task_publish", args=[task.pk]), given, follow=True)


def ended(task: Task, **values: Any) -> Publication:
    return Publication.objects.create(
        **{"task": task, "commit": task.head_commit, "url": "/srv/remote", "branch": task.branch, **values}
    )


def test_the_button_asks_for_a_publication(task: Task) -> None:
    assert 'id="do-publish"' in page_of(task)
    page = publish(task, squash="yes").content.decode()
    publication = Publication.objects.get()
    assert (publication.squash, publication.commit) == (True, task.head_commit)
    assert "Publishing" in page and 'id="do-publish"' not in page


def test_the_message_of_a_squashed_commit_is_shown_and_can_be_edited(task: Task) -> None:
    """Nobody saw it before it was pushed."""
    assert f'aria-describedby="squash-message-hint">{task.title}' in page_of(task)
    publish(task, squash="yes", message="Paint it\r\n\nAll of it.")
    publication = Publication.objects.get()
    assert publication.message == "Paint it\n\nAll of it."
    Publication.objects.update(state="refused")
    assert ">Paint it All of it.</textarea>" in page_of(task), "it is not to be typed again"


def test_the_message_that_is_proposed_for_a_long_task_is_accepted(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(body="All of it, and more. " * 2_000)
    task.refresh_from_db()
    publish(task, squash="yes", message=commit_message(task))
    assert Publication.objects.get().message.startswith(task.title)


def test_without_squashing_the_message_that_the_form_holds_does_not_count(task: Task) -> None:
    publish(task, message="Paint it")
    assert Publication.objects.get().message == ""


def test_a_viewer_sees_the_outcome_and_no_button(task: Task) -> None:
    ended(task, state="pushed", published_commit="b" * 40, answer="Create: https://git.example/new")
    page = page_of(task, Role.VIEWER)
    assert "Published as" in page and 'href="https://git.example/new"' in page
    assert 'id="do-publish"' not in page


def test_a_refusal_is_shown_and_can_be_tried_again(task: Task) -> None:
    ended(task, state="refused", answer="refused the branch: <b>not on a Friday</b>")
    page = page_of(task)
    assert "&lt;b&gt;not on a Friday" in page and 'id="do-publish"' in page


def test_each_result_of_ci_has_its_own_mark(task: Task) -> None:
    ended(task)
    states = {"unit": "passed", "lint": "failed", "build": "pending", "deploy": "skipped"}
    checks = [{"name": name, "state": state, "url": ""} for name, state in states.items()]
    PullRequest.objects.create(
        project=task.project, task=task, kind="github", url="x", number=1, base="main", checks=checks,
        next_look_at=timezone.now(),
    )  # fmt: skip
    shown = re.findall(r'#(\w+)"/></svg>(?:</span>)? ?(\w+) <span class="quiet">(\w+)<', page_of(task))
    assert shown == [
        ("check", "unit", "passed"),
        ("cross", "lint", "failed"),
        ("clock", "build", "pending"),
        ("slash", "deploy", "skipped"),
    ]


def test_new_work_is_distinguished_from_what_was_published(task: Task) -> None:
    ended(task, commit="c" * 40, published_commit="c" * 40, state="pushed")
    assert "Published an earlier result as" in page_of(task)


def test_hindrances_are_shown_instead_of_a_button(task: Task) -> None:
    Task.objects.update(head_commit=task.base_commit)
    page = page_of(task)
    assert "The task has changed nothing." in page and 'id="do-publish"' not in page
    assert "The task has changed nothing." in publish(task).content.decode()
    assert not Publication.objects.exists()


def test_what_was_published_is_still_shown_while_the_task_is_done_again(task: Task) -> None:
    ended(task, state="pushed", published_commit="b" * 40)
    Task.objects.update(phase=Phase.RUNNING)
    page = page_of(task, name="task_details")
    assert "Published as" in page and "this one is running" in page and 'id="do-publish"' not in page


def test_a_viewer_has_no_heading_without_a_publication(task: Task) -> None:
    viewer = MembershipFactory.create(project=task.project, role="viewer").user
    address = reverse("task", args=[task.pk])
    assert 'id="publishing-title"' not in signed_in(viewer).get(address).text
    ended(task, state="pushed", published_commit="b" * 40)
    assert 'id="publishing-title"' in signed_in(viewer).get(address).text


def test_without_a_result_there_is_nothing_about_publishing(task: Task) -> None:
    for values in ({"phase": Phase.RUNNING}, {"phase": Phase.DONE, "head_commit": ""}):
        Task.objects.update(**values)
        assert 'id="publishing-title"' not in page_of(task)


def settings_of(project: Project) -> str:
    return reverse("project_publishing", args=[project.pk])


def https(project: Project) -> Project:
    Project.objects.update(source="https://git.example/shop.git")
    project.refresh_from_db()
    return project


def test_a_token_is_stored_and_never_shown(project: Project) -> None:
    browser = browser_of(https(project), Role.MAINTAINER)
    page = browser.post(settings_of(project), {"username": "robot", "secret": TOKEN}, follow=True)
    text = page.content.decode()
    assert "Credential stored." in text and "user robot" in text and TOKEN not in text
    assert TOKEN not in PublishCredential.objects.get().encrypted_secret
    page = browser.post(reverse("project_credential_remove", args=[project.pk]), follow=True)
    assert "None stored." in page.content.decode() and not PublishCredential.objects.exists()


def test_an_error_does_not_repeat_the_secret(project: Project, tmp_path: Any) -> None:
    Project.objects.update(source="git@git.example:shop.git")
    browser = browser_of(project, Role.MAINTAINER)
    key = ssh_key(tmp_path / "key", passphrase="secret")
    for given in ({"secret": key, "known_hosts": ""}, {"secret": key, "known_hosts": "host key"}):
        page = browser.post(settings_of(project), given)
        assert page.status_code == 400 and key.splitlines()[1] not in page.content.decode()
    assert "has a passphrase" in page.content.decode()
    assert not PublishCredential.objects.exists()


def test_a_folder_takes_no_credential(project: Project) -> None:
    browser = browser_of(project, Role.MAINTAINER)
    assert "needs none" in browser.get(settings_of(project)).content.decode()
    browser.post(settings_of(project), {"username": "robot", "secret": TOKEN})
    assert not PublishCredential.objects.exists()


def test_a_maintainer_changes_the_protected_branches_and_the_author(project: Project) -> None:
    browser = browser_of(project, Role.MAINTAINER)
    given = {"protected_branches": "main\r\nv*", "author": "Bot <bot@example.org>"}
    assert "Saved." in browser.post(settings_of(project), given, follow=True).content.decode()
    project.refresh_from_db()
    assert (project.protected_branches, project.publish_author) == ("main\nv*", "Bot <bot@example.org>")
    assert browser.post(settings_of(project), given | {"url": "/elsewhere"}).status_code == 403
    page = browser.post(settings_of(project), given | {"author": "nobody"})
    assert page.status_code == 400 and "Name &lt;address" in page.content.decode()


def test_a_site_admin_says_where_results_go(project: Project) -> None:
    admin = signed_in(UserFactory.create(is_superuser=True))
    given = {"url": "https://git.example/fork.git", "protected_branches": "main", "author": ""}
    admin.post(settings_of(project), given)
    project.refresh_from_db()
    assert project.publish_url == "https://git.example/fork.git"
    bad = admin.post(settings_of(project), given | {"url": "ftp://git.example/x"})
    assert bad.status_code == 400 and "only https and ssh URLs" in bad.content.decode()


def test_a_member_looks_and_changes_nothing(project: Project) -> None:
    browser = browser_of(https(project))
    assert "Maintainers of the project can change this." in browser.get(settings_of(project)).content.decode()
    for given in ({"username": "robot", "secret": TOKEN}, {"protected_branches": "", "author": ""}):
        assert browser.post(settings_of(project), given).status_code == 403
    assert not PublishCredential.objects.exists()
