"""The list of tasks: whose turn it is, filters, the button in each row, many tasks at once (W2)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.git.program import Git
from tasks_app.models import (
    Action,
    AuditEntry,
    Outcome,
    Project,
    Publication,
    PublicationState,
    PublishCredential,
    ReviewVerdict,
    Role,
    Run,
    Task,
    User,
)
from tasks_app.services.task_groups import GROUPS
from tasks_app.web import counting, task_rows
from tasks_app.web.tasks import lists
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    ReviewFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    ThreadFactory,
    UserFactory,
)
from tests.fake_script import Turn, say, write
from tests.markup import tidy
from tests.runner import Runner

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
    TaskFactory.create(title="Round the corners", body="")
    TaskFactory.create(project=shop, title="Show the tax", body="")
    assert titles(browser.get("/tasks/", {"q": "round"}).text) == ["Round the corners", mine.title]
    assert titles(browser.get("/tasks/", {"q": "the ROUND tot"}).text) == [mine.title]
    assert titles(browser.get("/tasks/", {"project": shop.name}).text) == ["Show the tax", mine.title]
    assert titles(browser.get("/tasks/", {"person": "root"}).text) == [mine.title]
    assert titles(browser.get("/tasks/", {"person": "root", "project": shop.name, "q": "tax"}).text) == []
    TaskFactory.create_batch(6, project=shop, title="More tax")
    page = browser.get("/tasks/", {"project": shop.name, "q": "tax"}).text
    assert 'href="?q=tax&amp;project=shop+%26+co&amp;group=not-started">All 7' in page
    group = browser.get("/tasks/", {"project": shop.name, "q": "tax", "group": "not-started"}).text
    assert len(titles(group)) == 7 and 'href="?q=tax&amp;project=shop+%26+co&amp;">All groups' in group


def test_filters_that_find_nothing_can_be_cleared(browser: Client) -> None:
    TaskFactory.create()
    page = browser.get("/tasks/", {"q": "no such thing"}).text
    assert "No matching tasks" in page and "Clear filters" in page and "Create the first task" not in page


def test_a_task_of_a_sequence_is_found_by_its_folder(browser: Client) -> None:
    sequence = SequenceFactory.create(folder="tasks/prices")
    TaskFactory.create(title="One", project=sequence.project, sequence=sequence)
    assert titles(browser.get("/tasks/", {"q": "prices"}).text) == ["One"]


def everything(project: Project) -> dict[str, Task]:
    """Tasks of one project in every state that a list distinguishes, by the group that each belongs to."""
    now = timezone.now()
    held = {"lease_owner": "w", "lease_epoch": 1, "lease_expires": now + timedelta(seconds=20)}
    done = {"phase": Phase.DONE, "base_commit": "a" * 40, "head_commit": "b" * 40, "ended_at": now}
    made: dict[str, dict[str, Any]] = {
        "answer": {"phase": Phase.WAITING_FOR_INPUT},
        "failed": {"phase": Phase.FAILED, "ended_at": now},
        "failed: interrupted": {"phase": Phase.INTERRUPTED},
        "working": {"phase": Phase.RUNNING, **held},
        "queued: its worker died": {"phase": Phase.RUNNING, **held, "lease_expires": now},
        "queued": {"queued_at": now},
        "queued: answered": {"queued_at": now, "undo_until": now + timedelta(seconds=9)},
        "queued: limit": {"phase": Phase.WAITING_FOR_RESET, "queued_at": now},
        "not-started": {},
        "review": done,
        "review: approved as it was": done,
        "finished: nothing changed": {**done, "head_commit": "a" * 40},
        "finished: no result": {**done, "head_commit": ""},
        "finished: approved": done,
        "finished: published": done,
        "finished: cancelled": {"phase": Phase.CANCELLED, "ended_at": now},
    }
    tasks = {name: TaskFactory.create(project=project, title=name, **fields) for name, fields in made.items()}
    approve = {"verdict": ReviewVerdict.APPROVE, "commit": "b" * 40}
    ReviewFactory.create(task=tasks["finished: approved"], **approve)
    ReviewFactory.create(task=tasks["review: approved as it was"], **{**approve, "commit": "c" * 40})
    Publication.objects.create(
        task=tasks["finished: published"], commit="b" * 40, url="x", branch="x", state=PublicationState.PUSHED
    )
    return tasks


def test_each_task_is_in_the_group_of_those_whose_turn_it_is(browser: Client) -> None:
    tasks = everything(ProjectFactory.create())
    for group in GROUPS:
        page = browser.get("/tasks/", {"group": group.key}).text
        mine = {name for name in tasks if name.partition(":")[0] == group.key}
        assert set(titles(page)) & set(tasks) == mine, group.key


def test_an_approved_result_that_can_be_published_waits_for_that(browser: Client) -> None:
    task = TaskFactory.create(phase=Phase.DONE, head_commit="b" * 40, ended_at=timezone.now())
    ReviewFactory.create(task=task, verdict=ReviewVerdict.APPROVE, commit="b" * 40, author__first_name="Ann")
    assert titles(browser.get("/tasks/?group=review").text) == []
    PublishCredential.objects.create(
        project=task.project, kind="token", url="x", encrypted_secret="x", shown="x"
    )
    page = browser.get("/tasks/?group=review").text
    assert titles(page) == [task.title] and "approved by Ann" in page


def test_a_row_counts_the_checks_of_all_steps_and_the_threads_that_wait(browser: Client) -> None:
    """It counted those of the newest run, and threads that the agent had answered as open."""
    task = TaskFactory.create(phase=Phase.DONE, head_commit="b" * 40, ended_at=timezone.now())
    for position, passed in ((1, [True, True]), (2, [False])):
        checks = [{"check": f"make {number}", "passed": one} for number, one in enumerate(passed)]
        step, _ = task.steps.get_or_create(position=position, defaults={"name": f"s{position}", "config": {}})
        RunFactory.create(step=step, outcome=Outcome.FINISHED, checks=checks)
    for number, state in enumerate(("open", "answered", "answered", "resolved"), start=1):
        resolved_at = timezone.now() if state == "resolved" else None
        ThreadFactory.create(
            task=task, review__number=number, number=number, state=state, resolved_at=resolved_at
        )
    said = tidy(browser.get("/tasks/").text)
    assert "checks 2/3 · 1 open thread · 2 answered threads" in said
    assert f'id="row-{task.pk}-review"' in said
    Publication.objects.create(task=task, commit="b" * 40, url="x", branch="x", state=PublicationState.PUSHED)
    published = tidy(browser.get("/tasks/").text)
    assert f'id="row-{task.pk}-review"' not in published, "what is published is not reviewed"
    assert "published · checks 2/3 · 1 open thread" in published, "a narrow row cuts what comes last"


def test_of_a_sequence_only_the_last_result_is_reviewed(browser: Client) -> None:
    sequence = SequenceFactory.create()
    done = {"phase": Phase.DONE, "head_commit": "b" * 40, "sequence": sequence, "project": sequence.project}
    for number in (1, 2):
        TaskFactory.create(title=f"Part {number}", file=f"0{number}.md", **done)
    assert titles(browser.get("/tasks/?group=review").text) == ["Part 2"]


def summary(page: str) -> dict[str, str]:
    found = re.search(r'(?s)<nav id="task-summary".*?</nav>', page)
    assert found
    parts = re.findall(r"group=([a-z-]+)[^>]*>\s*<strong>([^<]+)</strong>", found[0])
    return dict(parts)


def test_the_summary_says_how_many_rows_there_are_and_what_today_costs(browser: Client) -> None:
    tasks = everything(ProjectFactory.create())
    RunFactory.create(task=tasks["working"], cost_usd=41.25)
    yesterday = RunFactory.create(task=tasks["failed"], cost_usd=7)
    Run.objects.filter(pk=yesterday.pk).update(started_at=timezone.now() - timedelta(days=1))
    page = browser.get("/tasks/").text
    counts = summary(page)
    assert counts == {"working": "1", "answer": "1", "review": "2", "failed": "2", "queued": "4"}
    for group, number in counts.items():
        assert len(titles(browser.get("/tasks/", {"group": group}).text)) == int(number), group
    assert "<strong>$41.25</strong> today" in page
    for phrase in ("1</strong> needs an answer", "2</strong> to review", "4</strong> queued"):
        assert phrase in page
    outsider = signed_in(MembershipFactory.create().user)
    page = outsider.get("/tasks/").text
    assert set(summary(page).values()) == {"0"} and "today" not in page


def test_the_numbers_are_those_of_the_rows_after_each_event_of_a_day(browser: Client) -> None:
    """Thirty agents ask, fail, end and wait; numbers and rows of each answer agree."""
    now = timezone.now()
    alive = {"lease_owner": "w", "lease_epoch": 1, "lease_expires": now}
    released = {"lease_owner": "", "lease_expires": None}
    working = {"phase": Phase.RUNNING, "queued_at": now, **alive}
    tasks = [TaskFactory.create(**working) for _ in range(30)]
    day: list[dict[str, Any]] = [
        {"phase": Phase.WAITING_FOR_INPUT, **released},
        {"phase": Phase.PENDING, "undo_until": now + timedelta(seconds=9), **released},
        {"phase": Phase.DONE, "head_commit": "b" * 40, "ended_at": now, **released},
        {"phase": Phase.FAILED, "ended_at": now, **released},
        {"phase": Phase.WAITING_FOR_RESET, "resets_at": now, **released},
        {"lease_expires": None},
        {"phase": Phase.CANCELLED, "ended_at": now, **released},
    ]
    for number, task in enumerate(tasks):
        for fields in (day[number % len(day)], *([working] * (number % 3 == 0))):
            Task.objects.filter(pk=task.pk).update(**fields)
            held = Task.objects.exclude(lease_expires=None)
            held.update(lease_expires=timezone.now() + timedelta(seconds=30))
            page = browser.get("/tasks/", headers=HTMX).text
            sections = (part.partition('"') for part in page.split('data-group="')[1:])
            rows = {group: len(titles(content)) for group, _, content in sections}
            counts = {group: int(count) for group, count in summary(page).items()}
            assert counts == {group: rows.get(group, 0) for group in counts}, (number, fields)
            headings = re.findall(r'id="task-group-([a-z-]+)">[^<]*<span class="number">(\d+)', page)
            assert {group: int(count) for group, count in headings if group in counts} == {
                group: count for group, count in counts.items() if count
            }
    assert sum(counts.values()) < 30


def test_waiting_tasks_stand_in_line_with_their_place(browser: Client) -> None:
    now = timezone.now()
    project = ProjectFactory.create()
    for minutes, priority in ((9, -1), (5, 0), (7, 1)):
        TaskFactory.create(
            project=project,
            title=f"{minutes} min",
            queued_at=now - timedelta(minutes=minutes),
            priority=priority,
        )
    page = tidy(browser.get("/tasks/").text)
    assert titles(page) == ["7 min", "5 min", "9 min"]
    assert re.findall(r"#\d in line", page) == ["#1 in line", "#2 in line", "#3 in line"]


@pytest.mark.parametrize(
    ("former", "address"),
    [
        ("/", "/tasks/"),
        ("/?q=tax&mine=yes", "/tasks/?q=tax&person=root"),
        ("/?group=needs-you&project=shop", "/tasks/?group=answer&project=shop"),
        ("/live/", "/tasks/?group=working"),
        ("/queue/", "/tasks/queue/"),
        ("/history/?kind=questions&q=a+b", "/tasks/all/?kind=questions&q=a+b"),
        ("/history/?phase=done&phase=failed", "/tasks/all/?phase=done&phase=failed"),
        ("/history/export.csv?phase=done", "/tasks/export.csv?phase=done"),
    ],
)
def test_addresses_of_earlier_versions_lead_here_with_their_filters(
    browser: Client, former: str, address: str
) -> None:
    answer = browser.get(former)
    assert (answer.status_code, answer["Location"]) == (302, address)


@pytest.mark.parametrize("garbage", ["\x00", "'; --", "x" * 5000, "%", "_", "\\"])
def test_garbage_in_the_url_is_no_error(browser: Client, garbage: str) -> None:
    TaskFactory.create()
    assert browser.get("/tasks/", dict.fromkeys(("q", "project", "person"), garbage)).status_code == 200


def test_the_filters_say_nothing_of_projects_that_one_may_not_see() -> None:
    TaskFactory.create(project=ProjectFactory.create(name="secret"), title="Hidden")
    member = signed_in(MembershipFactory.create().user)
    page = member.get("/tasks/", {"project": "secret"}).text
    assert titles(page) == [] and ">secret<" not in page


def test_of_the_backlog_five_are_shown_and_what_is_over_is_folded(browser: Client) -> None:
    TaskFactory.create_batch(7)
    TaskFactory.create_batch(17, phase=Phase.CANCELLED)
    page = browser.get("/tasks/").text
    assert len(titles(page)) == 5 + 15 and "All 7" in page and "All 17" in page
    assert '<details id="fold-finished" class="fold">' in page


def test_what_is_too_much_to_count_has_a_plus_and_the_rest_is_among_all_tasks(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, F: no page reads a million tasks to say how many there are."""
    monkeypatch.setattr(lists, "PAGE", 2)
    monkeypatch.setattr(counting, "MOST_COUNTED", 16)
    monkeypatch.setattr(counting, "MOST_LISTED", 4)
    TaskFactory.create_batch(16, phase=Phase.CANCELLED)
    page = browser.get("/tasks/").text
    assert '<span class="number">16</span>' in page and ">All 16</a>" in page
    TaskFactory.create(phase=Phase.CANCELLED)
    page = browser.get("/tasks/").text
    assert '<span class="number">16+</span>' in page and ">All 16+</a>" in page
    first, last = (
        tidy(browser.get("/tasks/", {"group": "finished", "page": number}).text) for number in (1, 99)
    )
    assert "Page 1 of 2+" in first and ">Next</a>" in first and "More in All" not in first
    assert "Page 2 of 2+" in last and ">Next</a>" not in last
    assert '/tasks/all/?">More in All</a>' in last
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
    assert titles(browser.get("/tasks/").text) == [
        "Failed just now", "Failed long ago", "Done just now", "Done long ago",
    ]  # fmt: skip


