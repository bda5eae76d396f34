"""What happens to a question that nobody answers: each rung once, none after the answer (SPEC Q3, Q4, Q5)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connections
from django.urls import reverse
from django.utils import timezone

from tasks_app.config.pipeline import load_project_config
from tasks_app.core.ladder import RungAction
from tasks_app.core.types import JsonObject
from tasks_app.core.working_hours import working_until
from tasks_app.engine import crashpoints
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Asked,
    AskedBy,
    Channel,
    Delivery,
    DeliveryState,
    Event,
    EventKind,
    EventType,
    Medium,
    Membership,
    Notice,
    Preferences,
    Question,
    QuestionState,
    Rung,
    RungOutcome,
    Transition,
    User,
    WorkingHours,
)
from tasks_app.notifications.delivery import drop_reason
from tasks_app.notifications.ladder import climb_ladders
from tasks_app.notifications.message import message_of
from tasks_app.services.questions.answers import Reply, answer_question, undo_answer
from tasks_app.services.questions.asking import hand_over, take_back
from tasks_app.services.working_hours import schedule_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.people import acting
from tests.racing import ROUNDS, race

FILE = "pipelines: {only: [{name: do, command: self}]}\n"
#: A Monday; everybody works from 9 to 18.
NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
REMINDED, EVERYBODY = NINE + timedelta(hours=4), NINE + timedelta(hours=8)
LATER = NINE + timedelta(days=30)
CROWD = int(os.environ.get("CATHERDER_TEST_CROWD_OF_RACES", "4"))
POINTS = ("ladders-made", "rung-taken", "rung-told", "rung-done")


@pytest.fixture(autouse=True)
def _file(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_project_config(FILE)
    monkeypatch.setattr("tasks_app.services.questions.ladder.repository_settings", lambda *_, **__: config)


@pytest.fixture
def question(transactional_db: None, settings: Any) -> Question:
    """It is put to ann; bob and cas may answer as well, and vic only looks on."""
    settings.SENDS_EMAIL = True
    return ask()


def ask(**about: Any) -> Question:
    question = QuestionFactory.create(asked_at=NINE, routed_at=NINE, **about)
    people = {
        name: UserFactory.create(username=f"{name}-{question.pk}") for name in ("ann", "bob", "cas", "vic")
    }
    for name, user in people.items():
        role = "viewer" if name == "vic" else "member"
        MembershipFactory.create(user=user, project=question.task.project, role=role)
        User.objects.filter(pk=user.pk).update(email=f"{user.username}@example.org", first_name=name)
    Asked.objects.create(
        question=question, user=people["ann"], asked_by=AskedBy.OWNER, why="owns it", at=NINE
    )
    return question


def person(question: Question, name: str) -> User:
    return User.objects.get(username=f"{name}-{question.pk}")


def told(question: Question) -> Counter[tuple[int, str]]:
    """How many notices everybody got of each rung, by its number and their name."""
    rows = Notice.objects.filter(rung__question=question)
    return Counter((one.rung.position, one.user.first_name) for one in rows if one.rung)


def noted(question: Question) -> list[int]:
    """The rungs that the log shows, in order."""
    events = Event.objects.filter(run=question.run, kind=EventKind.NOTE).order_by("seq")
    return [one.payload["rung"] for one in events if "rung" in one.payload]


def dies_at(point: str, act: Callable[[], object]) -> None:
    """Do it in a process that is killed at that point."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        crashpoints._armed = point
        try:
            act()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137, point


REMINDER, FOR_ALL = {(1, "ann"): 1}, {(2, "ann"): 1, (2, "bob"): 1, (2, "cas"): 1}


def test_a_question_climbs_the_default_ladder(question: Question) -> None:
    """Q3: at once, a reminder after 4 working hours, everybody after 8; then it waits."""
    assert climb_ladders(NINE) == 0
    rungs = list(question.rungs.all())
    assert [(one.action, one.due, one.outcome) for one in rungs] == [
        (RungAction.ASK, NINE, RungOutcome.DONE),
        (RungAction.REMIND, REMINDED, ""),
        (RungAction.EVERYBODY, EVERYBODY, ""),
    ]
    assert climb_ladders(REMINDED - timedelta(seconds=1)) == 0 and not told(question)
    assert (climb_ladders(REMINDED), climb_ladders(REMINDED)) == (1, 0)
    assert told(question) == REMINDER and question.asked.current().count() == 1
    assert (climb_ladders(EVERYBODY), climb_ladders(LATER)) == (1, 0)
    assert told(question) == REMINDER | FOR_ALL and not question.asked.current().exists()
    assert noted(question) == [1, 2]
    assert [one.done_at for one in question.rungs.all()] == [NINE, REMINDED, EVERYBODY]


