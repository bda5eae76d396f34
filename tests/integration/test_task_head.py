"""The head of a task's pages: tabs, the one primary action, and what arrives (U2)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Asked, AskedBy, Project, Publication, Role, Task, User
from tasks_app.services.publishing.settings import target_of
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    QuestionFactory,
    ReviewFactory,
    RunFactory,
    TaskFactory,
    UserFactory,
)
from tests.markup import tidy

pytestmark = pytest.mark.django_db

TABS = ("task", "task_log", "task_diff", "task_questions", "task_details")


@pytest.fixture
def browser() -> Client:
    return signed_in(UserFactory.create(is_superuser=True, first_name="Ada"))


def head_of(browser: Client, task: Task, **shown: Any) -> str:
    return tidy(browser.get(reverse("task_header", args=[task.pk]), {"tab": "overview", **shown}).text)


def primary(page: str) -> list[str]:
    """The ids of the buttons that are the primary action."""
    head = page.partition('<div class="task-actions">')[2].partition("<details")[0].partition("<nav")[0]
    return re.findall(r'id="([^"]+)"', head)


def finished(**values: Any) -> Task:
    return TaskFactory.create(phase=Phase.DONE, base_commit="a" * 40, head_commit="b" * 40, **values)


def test_what_is_asked_of_another_person_does_not_need_your_answer() -> None:
    """The list of tasks puts it among those that wait for others, too."""
    question = QuestionFactory.create()
    owner, other = UserFactory.create(is_superuser=True), UserFactory.create(is_superuser=True)
    for user in (owner, other):
        assert "needs your answer" in head_of(signed_in(user), question.task)
    Asked.objects.create(
        question=question, user=owner, asked_by=AskedBy.OWNER, why="owns it", at=timezone.now()
    )
    assert "needs your answer" in head_of(signed_in(owner), question.task)
    assert "waiting for input" in head_of(signed_in(other), question.task)


def test_each_tab_is_a_page_with_the_same_head(browser: Client) -> None:
    task = QuestionFactory.create().task
    for name in TABS:
        page = tidy(browser.get(reverse(name, args=[task.pk])).text)
        assert f'<h1 title="{task.title}">' in page and page.count('class="task-bar"') == 1
        current = re.findall(
            r'<a href="([^"]+)" aria-current="page">', page.partition("Pages of the task")[2]
        )
        assert current == [reverse(name, args=[task.pk])]


def test_the_former_address_of_the_questions_leads_to_their_tab(browser: Client) -> None:
    task = TaskFactory.create()
    answer = browser.get(f"/tasks/{task.pk}/history/")
    assert (answer.status_code, answer["Location"]) == (302, reverse("task_questions", args=[task.pk]))


@pytest.mark.parametrize("phase", list(Phase))
def test_the_overview_shows_first_what_counts(browser: Client, phase: Phase) -> None:
    task = TaskFactory.create(phase=phase, started_at=timezone.now(), queued_at=timezone.now())
    if phase == Phase.WAITING_FOR_INPUT:
        QuestionFactory.create(task=task, run=RunFactory.create(step=task.steps.first()))
    page = tidy(browser.get(reverse("task", args=[task.pk])).text)
    modes = {Phase.WAITING_FOR_INPUT: "waiting", Phase.DONE: "ended", Phase.FAILED: "ended"}
    modes[Phase.CANCELLED] = "ended"
    mode = modes.get(phase, "working")
    assert f'class="task task-overview mode-{mode}"' in page
    main = page.partition('class="task-main"')[2].partition('class="task-side"')[0]
    assert ("log-box" in main) == (mode == "working" or phase in (Phase.FAILED, Phase.CANCELLED))
    assert ('id="questions"' in main) == (mode == "waiting")


def test_what_arrives_has_its_line_and_what_the_page_shows_is_no_arrival(browser: Client) -> None:
    question = QuestionFactory.create()
    task, link = question.task, f"/tasks/{question.task_id}/?now#question-{question.pk}"
    arrived = head_of(browser, task, shown="working")
    assert "The agent asks: " in arrived and link in arrived and primary(arrived) == ["do-answer"]
    shown = head_of(browser, task, shown="waiting", known=question.pk)
    assert "The agent asks: " not in shown and primary(shown) == []
    Task.objects.update(phase=Phase.FAILED)
    question.delete()
    assert 'id="arrival"' in head_of(browser, task, shown="working")
    assert 'id="arrival"' not in head_of(browser, task, shown="ended")


def test_a_viewer_is_not_told_to_answer(browser: Client) -> None:
    task = QuestionFactory.create().task
    viewer = signed_in(MembershipFactory.create(project=task.project, role=Role.VIEWER).user)
    page = head_of(viewer, task, shown="working")
    assert primary(page) == [] and ">Show " in page and 'id="more"' not in page


def test_the_primary_action_is_what_comes_next(browser: Client) -> None:
    assert primary(head_of(browser, TaskFactory.create())) == ["do-start"]
    failed = TaskFactory.create(phase=Phase.FAILED, started_at=timezone.now(), queued_at=timezone.now())
    assert primary(head_of(browser, failed, shown="ended")) == ["do-resume"]
    task = finished()
    assert primary(head_of(browser, task, shown="ended")) == ["do-review"]
    ReviewFactory.create(task=task, number=1, verdict="approve", commit=task.head_commit)
    page = head_of(browser, task, shown="ended")
    assert primary(page) == ["to-publish"] and ">Approved<" in page
    Publication.objects.create(
        task=task, commit=task.head_commit, published_commit="b" * 40, url="x", branch="b", state="pushed"
    )
    page = head_of(browser, task, shown="ended")
    assert primary(page) == [] and ">Published<" in page, "publishing is not offered again"


def test_a_result_is_approved_and_published_in_one(browser: Client, project: Project) -> None:
    task = finished(project=project)
    page = tidy(browser.get(reverse("task", args=[task.pk])).text)
    assert 'id="do-approve-and-publish"' in page and f'name="commit" value="{task.head_commit}"' in page
    sent = browser.post(reverse("task_publish", args=[task.pk]), {"approve": "yes"}, follow=True)
    assert task.reviews.get().verdict == "approve" and task.publications.count() == 1
    assert f"{task.branch} is being published to {target_of(project)}" in tidy(sent.text)


def test_a_review_that_approves_and_publishes_says_to_where(browser: Client, project: Project) -> None:
    task = finished(project=project)
    sent = browser.post(
        reverse("review_send", args=[task.pk]), {"verdict": "approve_and_publish"}, follow=True
    )
    assert f"{task.branch} is being published to {target_of(project)}" in tidy(sent.text)


def test_a_result_that_has_changed_is_neither_approved_nor_published(
    browser: Client, project: Project
) -> None:
    task = finished(project=project)
    given = {"approve": "yes", "commit": "c" * 40}
    browser.post(reverse("task_publish", args=[task.pk]), given)
    assert not task.reviews.exists() and not task.publications.exists()


def test_one_approval_that_is_missing_is_given_with_publishing(browser: Client, project: Project) -> None:
    Project.objects.update(required_approvals=1)
    task = finished(project=Project.objects.get())
    assert 'id="do-approve-and-publish"' in browser.get(reverse("task", args=[task.pk])).text
    Task.objects.update(created_by=User.objects.get(first_name="Ada"))
    page = browser.get(reverse("task", args=[task.pk])).text
    assert "do-approve-and-publish" not in page and "0 of 1 required approval" in page, (
        "their own does not count"
    )


def test_what_was_published_is_published_again_only_on_request(browser: Client, project: Project) -> None:
    task = finished(project=project)
    Publication.objects.create(
        task=task, commit=task.head_commit, published_commit="b" * 40, url="x", branch="b", state="pushed"
    )
    page = tidy(browser.get(reverse("task", args=[task.pk])).text)
    assert 'id="publish-again"' in page and "do-approve-and-publish" not in page
    assert page.index('id="publish-again"') < page.index('id="do-publish"')