def test_each_row_has_the_action_that_its_task_needs(browser: Client) -> None:
    failed, cancelled = TaskFactory.create(phase=Phase.FAILED), TaskFactory.create(phase=Phase.CANCELLED)
    done = TaskFactory.create(phase=Phase.DONE, head_commit="b" * 40)
    waiting = QuestionFactory.create(task__phase=Phase.WAITING_FOR_INPUT).task
    page = browser.get("/tasks/").text
    for task in (failed, cancelled):
        assert f'action="{reverse("task_resume", args=[task.pk])}"' in page
    assert f'id="row-{done.pk}-review" href="{reverse("task_diff", args=[done.pk])}"' in page
    assert f'id="row-{waiting.pk}-answer"' in page
    viewer = signed_in(MembershipFactory.create(project=failed.project, role=Role.VIEWER).user)
    page = viewer.get("/tasks/").text
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


def test_a_result_says_how_much_it_changes(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(write("a.txt", "red\nblue\n"),)), say("Done.")]))
    for path in ("/tasks/", "/inbox/?state=review", f"/projects/{task.project_id}/"):
        assert "+2 −0, 1 file" in signed_in(runner.user).get(path).text, path


def test_git_is_asked_once_for_the_sizes_of_all_results_of_a_project(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a result whose base is lost keeps no other from being shown."""
    written = ("red\nblue\n", "red\n", "one\ntwo\nthree\n")
    turns = [[Turn(calls=(write("a.txt", text),)), say("Done.")] for text in written]
    project = runner.project()
    tasks = [runner.advance(runner.task(turn, project=project)) for turn in turns]
    asked: list[Any] = []

    def noted(git: Git, *words: str, **options: Any) -> bytes:
        asked.append(words[0])
        return run(git, *words, **options)

    run = Git.run
    monkeypatch.setattr(Git, "run", noted)
    page = signed_in(runner.user).get("/tasks/").text
    assert "+2 −0, 1 file" in page and "+1 −0, 1 file" in page and "+3 −0, 1 file" in page
    assert asked == ["diff-tree"]
    monkeypatch.setattr(task_rows, "_sizes", {})
    Task.objects.filter(pk=tasks[0].pk).update(base_commit="e" * 40)
    page = signed_in(runner.user).get("/tasks/").text
    assert "+2 −0, 1 file" not in page and "+1 −0, 1 file" in page and "+3 −0, 1 file" in page


def test_a_row_offers_the_actions_that_apply_and_a_viewer_has_no_empty_columns() -> None:
    cases = {"not started": "start cancel", "failed": "retry resume", "done": "retry", "running": "cancel"}
    started = {"queued_at": timezone.now(), "started_at": timezone.now()}
    project = ProjectFactory.create()
    TaskFactory.create(project=project, title="not started")
    for phase in ("failed", "done", "running"):
        TaskFactory.create(project=project, title=phase, phase=phase, ended_at=timezone.now(), **started)
    page = signed_in(UserFactory.create(is_superuser=True)).get("/tasks/").text
    offered = dict(re.findall(r'data-can="([^"]*)">\s*<span class="unseen">Select ([^<]*)</span>', page))
    assert {title: can for can, title in offered.items()} == cases
    viewer = MembershipFactory.create(project=project, role="viewer").user
    assert "read-only" in signed_in(viewer).get("/tasks/").text and "read-only" not in page
    assert "task-rows read-only" in signed_in(viewer).get("/tasks/all/").text


def test_the_other_lists_have_the_summary_too() -> None:
    TaskFactory.create(phase="failed", ended_at=timezone.now())
    client = signed_in(UserFactory.create(is_superuser=True))
    for path in ("/tasks/queue/", "/tasks/all/"):
        assert 'href="/tasks/?group=failed"' in client.get(path).text, path