def test_a_clock_that_jumps_ahead_and_back_does_each_rung_once(question: Question) -> None:
    """Q5: both are done in their order, however late; a clock that is set back repeats nothing."""
    climb_ladders(NINE)
    assert (climb_ladders(LATER), climb_ladders(NINE), climb_ladders(LATER)) == (2, 0, 0)
    assert noted(question) == [1, 2] and told(question) == REMINDER | FOR_ALL


def test_a_question_that_was_open_long_before_climbs_from_now_on(question: Question) -> None:
    """Q3: an update of the portal floods nobody."""
    assert climb_ladders(LATER) == 0 and [one.due >= LATER for one in question.rungs.all()] == [True] * 3


def test_a_question_that_was_not_routed_has_no_ladder(question: Question) -> None:
    """Q3: time counts from when it was put to people."""
    Question.objects.update(routed_at=None)
    assert climb_ladders(LATER) == 0 and not Rung.objects.exists()


def answer(question: Question, name: str, text: str = "Half up") -> object:
    reply = Reply.to(question, text)
    return answer_question(question, reply, by=acting(person(question, name)), via=Channel.WEB).repeated


def test_who_takes_over_has_their_own_time(question: Question) -> None:
    """Q2, Q3: the rungs that are left count from the hand-over, in the hours of whom it waits for now."""
    climb_ladders(REMINDED)
    ann, bob = person(question, "ann"), person(question, "bob")
    before = timezone.now()
    User.objects.filter(pk=bob.pk).update(time_zone="Asia/Tokyo")
    asked = hand_over(question, bob, by=acting(ann))
    reminder, everybody = question.rungs.filter(position__gt=0)
    assert reminder.due == REMINDED
    expected = working_until(asked.at, timedelta(hours=8), [schedule_of(person(question, "bob"))])
    assert everybody.due == expected >= before + timedelta(hours=8)
    take_back(asked, by=acting(ann))
    assert question.rungs.get(position=2).due != everybody.due


def test_an_answer_ends_the_ladder_and_undo_goes_on(question: Question, settings: Any) -> None:
    """Q5: no rung after the answer; a question that is opened again has the rungs that were left."""
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    climb_ladders(REMINDED)
    sent = Delivery.objects.filter(rung__position=1).with_events("task__project").get()
    assert not drop_reason(sent)
    answer(question, "bob")
    assert climb_ladders(LATER) == 0 and told(question) == REMINDER
    sent = Delivery.objects.filter(rung__position=1).with_events("task__project").get()
    assert drop_reason(sent)  # it was not sent yet
    question.refresh_from_db()
    undo_answer(question, by=acting(person(question, "bob")))
    assert climb_ladders(LATER) == 1 and told(question) == REMINDER | FOR_ALL


@pytest.mark.parametrize("state", [QuestionState.DISMISSED, QuestionState.WITHDRAWN])
def test_a_dismissed_or_withdrawn_question_climbs_no_further(question: Question, state: str) -> None:
    """Q5."""
    climb_ladders(NINE)
    at = timezone.now() if state == QuestionState.DISMISSED else None
    Question.objects.update(state=state, answered_at=at)
    assert climb_ladders(LATER) == 0 and not told(question)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("now", [REMINDED, EVERYBODY, LATER], ids=["reminder", "everybody", "late"])
def test_a_worker_that_is_killed_at_any_point_loses_and_repeats_nothing(
    question: Question, point: str, now: datetime
) -> None:
    """Q5: a rung and its messages are one transaction."""
    if now != REMINDED:
        climb_ladders(REMINDED if now == EVERYBODY else NINE)
    dies_at(point, lambda: climb_ladders(now))
    climb_ladders(now)
    climb_ladders(now)
    expected = REMINDER if now == REMINDED else REMINDER | FOR_ALL
    assert told(question) == expected and noted(question) == sorted({number for number, _ in expected})
    mails = Delivery.objects.filter(rung__question=question).values_list("rung__position", "user__first_name")
    assert Counter(mails) == expected


