"""Days that were added up (P11): whatever changes afterwards, sums and rows tell readers the same."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import Usage
from tasks_app.models import (
    ChangedDay,
    Channel,
    DayFigures,
    ModelUsage,
    Outcome,
    PersonUsage,
    Project,
    Question,
    QuestionState,
    Role,
    Run,
    SummedDay,
    Task,
    User,
)
from tasks_app.permissions import Principal
from tasks_app.services.usage import day_sums
from tasks_app.services.usage.day_sums import Days, SplitDays, add_up_days, split_days
from tasks_app.services.usage.usage import (
    By,
    Period,
    first_day,
    question_figures,
    usage_in_period,
    usage_of_all_time,
    waiting_times,
)
from tests import machine
from tests.browser import signed_in
from tests.databases import undone
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    TaskFactory,
    UserFactory,
)
from tests.people import acting
from tests.schema import schema_of

pytestmark = pytest.mark.django_db

TODAY = timezone.now().date()
#: Days of the histories, the last of which are never added up.
PERIOD = Period(TODAY - timedelta(days=11), TODAY)
#: Time in which unfinished tasks go on while a test looks twice.
SOON = 60.0


def all_added_up() -> None:
    while add_up_days():
        pass


def on(day: int, hour: int = 12) -> datetime:
    """A time that many days ago."""
    return datetime.combine(TODAY - timedelta(days=day), time(hour), UTC)


def spent(day: int, dollars: float = 1.0, **more: Any) -> Run:
    run = RunFactory.create(cost_usd=dollars, output_tokens=10, model="opus", **more)
    Run.objects.filter(pk=run.pk).update(started_at=on(day))
    Task.objects.filter(pk=run.step.task_id).update(created_at=on(day))
    return run


@pytest.fixture(autouse=True)
def today_stays_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of tests may run over midnight, after this module was read."""
    monkeypatch.setattr(day_sums, "AGE", day_sums.AGE + (timezone.now().date() - TODAY))


def dollars(principal: Principal, period: Period = PERIOD) -> float:
    return usage_in_period(principal, period, "", By.MODEL).total.cost_usd


@pytest.fixture
def admin() -> Principal:
    return acting(UserFactory.create(is_superuser=True))


# ---- random histories ----


@dataclass
class History:
    """Rows of twelve days, and what may happen to them."""

    chance: random.Random
    projects: list[Project]
    users: list[User]

    def begin(self) -> None:
        for _ in range(12):
            self.create_task()

    def step(self) -> None:
        whats = (
            self.create_task, self.end_task, self.resume_task, self.change_run, self.answer, self.withdraw,
            self.delete_task, self.delete_user, add_up_days, all_added_up,
        )  # fmt: skip
        self.chance.choices(whats, (2, 4, 2, 5, 4, 1, 1, 0.3, 3, 1))[0]()

    def create_task(self) -> None:
        day, chance = self.chance.randint(0, 11), self.chance
        task = TaskFactory.create(
            project=chance.choice(self.projects), created_by=chance.choice([*self.users, None]),
            phase=Phase.RUNNING, started_at=on(day), ended_at=None,
        )  # fmt: skip
        Task.objects.filter(pk=task.pk).update(created_at=on(day))
        for number in range(1, chance.randint(1, 3)):
            run = RunFactory.create(task=task, number=number, **self._usage())
            Run.objects.filter(pk=run.pk).update(started_at=on(max(0, day - chance.randint(0, 2))))
            asked = QuestionFactory.create(
                task=task, run=run, number=number, asked_at=timezone.now(),
                worked_seconds=chance.randint(0, 90), is_late=chance.random() < 0.5,
                item_keys=chance.choice(("", "key")),
                recommended=1, asked_before=chance.random() < 0.5,
            )  # fmt: skip
            Question.objects.filter(pk=asked.pk).update(asked_at=on(day))

    def _usage(self) -> dict[str, Any]:
        return {
            "model": self.chance.choice(("opus", "haiku", "")),
            "outcome": self.chance.choice(["", *Outcome.values]),
            "input_tokens": self.chance.randint(0, 1000),
            "output_tokens": self.chance.randint(0, 1000),
            "cost_usd": self.chance.randint(0, 800) / 8,
        }

    def _one(self, rows: Any) -> Any:
        found = list(rows.order_by("pk").values_list("pk", flat=True))
        return rows.filter(pk=self.chance.choice(found)) if found else rows.none()

    def end_task(self) -> None:
        phase = self.chance.choice((Phase.DONE, Phase.DONE, Phase.FAILED, Phase.CANCELLED))
        early = self.chance.choice(("", "ended")) if phase is Phase.DONE else ""
        values = {"phase": phase, "ended_at": timezone.now(), "paused_seconds": 5, "early_end": early}
        self._one(Task.objects.filter(ended_at=None)).update(**values)

    def resume_task(self) -> None:
        ended = Task.objects.exclude(ended_at=None)
        self._one(ended).update(phase=Phase.RUNNING, ended_at=None, early_end="")

    def change_run(self) -> None:
        self._one(Run.objects.all()).update(**self._usage())

    def answer(self) -> None:
        via = self.chance.choice((Channel.WEB, Channel.DECISION))
        self._one(Question.objects.open()).update(
            state=QuestionState.ANSWERED, answered_at=timezone.now(), answered_via=via, recommended_taken=1
        )

    def withdraw(self) -> None:
        answered = Question.objects.answered()
        self._one(answered).update(state=QuestionState.WITHDRAWN, answered_at=None, answered_via="")

    def delete_task(self) -> None:
        for task in self._one(Task.objects.all()):
            task.delete()

    def delete_user(self) -> None:
        if len(self.users) > 1:
            Question.objects.update(answered_by=None)
            self.users.pop().delete()


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_rows_agree_after_a_random_history(seed: int, admin: Principal) -> None:
    projects, users = ProjectFactory.create_batch(3), UserFactory.create_batch(3)
    member = MembershipFactory.create(project=projects[0], role=Role.MEMBER).user
    history = History(random.Random(seed), projects, users)  # noqa: S311 - the same histories each time
    history.begin()
    all_added_up()
    for _ in range(6):
        for _ in range(4):
            history.step()
        for principal, project in ((admin, ""), (acting(member), projects[0].name)):
            assert told(principal, project) == told_by_rows(principal, project)
        assert used(admin) == used_by_counting()
    all_added_up()
    assert not ChangedDay.objects.filter(day__lt=TODAY - timedelta(days=1)).exists()
    assert [days.until for days in split_days(PERIOD.since).summed] == [TODAY - timedelta(days=2)]


