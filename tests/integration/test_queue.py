"""M4: the queue says where each task stands and what it waits for; a task's priority."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.sweeper import sweep
from tasks_app.models import Action, AuditEntry, Change, Project, Role, Step, Task, User
from tasks_app.models.task import Priority
from tasks_app.permissions import Principal
from tasks_app.schemas.tasks import TaskOut
from tasks_app.services.tasks import change_priority
from tasks_app.services.usage.metrics import exposition
from tasks_app.services.workers import queue as queue_service
from tasks_app.services.workers.queue import Queue, queue_sentence
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
    WorkerBeatFactory,
)
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db


@pytest.fixture
def member() -> User:
    return MembershipFactory.create(project=ProjectFactory.create(name="shop"), role=Role.MEMBER).user


@pytest.fixture
def shop(member: User) -> Project:
    return Project.objects.get(name="shop")


def queued(project: Project, *, minutes: int = 0, labels: str = "", **fields: Any) -> Task:
    """A task that was started so many minutes ago."""
    task = TaskFactory.create(
        project=project, queued_at=timezone.now() - timedelta(minutes=minutes), **fields
    )
    Step.objects.filter(task=task).update(runs_on=labels)
    return task


def worker(*labels: str, busy: int = 4, **fields: Any) -> None:
    WorkerBeatFactory.create(labels=list(labels), busy=busy, **fields)


def running(project: Project, **fields: Any) -> Task:
    soon = timezone.now() + timedelta(seconds=20)
    return TaskFactory.create(
        project=project, phase=Phase.RUNNING, lease_owner="w", lease_expires=soon, **fields
    )


def sentences(user: User) -> list[str]:
    return [entry.sentence for entry in Queue().seen_by(Principal.unrestricted(user))]


def test_m4_it_says_the_place_in_line_and_that_all_workers_are_busy(member: User, shop: Project) -> None:
    worker()
    for minutes in range(12):
        queued(shop, minutes=30 - minutes)
    said = sentences(member)
    assert said[:3] == [
        "Next in line: waits for a free worker.",
        "Second in line: waits for a free worker.",
        "Third in line: waits for a free worker.",
    ]
    assert said[10].startswith("Number 11 in line: ")


def test_m4_only_as_many_as_slots_are_free_are_taken_within_seconds(member: User, shop: Project) -> None:
    worker(busy=3)  # of 4 slots
    for minutes in range(3):
        queued(shop, minutes=30 - minutes)
    soon, *others = sentences(member)
    assert soon == "Next in line: waits for a worker, which will take it within seconds."
    assert others == ["Second in line: waits for a free worker.", "Third in line: waits for a free worker."]


def test_m4_a_task_says_it_also_to_scripts_and_in_the_terminal(
    member: User, shop: Project, manage: Manage
) -> None:
    worker()
    task, other = queued(shop, minutes=9), TaskFactory.create(project=shop, phase=Phase.DONE)
    script, said = Script(member), "Next in line: waits for a free worker."
    for one, sentence in ((task, said), (other, "")):
        assert script.get(f"/tasks/{one.pk}").json()["queue"] == sentence
        _, printed, _ = manage("status", one.pk, "--json")
        assert json.loads(printed)["queue"] == sentence


def test_m4_it_names_the_labels_and_whether_such_a_worker_runs(member: User, shop: Project) -> None:
    worker("linux")
    task = queued(shop, labels="gpu,linux")
    assert queue_sentence(task) == "Next in line: waits for a worker with gpu and linux, and none is running."
    worker("gpu", "linux", "big")
    assert queue_sentence(task) == "Next in line: waits for a free worker with gpu and linux."
    worker("gpu", "linux", busy=0)
    assert "which will take it within seconds" in queue_sentence(task)


def test_m4_it_says_that_no_worker_runs_or_takes_tasks(shop: Project) -> None:
    task = queued(shop)
    assert "no worker is running" in queue_sentence(task)
    worker(problem="No disk.")
    assert "no worker takes tasks" in queue_sentence(task)


def test_m4_it_says_which_limit_is_reached(shop: Project, settings: Any) -> None:
    worker()
    Project.objects.update(overrides={"max_running_tasks": 2})
    ann = UserFactory.create(first_name="Ann")
    running(shop, created_by=ann)
    task = queued(shop, created_by=ann)
    assert "waits for a free worker" in queue_sentence(task)
    running(shop)
    assert queue_sentence(task) == "Next in line: its project has 2 of 2 tasks running."
    Project.objects.update(overrides={"max_running_tasks": None})
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"tasks_per_person": 1})
    assert queue_sentence(task) == "Next in line: Ann has 1 of 1 tasks running."


def test_m4_a_limit_s_last_place_may_be_for_an_earlier_task(
    member: User, shop: Project, settings: Any
) -> None:
    """Of two tasks and one place the second must not say that a worker takes it within seconds."""
    worker(busy=0)
    worker("gpu")
    Project.objects.update(overrides={"max_running_tasks": 1})
    ann = UserFactory.create(first_name="Ann")
    queued(shop, minutes=9, labels="gpu", created_by=ann)
    queued(shop, created_by=ann)
    first = "Next in line: waits for a free worker with gpu."
    second = "Second in line: its project may have 1 task running, and earlier ones come first."
    assert sentences(member) == [first, second]
    Project.objects.update(overrides={"max_running_tasks": None})
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"tasks_per_person": 1})
    second = "Second in line: Ann may have 1 task running, and earlier ones come first."
    assert sentences(member) == [first, second]


def test_m4_a_task_that_no_worker_may_take_says_so_and_holds_up_nobody(member: User, shop: Project) -> None:
    worker(busy=0)
    Project.objects.update(overrides={"max_running_tasks": 1})
    queued(shop, minutes=9, labels="gpu")
    queued(shop)
    unable = "Next in line: waits for a worker with gpu, and none is running."
    assert sentences(member) == [
        unable,
        "Second in line: waits for a worker, which will take it within seconds.",
    ]
    running(shop)
    assert sentences(member) == [unable, "Second in line: its project has 1 of 1 tasks running."]


def test_m4_what_cannot_begin_yet_says_until_when(member: User, shop: Project) -> None:
    worker()
    december = datetime(2999, 12, 1, tzinfo=UTC)
    reset = {"phase": Phase.WAITING_FOR_RESET, "resets_at": december}
    soon = timezone.now() + timedelta(seconds=60)
    for fields in (
        {**reset, "waits_for_budget": True},
        reset,
        {"undo_until": soon},
        {"retry_at": soon, "fault": "The disk is full", "fault_at": timezone.now()},
        {"lease_owner": "w", "lease_expires": timezone.now() + timedelta(seconds=20)},
    ):
        Task.objects.filter(pk=queued(shop).pk).update(**fields)
    assert sentences(member)[0] == "Waits for a budget, until 2999-12-01 00:00 UTC or until it is raised."
    assert sentences(member)[1] == "Waits for the usage limit to reset, until 2999-12-01 00:00 UTC."
    assert "can no longer be undone" in sentences(member)[2]
    assert sentences(member)[3].startswith("The disk is full")
    assert sentences(member)[4] == "A worker is taking it."
    assert all(entry.position is None for entry in Queue().seen_by(Principal.unrestricted(member)))


def test_m4_only_what_waits_is_in_the_queue(member: User, shop: Project) -> None:
    for phase in Phase:
        TaskFactory.create(project=shop, phase=phase)
    running(shop)
    lost = queued(shop, phase=Phase.RUNNING, lease_epoch=1)
    TaskFactory.create(project=shop)
    listed = [entry.task.pk for entry in Queue().seen_by(Principal.unrestricted(member))]
    assert lost.pk in listed
    assert set(Task.objects.filter(pk__in=listed).values_list("phase", flat=True)) == {
        Phase.RUNNING,
        Phase.WAITING_FOR_RESET,
    }
    assert queue_sentence(TaskFactory.create(project=shop)) == "", "nobody has started it"


def test_r3_a_task_without_its_worker_does_not_say_that_it_runs(
    member: User, shop: Project, manage: Manage
) -> None:
    """On its page, in lists, in the queue, in the terminal and to scripts, once its lease has lapsed."""
    task = running(shop, lease_epoch=1, queued_at=timezone.now())
    task.steps.filter(position=1).update(phase=Phase.RUNNING)
    page, browser = f"/tasks/{task.pk}/", signed_in(member)
    shown = browser.get(page).content.decode()
    assert "The agent is working." in shown and "waiting for a worker" not in shown
    assert Queue().running == 1

    Task.objects.filter(pk=task.pk).update(lease_expires=timezone.now() - timedelta(seconds=1))
    shown = tidy(browser.get(page).text)
    assert "The agent is working." not in shown
    assert "Its worker died. Next in line: waits for a worker" in shown
    task.refresh_from_db()
    shown_phases = {one.phase_display.label for one in (task, task.steps.get(position=1))}
    assert shown_phases == {"waiting for a worker"}
    assert Queue().running == 0 and Queue().waiting == 1
    assert TaskOut.from_row(task).lost_its_worker
    code, out, _ = manage("status", str(task.pk))
    assert code == 0 and "waiting for a worker" in out and "running" not in out


def told_phases(script: Script, browser: Client, task: Task, manage: Manage) -> dict[str, str]:
    """Return what each reader says of the only task, step and sequence: `running` or `pending`."""
    one = script.get(f"/tasks/{task.pk}").json()
    _, status, _ = manage("status", "--json")
    metrics, said = exposition().decode(), json.loads(status)
    groups = {"running": "working", "pending": "queued"}

    def only(found: Callable[[str], bool]) -> str:
        return " and ".join(phase for phase in groups if found(phase))

    def listed(address: str) -> str:
        return only(lambda phase: bool(script.get(address, phase=phase).json()["items"]))

    def runs(found: bool) -> str:
        return "running" if found else "pending"

    return {
        "task": one["phase"],
        "step": script.get(f"/tasks/{task.pk}/steps").json()["items"][0]["phase"],
        "tasks": script.get("/tasks").json()["items"][0]["phase"],
        "tasks in a phase": listed("/tasks"),
        "sequence": script.get(f"/sequences/{task.sequence_id}").json()["phase"],
        "sequences in a phase": listed("/sequences"),
        "export": json.loads(text_of(script.get("/tasks/export")))[0]["phase"],
        "status": said["tasks"][0]["phase"],
        "status of the sequence": said["sequences"][0]["phase"],
        "metrics": only(lambda phase: f'catherder_tasks{{phase="{phase}"}} 1.0' in metrics),
        "agents": runs("catherder_running_agents 1.0" in metrics),
        "tasks now": only(lambda phase: task.title in browser.get(f"/tasks/?group={groups[phase]}").text),
        "all tasks": only(lambda phase: task.title in browser.get(f"/tasks/all/?phase={phase}").text),
        "projects": runs("1 running" in browser.get("/projects/").text),
        "project": only(
            lambda phase: f"1 {phase}" in counts_of(browser.get(f"/projects/{task.project_id}/").text)
        ),
        "page of the sequence": runs(
            "waiting for a worker" not in browser.get(f"/sequences/{task.sequence_id}/").text
        ),
        "queue": runs(Queue().running == 1),
    }


def counts_of(page: str) -> str:
    """Return the words of the numbers of tasks by phase, on the page of a project."""
    (listed,) = re.findall(r'<ul class="phase-counts".*?</ul>', page, re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", listed).split())


def test_r3_every_reader_says_the_same_of_a_task_without_its_worker(
    member: User, shop: Project, manage: Manage
) -> None:
    """Its row stays `running` until another worker takes it, and nobody is told so."""
    script, browser = Script(member), signed_in(member)
    sequence = SequenceFactory.create(project=shop, phase=Phase.RUNNING)
    task = running(shop, lease_epoch=1, sequence=sequence, created_by=member, title="One of its kind")
    task.steps.filter(position=1).update(phase=Phase.RUNNING)
    RunFactory.create(task=task, outcome="")
    told = told_phases(script, browser, task, manage)
    assert [*told.items()] == [(reader, "running") for reader in told]
    Task.objects.filter(pk=task.pk).update(lease_expires=timezone.now() - timedelta(seconds=1))
    told = told_phases(script, browser, task, manage)
    assert [*told.items()] == [(reader, "pending") for reader in told]


def test_r3_open_pages_learn_that_a_task_lost_its_worker(shop: Project) -> None:
    """No row of the task changes when its lease lapses, so the sweep of any worker says it."""
    held, lost, long_lost = (running(shop, lease_epoch=1) for _ in range(3))
    for task, seconds in ((lost, 5), (long_lost, 500)):
        at = timezone.now() - timedelta(seconds=seconds)
        Task.objects.filter(pk=task.pk).update(lease_expires=at)
    Change.objects.all().delete()
    sweep(lambda task_id: None, pending=lambda: 0)
    assert [change.task_id for change in Change.objects.all()] == [lost.pk]
    assert held.pk != lost.pk


def test_m4_who_may_not_see_a_task_learns_only_that_there_is_one(member: User, shop: Project) -> None:
    worker()
    hidden = ProjectFactory.create(name="hidden-project")
    first = queued(
        hidden, minutes=9, title="hidden-title", created_by=UserFactory.create(username="hidden-ann")
    )
    own = queued(shop, title="Mine", created_by=first.created_by)
    page = signed_in(member).get("/tasks/queue/").text
    assert "Mine" in page and "<strong>#2</strong>" in page
    assert "hidden-project" not in page and "hidden-title" not in page
    assert "1 of the waiting is in projects that you do not see" in page
    said = Script(member).get("/queue").json()
    assert (said["waiting"], [item["task"] for item in said["items"]]) == (2, [own.pk])
    assert said["items"][0]["position"] == 2 and "hidden-title" not in json.dumps(said)
    outsider = UserFactory.create()
    assert Script(outsider).get("/queue").json()["items"] == []
    assert "The 2 that wait are in projects" in signed_in(outsider).get("/tasks/queue/").text


def test_m4_a_task_s_page_says_it_and_leads_to_the_queue(member: User, shop: Project) -> None:
    worker("linux")
    task = queued(shop, labels="gpu")
    page = signed_in(member).get(f"/tasks/{task.pk}/").text
    assert "Next in line: waits for a worker with gpu, and none is running." in page
    assert 'href="/tasks/queue/"' in page


def test_m4_an_empty_queue_says_what_would_be_there(member: User) -> None:
    page = signed_in(member).get("/tasks/queue/").text
    assert "No waiting tasks" in page


def test_m4_the_terminal_shows_the_queue(member: User, shop: Project, manage: Manage) -> None:
    worker()
    task = queued(shop, priority=Priority.HIGH)
    code, out, _ = manage("queue", "--as", member.get_username())
    assert code == 0 and "1 waiting, 0 running; 4 of 4 slots in use, 1 worker" in out
    assert "Next in line" in out and "high" in out
    _, out, _ = manage("queue", "--json", "--as", member.get_username())
    (item,) = json.loads(out)["items"]
    assert (item["task"], item["position"], item["waits_for"], item["priority"]) == (
        task.pk,
        1,
        "worker",
        "high",
    )


def test_m4_the_terminal_changes_a_priority(member: User, shop: Project, manage: Manage) -> None:
    task = queued(shop)
    user = ("--as", member.get_username())
    code, _, said = manage("queue", task.pk, "--priority", "high", *user)
    assert code == 0 and "high priority. Next in line" in said
    assert Task.objects.get(pk=task.pk).priority == Priority.HIGH
    code, _, said = manage("queue", task.pk, "--priority", "urgent", *user)
    assert code == 2 and "must be low, normal or high, not “urgent”" in said
    code, _, said = manage("queue", "--priority", "low", *user)
    assert code == 2 and "say which task" in said


def test_m4_page_and_api_change_a_priority_while_the_task_waits(member: User, shop: Project) -> None:
    first, second = queued(shop, minutes=9), queued(shop)
    client = signed_in(member)
    answer = client.post(f"/tasks/{second.pk}/priority/", {"priority": "high", "back": "queue"})
    assert answer.headers["Location"] == "/tasks/queue/"
    assert [entry.task.pk for entry in Queue().seen_by(Principal.unrestricted(member))] == [
        second.pk,
        first.pk,
    ]
    script = Script(member)
    assert script.send("patch", f"/tasks/{second.pk}", {"priority": "low"}).json()["priority"] == "low"
    for bad in ("urgent", None, 1):
        assert script.send("patch", f"/tasks/{second.pk}", {"priority": bad}).status_code == 400
    assert script.send("patch", f"/tasks/{second.pk}", {}).json()["priority"] == "low"
    assert client.post(f"/tasks/{second.pk}/priority/", {"priority": "normal"}).headers["Location"] == (
        f"/tasks/{second.pk}/"
    )
    entry = AuditEntry.objects.filter(action=Action.TASK_CHANGED, task=second).latest("pk")
    assert entry.detail["priority"] == ["low", "normal"]


def test_m4_viewers_change_no_priority_and_nobody_that_of_an_ended_task(member: User, shop: Project) -> None:
    viewer = MembershipFactory.create(project=shop, role=Role.VIEWER).user
    task = queued(shop)
    with pytest.raises(NotAllowed):
        change_priority(task, "high", by=acting(viewer))
    assert 'value="high"' not in signed_in(viewer).get("/tasks/queue/").text
    done = TaskFactory.create(project=shop, phase=Phase.DONE)
    with pytest.raises(BadInput, match="has ended"):
        change_priority(done, "high", by=acting(member))


@pytest.mark.django_db(transaction=True)
def test_m4_a_task_file_may_say_the_priority(runner: Runner) -> None:
    assert runner.task([], text="---\npriority: high\n---\n# It\n\nDo it.\n").priority == Priority.HIGH
    assert runner.task([]).priority == Priority.NORMAL
    with pytest.raises(BadInput, match="priority"):
        runner.task([], text="---\npriority: urgent\n---\n# It\n")


def test_m4_the_page_asks_as_often_for_many_tasks_as_for_one(member: User, shop: Project) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert signed_in_member.get("/tasks/queue/").status_code == 200
        return len(queries)

    worker()
    signed_in_member = signed_in(member)
    queued(shop, created_by=member)
    queued(ProjectFactory.create(), created_by=UserFactory.create())
    signed_in_member.get("/tasks/queue/")
    once = asked()
    for _ in range(10):
        queued(shop, created_by=UserFactory.create())
    assert asked() == once


@pytest.fixture
def long_queue(shop: Project, member: User) -> Iterator[list[Task]]:
    """So many tasks of two people that the line is shared."""
    others = ProjectFactory.create()
    people = [(member, shop), (UserFactory.create(), others)]
    tasks = [queued(people[n % 2][1], created_by=people[n % 2][0], minutes=60 - n) for n in range(6)]
    for number in range(queue_service.LONG):
        Task.objects.create(
            project=others, created_by=people[1][0], slug=f"more-{number}", title="More", text="", body="",
            pipeline="quick", branch=f"more-{number}", queued_at=timezone.now(),
        )  # fmt: skip
    queue_service.LINE.forget()
    yield tasks
    queue_service.LINE.forget()


def reads_of_the_line(look: Callable[[], object]) -> int:
    """How often all due tasks were read."""
    with CaptureQueriesContext(connection) as asked:
        look()
    return sum('"priority", "tasks_app_task"."started_at"' in one["sql"] for one in asked)


def test_f_a_long_line_is_read_once_for_all_who_look_within_two_seconds(
    long_queue: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = long_queue[:2]
    assert reads_of_the_line(lambda: queue_sentence(first)) == 1
    assert reads_of_the_line(lambda: (queue_sentence(first), queue_sentence(second))) == 0
    now = time.monotonic()
    monkeypatch.setattr("tasks_app.services.workers.queue.time.monotonic", lambda: now + 2.1)
    assert reads_of_the_line(lambda: queue_sentence(first)) == 1


def test_f_a_task_that_joins_a_long_line_has_its_place_at_once(
    long_queue: list[Task], member: User, shop: Project
) -> None:
    assert queue_sentence(long_queue[0]).startswith("Next in line")
    joined = queued(shop, created_by=member)
    assert " in line: " in queue_sentence(joined)


def test_f_of_a_long_queue_only_the_tasks_that_are_shown_are_loaded(
    long_queue: list[Task],
) -> None:
    admin = acting(UserFactory.create(is_superuser=True))
    whole = Queue().seen_by(admin, most=10_000)
    assert [entry.position for entry in whole] == list(range(1, len(whole) + 1))
    assert len(whole) == len(long_queue) + queue_service.LONG
    with CaptureQueriesContext(connection) as asked:
        shown = Queue().seen_by(admin, most=5)
    assert shown == whole[:5]
    (loaded,) = (one["sql"] for one in asked if '"tasks_app_task"."title"' in one["sql"])
    assert loaded.count(",", loaded.index(" IN (")) < 20, "five ids"