def test_two_workers_do_each_rung_once(transactional_db: None, settings: Any) -> None:
    """Q5: also if both make the ladder at the same moment."""
    settings.SENDS_EMAIL = True
    for number in range(ROUNDS):
        question = ask()
        for now in (NINE, LATER):
            results = race(number, *[partial(climb_ladders, now)] * 2)
            assert not any(one.refused for one in results), results
        climb_ladders(LATER)  # what one of them left, because the other was about it
        assert told(question) == REMINDER | FOR_ALL and noted(question) == [1, 2]


def test_an_answer_and_a_rung_at_the_same_moment(transactional_db: None, settings: Any) -> None:
    """Q5: a crowd answers while workers climb: one answer counts, each rung once, none after the answer."""
    settings.SENDS_EMAIL = True
    for number in range(ROUNDS):
        question = ask()
        climb_ladders(NINE)
        names = ("ann", "bob", "cas")
        answers = [partial(answer, question, names[n % 3], f"Word {n}") for n in range(CROWD)]
        results = race(number, *answers, *[lambda: climb_ladders(REMINDED)] * 2)
        assert Counter(one.refused for one in results[:CROWD]) == {"": 1, "NotOpen": CROWD - 1}, results
        assert not any(one.refused for one in results[CROWD:]), results
        climb_ladders(LATER)
        assert told(question) in (Counter(), REMINDER)
        kinds = Event.objects.filter(run=question.run).order_by("seq").values_list("kind", flat=True)
        assert list(kinds) in ([EventKind.NOTE, EventKind.ANSWER], [EventKind.ANSWER])
        assert noted(question) == [number for number, _ in told(question)]


def test_who_is_away_is_not_waited_for(question: Question) -> None:
    """Q4: bob is asked, too, and is away for three weeks, so his long hours do not count."""
    week: list[JsonObject | None] = [{"begin": "09:00", "end": "23:00"}] * 7
    absences: list[JsonObject] = [{"first": "2026-11-23", "last": "2026-12-13", "word": "holiday"}]
    bob = person(question, "bob")
    WorkingHours.objects.create(user=bob, week=week, absences=absences)
    Asked.objects.create(question=question, user=bob, asked_by=AskedBy.RULE, why="a rule", at=NINE)
    climb_ladders(NINE)
    assert question.rungs.get(position=2).due == EVERYBODY


def test_what_is_due_at_night_is_delivered_in_the_morning_of_its_recipient(question: Question) -> None:
    """Q4: ann works in Tokyo; bob and cas in UTC, and bob is quiet until ten."""
    ann, bob = person(question, "ann"), person(question, "bob")
    User.objects.filter(pk=ann.pk).update(time_zone="Asia/Tokyo")
    Preferences.objects.create(user=bob, quiet_from=time(18), quiet_until=time(10))
    climb_ladders(NINE)
    tokyo_morning = datetime(2026, 11, 24, 0, tzinfo=UTC)
    assert question.rungs.get(position=1).due == tokyo_morning + timedelta(hours=4)
    climb_ladders(LATER.replace(hour=5))  # 14:00 in Tokyo, on a Wednesday
    due = dict(Delivery.objects.filter(rung__position=2).values_list("user__first_name", "due_at"))
    assert due == {
        "ann": LATER.replace(hour=5), "bob": LATER.replace(hour=10), "cas": LATER.replace(hour=9),
    }  # fmt: skip


def test_overnight_disturbs_at_any_hour(question: Question) -> None:
    """Q3, Q4: it counts the hours of the clock, and quiet hours do not hold."""
    project = question.task.project
    project.overrides = {"ladder": "overnight"}
    project.save()
    ann = person(question, "ann")
    Preferences.objects.create(user=ann, quiet_from=time(0), quiet_until=time(23, 59))
    evening = NINE.replace(hour=22)
    Question.objects.update(routed_at=evening)
    hour = timedelta(hours=1)
    assert (climb_ladders(evening), climb_ladders(evening + hour)) == (0, 1)
    assert Delivery.objects.get(rung__position=1).due_at == evening + hour