def told(principal: Principal, project: str) -> Any:
    waited = waiting_times(principal, PERIOD, project)
    found = {by: usage_in_period(principal, PERIOD, project, by) for by in By}
    return (
        {by: (one.total, one.before, one.by_day, one.parts) for by, one in found.items()},
        (waited.tasks, waited.questions, waited.answered),
        pytest.approx([waited.working, waited.paused, waited.median or 0], abs=SOON),
        question_figures(principal, PERIOD, project),
        first_day(principal, project),
    )


def told_by_rows(principal: Principal, project: str) -> Any:
    with undone():
        SummedDay.objects.all().delete()
        parts, counts, _, asked, first = told(principal, project)
        waited = waiting_times(principal, PERIOD, project)
        return parts, counts, [waited.working, waited.paused, waited.median or 0], asked, first


def used(principal: Principal) -> Any:
    return {by: usage_in_period(principal, PERIOD, "", by).by_day for by in By}


def used_by_counting() -> Any:
    """What the runs' rows say, added up one by one."""
    found: dict[By, dict[date, dict[str, Usage]]] = {by: defaultdict(dict) for by in By}
    for run in Run.objects.select_related("step__task__project", "step__task__created_by"):
        task = run.step.task
        user = task.created_by.username if task.created_by else ""
        names = {By.MODEL: run.model, By.USER: user, By.PROJECT: task.project.name}
        for by, name in names.items():
            of_day = found[by][run.started_at.date()]
            of_day[name] = of_day.get(name, Usage()) + run.usage
    return found


# ---- one behaviour each ----


def test_the_page_makes_few_queries_however_many_days_there_are(admin: Principal) -> None:
    client = signed_in(admin.user)

    def queries() -> int:
        all_added_up()
        with CaptureQueriesContext(connection) as asked:
            assert client.get("/usage/?period=90&by=person").status_code == 200
        return len(asked)

    spent(4)
    few = queries()
    for day in range(3, 9):
        spent(day)
    assert queries() == few <= 23


def test_usage_of_several_models_of_a_run_is_added_up_for_each(admin: Principal) -> None:
    """P11: the same before and after the day is added up, also if two runs used the same."""
    parts = {"opus": [1, 2, 3, 4, 0.75], "haiku": [0, 8, 0, 0, 0.25]}
    for _ in range(2):
        spent(5, by_model=parts)
    before = usage_in_period(admin, PERIOD, "", By.MODEL)
    all_added_up()
    after = usage_in_period(admin, PERIOD, "", By.MODEL)
    assert before.parts[By.MODEL] == {"opus": Usage(2, 4, 6, 8, 1.5), "haiku": Usage(0, 16, 0, 0, 0.5)}
    assert after.parts[By.MODEL] == before.parts[By.MODEL] and after.by_day == before.by_day


def test_days_that_were_added_up_are_read_from_their_sums(admin: Principal) -> None:
    spent(5)
    all_added_up()
    assert dollars(admin) == 1
    ModelUsage.objects.update(cost_usd=7)
    assert dollars(admin) == 7


def test_today_and_yesterday_are_read_from_their_rows(admin: Principal) -> None:
    for day in (0, 1, 2):
        spent(day)
    all_added_up()
    assert set(ModelUsage.objects.values_list("day", flat=True)) == {TODAY - timedelta(days=2)}
    assert dollars(admin) == 3


