"""The dashboard's filters, the button in each row, and actions on many tasks at once (W2)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Role, Task, User
from tasks_app.web import counting
from tasks_app.web.tasks import dashboard
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)
from tests.markup import tidy

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, username="root")


@pytest.fixture
def browser(admin: User) -> Client:
    return signed_in(admin)


def titles(page: str) -> list[str]:
    return re.findall(r'id="row-\d+-link"[^>]*>([^<]*)</a>', page)


def bulk(browser: Client, action: str, *tasks: Task, **options: Any) -> Any:
    fields = {"action": action, "task": [task.pk for task in tasks]}
    return browser.post(reverse("tasks_bulk"), fields, **options)


def results(page: str) -> list[tuple[str, str]]:
    """The titles and what is said of each."""
    return re.findall(r'<li>.*?<a [^>]*>([^<]*)</a><span class="quiet">([^<]*)</span></li>', tidy(page))


def test_filters_are_in_the_url_and_stay_from_link_to_link(browser: Client, admin: User) -> None:
    shop = ProjectFactory.create(name="shop & co")
    mine = TaskFactory.create(project=shop, title="Round the totals", created_by=admin)
    TaskFactory.create(title="Round the corners")
    TaskFactory.create(project=shop, title="Show the tax")
    assert titles(browser.get("/", {"q": "round"}).text) == ["Round the corners", mine.title]
    assert titles(browser.get("/", {"q": "the ROUND tot"}).text) == [mine.title]
    assert titles(browser.get("/", {"project": shop.name}).text) == ["Show the tax", mine.title]
    assert titles(browser.get("/", {"mine": "yes"}).text) == [mine.title]
    assert titles(browser.get("/", {"mine": "yes", "project": shop.name, "q": "tax"}).text) == []
    TaskFactory.create_batch(6, project=shop, title="More tax")
    page = browser.get("/", {"project": shop.name, "q": "tax"}).text
    assert 'href="?q=tax&amp;project=shop+%26+co&amp;group=not-running">All 7' in page
    group = browser.get("/", {"project": shop.name, "q": "tax", "group": "not-running"}).text
    assert len(titles(group)) == 7 and 'href="?q=tax&amp;project=shop+%26+co&amp;">All groups' in group


def test_filters_that_find_nothing_can_be_cleared(browser: Client) -> None:
    TaskFactory.create()
    page = browser.get("/", {"q": "no such thing"}).text
    assert "No matching tasks" in page and "Clear filters" in page and "Create the first task" not in page


def test_a_task_of_a_sequence_is_found_by_its_folder(browser: Client) -> None:
    sequence = SequenceFactory.create(folder="tasks/prices")
    TaskFactory.create(title="One", project=sequence.project, sequence=sequence)
    assert titles(browser.get("/", {"q": "prices"}).text) == ["One"]


@pytest.mark.parametrize("garbage", ["\x00", "'; --", "x" * 5000, "%", "_", "\\"])
def test_garbage_in_the_url_is_no_error(browser: Client, garbage: str) -> None:
    TaskFactory.create()
    assert browser.get("/", dict.fromkeys(("q", "project", "mine"), garbage)).status_code == 200


def test_the_filters_say_nothing_of_projects_that_one_may_not_see() -> None:
    TaskFactory.create(project=ProjectFactory.create(name="secret"), title="Hidden")
    member = signed_in(MembershipFactory.create().user)
    page = member.get("/", {"project": "secret"}).text
    assert titles(page) == [] and ">secret<" not in page


def test_the_backlog_and_what_was_cancelled_are_folded_to_five(browser: Client) -> None:
    for phase in (Phase.PENDING, Phase.CANCELLED):
        TaskFactory.create_batch(7, phase=phase)
    page = browser.get("/").text
    assert len(titles(page)) == 10 and page.count("All 7") == 2


def test_what_is_too_much_to_count_has_a_plus_and_the_rest_is_in_the_history(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, F: no page reads a million tasks to say how many there are."""
    monkeypatch.setattr(dashboard, "PAGE", 2)
    monkeypatch.setattr(counting, "MOST_COUNTED", 6)
    monkeypatch.setattr(counting, "MOST_LISTED", 4)
    TaskFactory.create_batch(6, phase=Phase.CANCELLED)
    page = browser.get("/").text
    assert '<span class="number">6</span>' in page and ">All 6</a>" in page
    TaskFactory.create(phase=Phase.CANCELLED)
    page = browser.get("/").text
    assert '<span class="number">6+</span>' in page and ">All 6+</a>" in page
    first, last = (tidy(browser.get("/", {"group": "cancelled", "page": number}).text) for number in (1, 99))
    assert "Page 1 of 2+" in first and ">Next</a>" in first and "More in the history" not in first
    assert "Page 2 of 2+" in last and ">Next</a>" not in last
    assert '/history/?phase=cancelled">More in the history</a>' in last
    assert len(titles(first)) == len(titles(last)) == 2