def test_own_rungs_of_the_project_hold(question: Question) -> None:
    """Q3: and `wait` has none."""
    project = question.task.project
    project.overrides = {"ladder": "remind after 30m\nremind after 2h"}
    project.save()
    climb_ladders(NINE)
    assert [one.due - NINE for one in question.rungs.all()] == [
        timedelta(0), timedelta(minutes=30), timedelta(hours=2),
    ]  # fmt: skip
    project.overrides = {"ladder": "wait"}
    project.save()
    question.rungs.all().delete()
    climb_ladders(LATER)
    assert question.rungs.count() == 1


def test_what_is_no_ladder_is_not_stored(question: Question) -> None:
    """Q3."""
    project = question.task.project
    MembershipFactory.create(user=(maintainer := UserFactory.create()), project=project, role="maintainer")
    answer = Script(maintainer).send("patch", f"/projects/{project.name}/settings", {"ladder": "hasty"})
    assert [one["where"] for one in answer.json()["errors"]] == ["body.ladder"]
    project.refresh_from_db()
    assert not project.overrides


def announced(question: Question, *states: str) -> None:
    """The deliveries of the first message about the question, which ended so."""
    moved = Transition.objects.create(
        task=question.task, source="running", target="waiting_for_input", at=NINE, announced_at=NINE
    )
    for number, state in enumerate(states):
        user = person(question, ("ann", "bob")[number])
        Delivery.objects.create(
            transition=moved, event_type=EventType.QUESTION, medium=Medium.EMAIL, user=user, state=state,
            error="It bounced." if state == DeliveryState.FAILED else "", due_at=NINE,
        )  # fmt: skip


def test_if_nobody_was_reached_the_next_rung_comes_at_once_and_says_so(question: Question) -> None:
    """Q5: a message that could not be delivered is not silence."""
    climb_ladders(NINE)
    announced(question, DeliveryState.FAILED)
    soon = NINE + timedelta(minutes=1)
    assert climb_ladders(soon) == 1
    first, second, third = question.rungs.all()
    assert (first.outcome, second.done_at) == (RungOutcome.UNREACHED, soon) and "It bounced." in first.failure
    assert third.due == EVERYBODY
    notice = Notice.objects.get(rung=second)
    sent = Delivery.objects.get(rung=second)
    again = message_of(sent).again
    assert again and notice.headline.startswith(again) and message_of(sent).as_json()["again"] == again
    Delivery.objects.filter(pk=sent.pk).update(state=DeliveryState.FAILED, error="410 Gone")
    assert climb_ladders(soon) == 1
    assert "410 Gone" in question.rungs.get(position=1).failure
    assert message_of(Delivery.objects.filter(rung=third).first() or sent).again == again
    assert climb_ladders(soon) == 0 and noted(question) == [1, 2]


@pytest.mark.parametrize("other", [DeliveryState.SENT, DeliveryState.WAITING])
def test_a_message_that_arrived_beside_a_failed_one_is_enough(question: Question, other: str) -> None:
    """Q5: a broken webhook must not make each question one for everybody."""
    climb_ladders(NINE)
    announced(question, DeliveryState.FAILED, other)
    assert climb_ladders(NINE + timedelta(minutes=1)) == 0


@pytest.mark.parametrize("point", ["unreached-noted", "rung-taken", "rung-told", "rung-done"])
def test_a_worker_killed_while_nobody_is_reached_repeats_nothing(question: Question, point: str) -> None:
    """Q5."""
    climb_ladders(NINE)
    announced(question, DeliveryState.FAILED)
    dies_at(point, lambda: climb_ladders(NINE + timedelta(minutes=1)))
    climb_ladders(NINE + timedelta(minutes=2))
    assert told(question) == REMINDER and noted(question) == [1]


def test_the_log_of_a_run_in_blocks_takes_a_rung(question: Question) -> None:
    """Q3: each done rung is a row of the task's log."""
    append_one(question.run, EventKind.TEXT, {"text": "I ask."})
    climb_ladders(REMINDED)
    last = Event.objects.filter(run=question.run).order_by("seq").last()
    assert last and last.payload["rung"] == 1 and "ann" in last.payload["text"]


