"""M8: a project's budget for a month: tasks wait when it is spent, and go on by themselves."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.cli import task_session
from tasks_app.cli.local_worker import CtrlC
from tasks_app.cli.task_session import TaskSession
from tasks_app.cli.terminal import Screen
from tasks_app.core.phases import Phase
from tasks_app.engine.sweeper import sweep
from tasks_app.models import ModelUsage, Project, Reason, Role, Run, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.usage.cost_limits import (
    Budget,
    Budgets,
    budget_of,
    budgets_of,
    budgets_of_task,
    end_waits_for_budgets,
    month_start,
    next_month,
    with_limits,
)
from tasks_app.services.usage.day_sums import AGE, add_up_days
from tasks_app.services.workers.queue import Queue, queue_sentence
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, RunFactory, TaskFactory, UserFactory
from tests.fake_script import Limit, Turn, ask, say
from tests.integration.conftest import Manage
from tests.integration.test_forecast import past
from tests.markup import tidy
from tests.runner import TWO_STEPS, Runner, runs, step

pytestmark = pytest.mark.django_db(transaction=True)


def spend(project: Project, dollars: float, *, at: datetime | None = None) -> None:
    """Make a run of another task of the project that has cost this."""
    run = RunFactory.create(task=TaskFactory.create(project=project, phase=Phase.DONE), cost_usd=dollars)
    Run.objects.filter(pk=run.pk).update(started_at=at or timezone.now())


def budget(project: Project, dollars: float | None) -> None:
    Project.objects.filter(pk=project.pk).update(overrides={"monthly_budget_usd": dollars})


def due() -> list[int]:
    """Sweep, and return the tasks that a worker would get."""
    found: list[int] = []
    sweep(found.append, pending=lambda: 0)
    return found


@pytest.fixture
def waiting(runner: Runner) -> Task:
    """A task that waits, because its project has spent the two dollars that it has."""
    task = runner.task([say("Done.")])
    budget(task.project, 2)
    spend(task.project, 2.5)
    return runner.advance(task)


def test_months_are_those_of_utc() -> None:
    east = datetime.fromisoformat("2026-12-01T01:00+02:00")
    assert month_start(east) == datetime(2026, 11, 1, tzinfo=UTC)
    assert next_month(east) == datetime(2026, 12, 1, tzinfo=UTC)
    assert next_month(datetime(2026, 12, 31, 23, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


def test_what_the_project_s_runs_cost_this_month_counts_alone() -> None:
    project = ProjectFactory.create(overrides={"monthly_budget_usd": 3})
    start = month_start(timezone.now())
    spend(project, 1, at=start)
    spend(project, 1.5)
    spend(project, 100, at=start - timedelta(seconds=1))
    spend(ProjectFactory.create(), 100)
    found = budget_of(project)
    assert found == Budget(dollars=3, spent=2.5) and not found.is_used_up
    spend(project, 0.5)
    found = budget_of(project)
    assert found and found.is_used_up
    project.overrides = {}
    assert budget_of(project) is None


def test_a_person_s_budget_counts_their_tasks_in_every_project() -> None:
    first, second = MembershipFactory.create(), MembershipFactory.create()
    user = first.user
    user.monthly_budget_usd = 3
    for project, creator, cost in [
        (first.project, user, 1), (second.project, user, 1.5), (second.project, second.user, 100)
    ]:  # fmt: skip
        RunFactory.create(
            task=TaskFactory.create(project=project, created_by=creator, phase=Phase.DONE), cost_usd=cost
        )
    assert budget_of(user) == Budget(dollars=3, spent=2.5)
    second.project.overrides = {"monthly_budget_usd": 200}
    assert budgets_of(second.project, user).left == 0.5
    assert budgets_of(first.project, None) == Budgets() and Budgets().left is None


def test_the_same_costs_summed_in_another_order_are_the_same() -> None:
    assert Budget(dollars=0.3, spent=0.1 + 0.2).is_used_up and Budget(dollars=0.1 + 0.2, spent=0.3).is_used_up


def test_a_task_waits_for_the_budget_of_the_person_who_created_it(runner: Runner) -> None:
    task = runner.task([say("Done.")])
    assert task.created_by
    User.objects.filter(pk=task.created_by.pk).update(monthly_budget_usd=0)
    waiting = runner.advance(task)
    assert (waiting.phase, runs(task), due()) == (Phase.WAITING_FOR_RESET, [], [])
    reason = waiting.transitions.filter(step=None).order_by("-pk")[0].reason
    owner = task.created_by.shown_name
    assert reason == f"The budget of {owner} for {timezone.now():%B} is spent.", "others read it, too"
    assert budgets_of_task(with_limits(task.pk)).left == 0
    User.objects.filter(pk=task.created_by.pk).update(monthly_budget_usd=5)
    assert due() == [task.pk] and runner.advance(task).phase == Phase.DONE


def test_no_run_begins_once_the_budget_is_spent(waiting: Task) -> None:
    assert waiting.phase == step(waiting).phase == Phase.WAITING_FOR_RESET
    assert waiting.waits_for_budget and waiting.resets_at == next_month(timezone.now())
    assert runs(waiting) == [] and due() == []
    assert "$2.00" in waiting.transitions.filter(step=None).order_by("-pk")[0].reason


def test_a_terminal_that_follows_it_says_once_whose_budget_is_spent(
    waiting: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def leave_at_the_third(ctrl_c: CtrlC, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(CtrlC, "pause", leave_at_the_third)
    monkeypatch.setattr("tasks_app.cli.task_session.budgets_of_task", Mock(wraps=budgets_of_task))
    said, viewer = io.StringIO(), Principal.unrestricted(UserFactory.create(is_superuser=True))
    TaskSession(waiting, viewer, Screen(said), may_prompt=False).run()
    budget_is_spent = f"The budget of {waiting.project} for {timezone.now():%B} is spent: $2.50 of $2.00."
    assert said.getvalue().count(budget_is_spent) == 1
    assert task_session.budgets_of_task.call_count == 1  # type: ignore[attr-defined] # the mock


@pytest.mark.parametrize("raised", [4.0, None])
def test_it_goes_on_by_itself_when_the_budget_is_raised_or_removed(
    runner: Runner, waiting: Task, raised: float | None
) -> None:
    budget(waiting.project, raised)
    assert due() == [waiting.pk]
    assert runner.advance(waiting).phase == Phase.DONE
    assert [run.reason for run in runs(waiting)] == [Reason.FIRST]
    assert waiting.paused_seconds > 0


def test_m8_zero_dollars_a_month_mean_for_projects_and_people_that_no_run_begins(
    runner: Runner, manage: Manage
) -> None:
    """By form, API, command and admin page; less than that is refused in words."""
    task = runner.task([say("Done.")])
    project, client = task.project, signed_in(UserFactory.create(is_superuser=True, is_staff=True))
    maintainer = MembershipFactory.create(project=project, role=Role.MAINTAINER).user
    url, script = f"/projects/{project.pk}/settings/", Script(maintainer)
    command = ["project", "settings", project.name, "--as", maintainer.username]
    page = client.post(url, {"monthly_budget_usd": "-1"})
    assert page.status_code == 400 and "must be at least 0, not -1" in page.text
    assert (
        script.send("patch", f"/projects/{project.name}/settings", {"monthly_budget_usd": -1}).status_code
        == 400
    )
    assert "must be at least 0, not -1" in manage(*command, "--monthly-budget-usd=-1")[2]
    for change in (
        lambda: client.post(url, {"monthly_budget_usd": "0"}),
        lambda: script.send("patch", f"/projects/{project.name}/settings", {"monthly_budget_usd": 0}),
        lambda: manage(*command, "--monthly-budget-usd=0"),
    ):
        budget(project, None)
        change()
        assert budget_of(Project.objects.get(pk=project.pk)) == Budget(dollars=0, spent=0)
    assert "$0.00 of $0.00 spent" in client.get(f"/projects/{project.pk}/").text
    assert 'value="0' in client.get(url).text
    assert runner.advance(task).phase == Phase.WAITING_FOR_RESET and runs(task) == []
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        User(monthly_budget_usd=-1).clean_fields(exclude=["username", "password"])
    User(monthly_budget_usd=0).clean_fields(exclude=["username", "password"])


def test_a_raise_that_is_too_small_changes_nothing(waiting: Task) -> None:
    budget(waiting.project, 2.4)
    assert due() == []


def test_it_goes_on_by_itself_when_the_next_month_begins(runner: Runner, waiting: Task) -> None:
    past = month_start(timezone.now()) - timedelta(days=1)
    Run.objects.update(started_at=past)
    Task.objects.filter(pk=waiting.pk).update(resets_at=month_start(timezone.now()))
    assert due() == [waiting.pk]
    assert runner.advance(waiting).phase == Phase.DONE


def test_resuming_by_hand_does_not_get_past_the_budget(runner: Runner, waiting: Task) -> None:
    script = Script(MembershipFactory.create(project=waiting.project, role=Role.MEMBER).user)
    assert script.send("post", f"/tasks/{waiting.pk}/resume").status_code == 200
    assert runner.advance(waiting).phase == Phase.WAITING_FOR_RESET
    assert runs(waiting) == []


def test_a_step_ends_and_the_next_one_waits(runner: Runner) -> None:
    task = runner.task([say("Done.")], config=TWO_STEPS)
    budget(task.project, 0.001)
    assert runner.advance(task).phase == Phase.WAITING_FOR_RESET
    used = budget_of(task.project)
    assert used is not None and used.spent > 0.001, "a run that has begun ends by itself"
    assert [one.phase for one in task.steps.all()] == [Phase.DONE, Phase.WAITING_FOR_RESET]
    budget(task.project, 100)
    assert due() == [task.pk] and runner.advance(task).phase == Phase.DONE


def test_an_answer_waits_for_the_budget_and_is_delivered_then(runner: Runner) -> None:
    task = runner.advance(runner.task([Turn(calls=(ask("Which colour?"),)), say("Painted.")]))
    budget(task.project, 1)
    spend(task.project, 1)
    runner.answer_all(task, "Blue")
    assert runner.advance(task).phase == Phase.WAITING_FOR_RESET
    budget(task.project, 100)
    assert due() == [task.pk] and runner.advance(task).phase == Phase.DONE
    assert runs(task)[1].reason == Reason.ANSWER


def test_a_task_that_waits_for_a_usage_limit_is_left_alone(runner: Runner) -> None:
    config = "waitForRateLimitReset: true\npipelines: {default: [{name: do, command: self}]}\n"
    task = runner.advance(runner.task([Limit(4_000_000_000)], config=config))
    assert task.phase == Phase.WAITING_FOR_RESET and not task.waits_for_budget
    assert due() == []


def test_pages_and_api_say_what_it_waits_for(waiting: Task) -> None:
    user = MembershipFactory.create(project=waiting.project).user
    client = signed_in(user)
    page = client.get(f"/tasks/{waiting.pk}/").text
    spent = f"The budget of {waiting.project.name} for {timezone.now():%B} is spent: $2.50 of $2.00."
    assert "waiting for budget" in page and spent in page
    assert "Usage limit" not in page and "do-resume" not in page, "it would only wait again"
    assert "waiting for budget" in client.get("/search/", {"q": waiting.title}).text
    page = client.get(f"/projects/{waiting.project_id}/").text
    assert "$2.50 of $2.00 spent this month (UTC)" in page and "No run begins until next month" in page
    shown = Script(user).get(f"/tasks/{waiting.pk}").json()
    assert (shown["phase"], shown["waits_for_budget"]) == ("waiting_for_reset", True)
    budget(waiting.project, None)
    assert "spent this month" not in client.get(f"/projects/{waiting.project_id}/").text
    assert "do-resume" in client.get(f"/tasks/{waiting.pk}/").text


@pytest.fixture
def of_owner(waiting: Task) -> Task:
    """The task waits for the budget of the person who created it instead."""
    budget(waiting.project, None)
    owner = MembershipFactory.create(project=waiting.project, user__first_name="Ann").user
    Task.objects.update(created_by=owner)
    User.objects.filter(pk=owner.pk).update(monthly_budget_usd=0.5)
    return Task.objects.get(pk=waiting.pk)


def test_m8_only_they_and_site_admins_learn_the_amounts_of_a_person_s_budget(of_owner: Task) -> None:
    owner, month = of_owner.created_by, f"{timezone.now():%B}"
    assert owner
    colleague = MembershipFactory.create(project=of_owner.project).user
    said = {
        owner: f"Your budget for {month} is spent: $2.50 of $0.50.",
        colleague: f"The budget of Ann for {month} is spent.",
        UserFactory.create(is_superuser=True): f"The budget of Ann for {month} is spent: $2.50 of $0.50.",
    }
    for viewer, sentence in said.items():
        client = signed_in(viewer)
        for place in (f"/tasks/{of_owner.pk}/", "/tasks/queue/"):
            page = client.get(place).text
            assert sentence in page, place
            assert ("$0.50" in page) == (viewer != colleague), place
        script = Script(viewer)
        assert script.get("/queue").json()["items"][0]["sentence"].startswith(sentence)
        assert "$0.50" not in script.get(f"/tasks/{of_owner.pk}").text, "the API says it of the queue alone"


def test_m8_the_queue_says_whose_budgets_are_spent_and_until_when(of_owner: Task) -> None:
    budget(of_owner.project, 2)
    month, again = f"{timezone.now():%B}", f"{next_month(timezone.now()):%Y-%m-%d}"
    assert queue_sentence(Task.objects.get(pk=of_owner.pk)) == (
        f"The budget of {of_owner.project.name} for {month} is spent: $2.50 of $2.00. "
        f"The budget of Ann for {month} is spent. Waits until {again} 00:00 UTC, or until it is raised."
    )


def test_m8_the_queue_asks_as_often_for_many_that_wait_for_budgets_as_for_one(of_owner: Task) -> None:
    viewer = Principal.unrestricted(UserFactory.create(is_superuser=True))

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert all("is spent" in entry.sentence for entry in Queue().seen_by(viewer))
        return len(asked)

    one = queries()
    for _ in range(3):
        other = TaskFactory.create(
            phase=of_owner.phase, waits_for_budget=True, resets_at=of_owner.resets_at,
            created_by=UserFactory.create(monthly_budget_usd=0),
        )  # fmt: skip
        budget(other.project, 1)
        spend(other.project, 2)
    assert queries() <= one + 3, "those of projects are asked for, too, however many they are"
    few = queries()
    other = TaskFactory.create(phase=of_owner.phase, waits_for_budget=True, resets_at=of_owner.resets_at)
    budget(other.project, 0.01)
    spend(other.project, 2)
    assert queries() == few


class TestWhatIsLeft:
    """The form for a new task and the usage page show it to whom it concerns."""

    @pytest.fixture
    def user(self, runner: Runner) -> User:
        project = runner.project("pipelines: {known: [{name: a, command: self}]}\n")
        return MembershipFactory.create(project=project, role=Role.MEMBER).user

    @pytest.fixture
    def project(self, user: User) -> Project:
        return user.memberships.get().project

    def pages(self, user: User, project: Project) -> list[str]:
        """The form for a new task: the page, and the part of it that follows the choice of a project."""
        client, places = signed_in(user), ("/tasks/new/", "/tasks/new/project/")
        return [tidy(client.get(place, {"project": project.pk}).text) for place in places]

    def test_m8_without_a_budget_nothing_is_said(self, user: User, project: Project) -> None:
        assert not any("Left this month" in page for page in self.pages(user, project))
        assert "Your budget" not in signed_in(user).get("/usage/").text

    def test_m8_a_new_task_shows_what_is_left_of_both_budgets(self, user: User, project: Project) -> None:
        budget(project, 40)
        spend(project, 27.5)
        assert all("Left this month (UTC): $12.50 of the project’s $40.00." in page
                   for page in self.pages(user, project))  # fmt: skip
        User.objects.filter(pk=user.pk).update(monthly_budget_usd=3)
        for page in self.pages(user, project):
            assert "$12.50 of the project’s $40.00 · $3.00 of your $3.00." in page
            assert "No run begins" not in page
        budget(project, None)
        assert all("Left this month (UTC): $3.00 of your $3.00." in page
                   for page in self.pages(user, project))  # fmt: skip

    def test_m8_a_new_task_says_that_it_would_wait(self, user: User, project: Project) -> None:
        budget(project, 2)
        spend(project, 2.5)
        for page in self.pages(user, project):
            assert "nothing of the project’s $2.00." in page
            assert "No run begins until next month, or until the budget is raised." in page

    def test_m8_a_forecast_that_exceeds_what_is_left_is_marked(self, user: User, project: Project) -> None:
        past(project, *range(1, 11), pipeline="known")
        Run.objects.update(started_at=month_start(timezone.now()) - timedelta(days=1))
        warned = "The median is more than what is left this month"
        budget(project, 5.5)
        assert not any(warned in page for page in self.pages(user, project)), "it is just enough"
        User.objects.filter(pk=user.pk).update(monthly_budget_usd=5.49)
        assert all(warned in page for page in self.pages(user, project))
        User.objects.filter(pk=user.pk).update(monthly_budget_usd=0)
        assert not any(warned in page for page in self.pages(user, project)), "it says that nothing is left"

    def test_m8_the_usage_page_shows_one_s_own_budget(self, user: User, project: Project) -> None:
        task = TaskFactory.create(project=project, created_by=user, phase=Phase.DONE)
        RunFactory.create(task=task, cost_usd=1.25)
        User.objects.filter(pk=user.pk).update(monthly_budget_usd=20)
        month, client = f"{timezone.now():%B}", signed_in(user)
        page = tidy(client.get("/usage/").text)
        assert f"Your budget for {month} (UTC): $18.75 of $20.00 left." in page
        other = MembershipFactory.create(project=project).user
        assert "Your budget" not in signed_in(other).get("/usage/").text
        User.objects.filter(pk=user.pk).update(monthly_budget_usd=1)
        page = tidy(client.get("/usage/").text)
        assert f"Your budget for {month} is spent: $1.25 of $1.00." in page
        assert "No run of your tasks begins until next month, or until a site admin raises it." in page


def test_a_sweep_asks_as_often_for_many_spent_budgets_as_for_one(waiting: Task) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            end_waits_for_budgets()
        return len(asked)

    one = queries()
    for _ in range(3):
        other = TaskFactory.create(
            phase=waiting.phase, waits_for_budget=True, resets_at=next_month(timezone.now())
        )
        budget(other.project, 1)
        spend(other.project, 2)
    assert queries() == one


def test_a_running_agent_s_budget_is_read_from_the_sums_of_days_that_were_added_up() -> None:
    project = ProjectFactory.create(overrides={"monthly_budget_usd": 9})
    start = month_start(timezone.now())
    spend(project, 1, at=start)
    while add_up_days():
        pass
    with CaptureQueriesContext(connection) as asked:
        found = budget_of(project)
    assert found and found.spent == 1 and len(asked) == 3
    if start.date() <= timezone.now().date() - AGE:
        ModelUsage.objects.update(cost_usd=5)
        assert (found := budget_of(project)) and found.spent == 5