def test_ended_tasks_are_shown_with_the_last_one_first(browser: Client) -> None:
    now = timezone.now()
    for title, phase, hours in (
        ("Failed long ago", Phase.FAILED, 9),
        ("Failed just now", Phase.FAILED, 1),
        ("Done long ago", Phase.DONE, 8),
        ("Done just now", Phase.DONE, 2),
    ):
        TaskFactory.create(title=title, phase=phase, ended_at=now - timedelta(hours=hours))
    assert titles(browser.get("/").text) == [
        "Failed just now", "Failed long ago", "Done just now", "Done long ago",
    ]  # fmt: skip


def test_each_row_has_the_action_that_its_task_needs(browser: Client) -> None:
    failed, cancelled = TaskFactory.create(phase=Phase.FAILED), TaskFactory.create(phase=Phase.CANCELLED)
    done = TaskFactory.create(phase=Phase.DONE, head_commit="b" * 40)
    waiting = QuestionFactory.create(task__phase=Phase.WAITING_FOR_INPUT).task
    page = browser.get("/").text
    for task in (failed, cancelled):
        assert f'action="{reverse("task_resume", args=[task.pk])}"' in page
    assert f'id="row-{done.pk}-review" href="{reverse("task_diff", args=[done.pk])}"' in page
    assert f'id="row-{waiting.pk}-answer"' in page
    viewer = signed_in(MembershipFactory.create(project=failed.project, role=Role.VIEWER).user)
    page = viewer.get("/").text
    assert failed.title in page and "/resume/" not in page and 'name="task"' not in page


def test_many_tasks_are_started_at_once_and_each_says_what_was_done(browser: Client, admin: User) -> None:
    new, queued = (
        TaskFactory.create(title="New"),
        TaskFactory.create(title="Queued", queued_at=timezone.now()),
    )
    done = TaskFactory.create(title="Ended", phase=Phase.DONE)
    page = bulk(browser, "start", new, queued, done, headers=HTMX).text
    assert "1 of 3 started" in page and "<html" not in page
    assert results(page) == [
        ("New", "started"),
        ("Queued", "Task “Queued” was started before and is pending."),
        ("Ended", "Task “Ended” was started before and is done."),
    ]
    new.refresh_from_db()
    assert new.queued_at is not None
    entry = AuditEntry.objects.get(action=Action.TASK_STARTED)
    assert (entry.task, entry.actor) == (new, admin)
    assert "0 of 1 started" in bulk(browser, "start", new).text  # sent again, it changes nothing
    assert AuditEntry.objects.filter(action=Action.TASK_STARTED).count() == 1


def test_many_tasks_are_cancelled_resumed_and_retried(browser: Client) -> None:
    tasks = [TaskFactory.create(phase=Phase.RUNNING, title=f"T{number}") for number in range(3)]
    assert "3 of 3 cancelled" in bulk(browser, "cancel", *tasks).text
    assert {task.phase for task in Task.objects.all()} == {Phase.CANCELLED}
    assert "0 of 3 cancelled" in bulk(browser, "cancel", *tasks).text
    assert "1 of 1 resumed" in bulk(browser, "resume", tasks[0]).text
    page = bulk(browser, "retry", *tasks).text
    assert "0 of 3 retried" in page and "cancel it first" in page and "has not run yet" in page
    RunFactory.create(step=tasks[1].steps.get(position=1))
    page = bulk(browser, "retry", *tasks[1:]).text
    assert results(page)[0] == ("T1", "retried") and "1 of 2 retried" in page
    phases = [Task.objects.get(pk=task.pk).phase for task in tasks]
    assert phases == [Phase.PENDING, Phase.PENDING, Phase.CANCELLED]


def test_a_viewer_is_refused_per_task_and_an_outsider_learns_nothing() -> None:
    task = TaskFactory.create(title="Look only")
    viewer = signed_in(MembershipFactory.create(project=task.project, role=Role.VIEWER).user)
    page = bulk(viewer, "start", task).text
    assert "0 of 1 started" in page and "does not allow this" in page
    outsider = bulk(signed_in(UserFactory.create()), "start", task).text
    assert "No tasks were selected" in outsider and task.title not in outsider
    task.refresh_from_db()
    assert task.not_started


@pytest.mark.parametrize("action", ["", "nonsense", "start"])
@pytest.mark.parametrize("task", ["", "0", "-1", "9" * 40, "\x00", "x"])
def test_an_unusable_selection_changes_nothing(browser: Client, action: str, task: str) -> None:
    page = browser.post(reverse("tasks_bulk"), {"action": action, "task": task}, follow=True)
    assert page.status_code == 200