def test_who_may_no_longer_see_the_project_is_not_reminded(question: Question) -> None:
    """Q3: then it waits for all who may answer."""
    climb_ladders(NINE)
    Membership.objects.filter(user=person(question, "ann")).delete()
    climb_ladders(REMINDED)
    assert told(question) == {(1, "bob"): 1, (1, "cas"): 1}


def test_the_card_and_the_api_say_until_when(question: Question) -> None:
    """Q3, Q4: what was done, and what comes next, for everybody who sees the question."""
    client, script = signed_in(person(question, "vic")), Script(person(question, "vic"))
    pages = [reverse("task", args=[question.task_id]), reverse("question_claim", args=[question.pk])]
    assert all("data-ladder" not in client.get(url).text for url in pages)
    climb_ladders(REMINDED)
    for url in pages:
        shown = client.get(url).text
        assert 'data-rung="1" data-outcome="done"' in shown and 'data-rung="2" data-outcome=""' in shown
        assert EVERYBODY.isoformat() in shown
    rungs = script.get(f"/questions/{question.pk}").json()["rungs"]
    assert [(one["action"], one["outcome"]) for one in rungs] == [
        ("ask", "done"), ("remind", "done"), ("everybody", ""),
    ]  # fmt: skip
    assert rungs[2]["due"] == EVERYBODY.isoformat() and rungs[2]["done_at"] is None


def test_the_task_s_log_shows_a_done_rung(question: Question) -> None:
    """Q3: with the name of who was reminded."""
    climb_ladders(REMINDED)
    client = signed_in(person(question, "vic"))
    log = client.get(reverse("task_log", args=[question.task_id])).text
    assert f"ann: reminded of question {question.pk}" in log


def ends_by_itself(question: Question) -> Question:
    """Four rungs, of which the last one takes the recommended option."""
    options = [
        {"label": "Half up (Recommended)", "description": ""},
        {"label": "Half to even", "description": ""},
    ]
    Question.objects.filter(pk=question.pk).update(
        items=[{"question": "How should half cents be rounded?", "header": "", "options": options}]
    )
    project = question.task.project
    project.overrides = {
        "ladder_may_end": True,
        "ladder": "remind after 4h\neverybody after 8h\ntake the recommended option after 16h",
    }
    project.save()
    question.refresh_from_db()
    return question


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_killed_at_any_point_ends_a_question_once(question: Question, point: str) -> None:
    """Q3, Q5: the outcome, the task that goes on and the messages are one transaction."""
    ends_by_itself(question)
    for now in (NINE, EVERYBODY):
        climb_ladders(now)
    dies_at(point, lambda: climb_ladders(LATER))
    climb_ladders(LATER)
    climb_ladders(LATER)
    question.refresh_from_db()
    assert question.is_unanswered and question.rungs.count() == 4
    assert told(question) == REMINDER | FOR_ALL | {(3, "ann"): 1, (3, "bob"): 1, (3, "cas"): 1}
    kinds = Event.objects.filter(run=question.run).values_list("kind", flat=True)
    assert Counter(kinds) == {EventKind.NOTE: 2, EventKind.ANSWER: 1}
    assert question.task.transitions.filter(target="pending", step=None).count() == 1


def test_an_answer_and_the_rule_at_the_same_moment(transactional_db: None) -> None:
    """Q5: a crowd answers while workers end the question: one of them counts, nobody hears of the other."""
    for number in range(ROUNDS):
        question = ends_by_itself(ask())
        for now in (NINE, EVERYBODY):
            climb_ladders(now)
        names = ("ann", "bob", "cas")
        answers = [partial(answer, question, names[n % 3], f"Word {n}") for n in range(CROWD)]
        results = race(number, *answers, *[lambda: climb_ladders(LATER)] * 2)
        taken = Counter(one.refused for one in results[:CROWD])
        assert not any(one.refused for one in results[CROWD:]), results
        climb_ladders(LATER)
        question.refresh_from_db()
        assert taken == ({"NotOpen": CROWD} if question.is_unanswered else {"": 1, "NotOpen": CROWD - 1})
        kinds = list(Event.objects.filter(run=question.run).values_list("kind", flat=True))
        assert kinds.count(EventKind.ANSWER) == 1
        assert (3 in {position for position, _ in told(question)}) == question.is_unanswered
