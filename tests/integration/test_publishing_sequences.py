"""The result of a sequence is published from its page, by the API and in a terminal (V6, P10)."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import Project, Publication, Role, Sequence, Task
from tests.browser import signed_in
from tests.factories import MembershipFactory, SequenceFactory, TaskFactory
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.results import Result

pytestmark = pytest.mark.django_db


@pytest.fixture
def sequence(done: Result) -> Sequence:
    """A sequence of two tasks that is done; only the first one changed something."""
    task = done.task
    sequence = SequenceFactory.create(
        project=task.project, branch=task.branch, phase=Phase.DONE, base_commit=task.base_commit,
        head_commit=task.head_commit,
    )  # fmt: skip
    Task.objects.update(sequence=sequence, file="01.md")
    TaskFactory.create(
        project=task.project, sequence=sequence, file="02.md", branch=task.branch, phase=Phase.DONE,
        base_commit=task.base_commit, head_commit=task.head_commit,
    )  # fmt: skip
    return sequence


def page_of(sequence: Sequence, role: Role = Role.MEMBER) -> str:
    browser = signed_in(MembershipFactory.create(project=sequence.project, role=role).user)
    return browser.get(reverse("sequence", args=[sequence.pk])).content.decode()


def test_v6_its_page_publishes_the_branch_with_all_the_work(done: Result, sequence: Sequence) -> None:
    url = reverse("sequence_publish", args=[sequence.pk])
    assert f'action="{url}"' in page_of(sequence)
    browser = signed_in(MembershipFactory.create(project=sequence.project).user)
    page = browser.post(url, {"squash": "yes"}, follow=True)
    assert page.redirect_chain == [(reverse("sequence", args=[sequence.pk]), 302)]
    publication = Publication.objects.get()
    assert (publication.task.file, publication.squash) == ("02.md", True)
    assert "Publishing <span" in page.content.decode()
    carry_out(publication.pk)
    assert done.remote.git("show", f"{done.head}:paint.txt") == "blue"
    assert "Published as" in tidy(page_of(sequence, Role.VIEWER))


def test_a_viewer_sees_no_button_and_is_refused(sequence: Sequence) -> None:
    assert "do-publish" not in page_of(sequence, Role.VIEWER)
    browser = signed_in(MembershipFactory.create(project=sequence.project, role=Role.VIEWER).user)
    browser.post(reverse("sequence_publish", args=[sequence.pk]))
    assert not Publication.objects.exists()


def test_the_same_reasons_hinder_it(sequence: Sequence) -> None:
    Project.objects.update(protected_branches="cat-herder/*", required_approvals=1)
    page = page_of(sequence)
    assert "protected by “cat-herder/*”" in page and "0 of 1 required approval" in page
    assert "do-publish" not in page


def test_while_a_task_of_it_works_there_is_nothing_to_publish(sequence: Sequence) -> None:
    sequence.tasks.filter(file="02.md").update(phase=Phase.RUNNING)
    Sequence.objects.update(phase=Phase.RUNNING)
    page = page_of(sequence)
    assert "publishing-title" not in page
    empty = SequenceFactory.create(project=sequence.project)
    browser = signed_in(MembershipFactory.create(project=sequence.project).user)
    for one in (sequence, empty):
        refused = browser.post(reverse("sequence_publish", args=[one.pk]), follow=True)
        assert refused.status_code == 200 and "messages" in refused.content.decode()
    assert not Publication.objects.exists()


def test_the_api_publishes_it(done: Result, sequence: Sequence) -> None:
    browser = signed_in(MembershipFactory.create(project=sequence.project).user)
    response = browser.post(f"/api/v1/sequences/{sequence.pk}/publish", {}, "application/json")
    assert response.status_code == 202, response.content
    assert response.json()["task"] == sequence.tasks.get(file="02.md").pk
    carry_out(response.json()["id"])
    assert done.head == done.task.head_commit
    empty = SequenceFactory.create(project=sequence.project)
    refused = browser.post(f"/api/v1/sequences/{empty.pk}/publish", {}, "application/json")
    assert (refused.status_code, refused.json()["status"]) == (409, 409)


def test_the_terminal_publishes_it(done: Result, sequence: Sequence, manage: Manage) -> None:
    code, out, _ = manage("publish", f"sequence:{sequence.pk}", "--json")
    assert (code, json.loads(out)["state"]) == (0, "pushed")
    assert done.head == done.task.head_commit
    assert manage("publish", "sequence:999")[0] == 2