def test_a_run_that_goes_on_for_days_counts_what_it_has_used_so_far(admin: Principal) -> None:
    run = spent(4)
    all_added_up()
    Run.objects.filter(pk=run.pk).update(cost_usd=3)
    assert dollars(admin) == 3, "read from the rows until the day is added up again"
    all_added_up()
    assert dollars(admin) == 3 and ModelUsage.objects.get().cost_usd == 3


def test_what_is_stored_twice_counts_once(admin: Principal) -> None:
    run = spent(4)
    for _ in range(2):
        run.refresh_from_db()
        run.cost_usd = 2
        run.save()
        all_added_up()
    assert dollars(admin) == 2


def test_adding_up_again_changes_nothing(admin: Principal) -> None:
    spent(4)
    all_added_up()
    SummedDay.objects.all().delete()
    all_added_up()
    assert dollars(admin) == 1 and DayFigures.objects.count() == ModelUsage.objects.count() == 1
    assert PersonUsage.objects.count() == 2, "of the project, and of all projects"


def test_a_lease_that_is_renewed_does_not_note_the_task_s_day() -> None:
    task = spent(4).step.task
    ChangedDay.objects.all().delete()
    Task.objects.filter(pk=task.pk).update(lease_owner="worker", lease_epoch=7)
    assert not ChangedDay.objects.exists()


def test_a_removed_task_takes_its_usage_along(admin: Principal) -> None:
    run = spent(4)
    all_added_up()
    run.step.task.delete()
    assert dollars(admin) == 0


def test_days_are_added_up_a_few_at_a_time_the_newest_first() -> None:
    spent(9)
    ChangedDay.objects.all().delete()
    assert add_up_days(at_once=3) == 3
    assert split_days(TODAY - timedelta(days=9), TODAY) == SplitDays(
        [Days(TODAY - timedelta(days=4), TODAY - timedelta(days=2))],
        [
            Days(TODAY - timedelta(days=9), TODAY - timedelta(days=5)),
            Days(TODAY - timedelta(days=1), TODAY),
        ],
    )


def test_without_any_task_there_is_nothing_to_add_up() -> None:
    assert add_up_days() == 0


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_committed_while_a_day_is_added_up_is_not_lost() -> None:
    if not machine.ON_POSTGRES:
        return  # SQLite lets one write at a time
    run, changed, added_up = spent(4), threading.Event(), threading.Event()
    all_added_up()

    def change_slowly() -> None:
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(cost_usd=5)
            changed.set()
            added_up.wait(10)
        connection.close()

    ChangedDay.objects.create(day=TODAY - timedelta(days=4))
    thread = threading.Thread(target=change_slowly)
    thread.start()
    assert changed.wait(10)
    add_up_days()
    added_up.set()
    thread.join()
    admin = acting(UserFactory.create(is_superuser=True))
    assert dollars(admin) == 5
    all_added_up()
    assert dollars(admin) == 5


@pytest.mark.django_db(transaction=True)
def test_a_migration_can_remake_a_table_that_triggers_name() -> None:
    """SQLite renames the table meanwhile, and refuses that while a trigger of another table names it."""
    if machine.ON_POSTGRES:
        return  # it changes tables in place
    before = schema_of(connection)
    with connection.schema_editor() as editor:
        editor._remake_table(Question)  # type: ignore[attr-defined]
    assert schema_of(connection) == before
    asked = QuestionFactory.create()
    ago = timezone.now() - timedelta(days=3)
    Question.objects.filter(pk=asked.pk).update(asked_at=ago)
    ChangedDay.objects.all().delete()
    Task.objects.filter(pk=asked.task_id).update(created_by=UserFactory.create())
    assert ChangedDay.objects.filter(day=ago.date()).exists()


def test_database_has_no_constraints_for_sums_of_a_removed_project_or_account() -> None:
    """A web server of an older version, beside the new schema, does not know these rows."""
    with connection.cursor() as cursor:
        for sums in (ModelUsage, PersonUsage, DayFigures):
            found = connection.introspection.get_constraints(cursor, sums._meta.db_table)
            assert not [name for name, one in found.items() if one["foreign_key"]]


def test_sums_of_a_removed_project_go_with_it() -> None:
    project = spent(4).step.task.project
    all_added_up()
    assert DayFigures.objects.filter(project=project).exists()
    removed = project.pk
    project.delete()
    for sums in (ModelUsage, PersonUsage, DayFigures):
        assert not sums.objects.filter(project=removed).exists()
    assert ChangedDay.objects.filter(day=TODAY - timedelta(days=4)).exists()


@pytest.mark.parametrize("by", By)
def test_usage_of_all_time_is_read_from_sums_of_days(by: By) -> None:
    """As many rows of runs are read as there are without sums, however many there were before."""
    for day in (3, 4, 5, 5, 90):
        spent(day, dollars=day)
    spent(0, dollars=0.5)
    before = usage_of_all_time(by)
    all_added_up()
    assert usage_of_all_time(by) == before and sum(used.cost_usd for used in before.values()) == 107.5
    Run.objects.filter(started_at__lt=on(2)).delete()
    ChangedDay.objects.all().delete()  # as if the rows were still there
    assert usage_of_all_time(by) == before
