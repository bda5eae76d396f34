"""W6: what happened is told once, to those who may and want to know, and never after it was answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.encryption import encrypt
from tasks_app.history.transitions import move
from tasks_app.models import (
    Change,
    ChangeKind,
    Delivery,
    DeliveryState,
    Digest,
    EventType,
    Medium,
    Membership,
    Notice,
    Preferences,
    ProjectSelection,
    Question,
    ReviewThread,
    Role,
    Target,
    Task,
    TaskSelection,
    ThreadComment,
    Transition,
    User,
)
from tasks_app.models.notification import default_subscriptions
from tasks_app.notifications import delivery, webhook
from tasks_app.notifications.delivery import deliver, drop_reason
from tasks_app.notifications.message import NotSent, message_of, step_of
from tasks_app.notifications.notices import create_notifications
from tasks_app.notifications.preferences import MAX_ATTEMPTS
from tasks_app.notifications.targets import try_target
from tasks_app.permissions import notices_visible_to
from tasks_app.services.review_threads import AgentReply, reply_to, store_agent_replies
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    ReviewFactory,
    RunFactory,
    TaskFactory,
    ThreadFactory,
    UserFactory,
)
from tests.people import acting

pytestmark = pytest.mark.django_db

EVERYTHING: dict[str, dict[str, str]] = {
    one: dict.fromkeys(Medium.values, TaskSelection.ALL) for one in EventType.values
}


@pytest.fixture
def by_mail(settings: Any) -> None:
    settings.SENDS_EMAIL = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


def asked(**about: Any) -> Question:
    """A question that has just halted its task."""
    question = QuestionFactory.create(**about)
    halted(question.task)
    return question


def halted(task: Task, target: Phase = Phase.WAITING_FOR_INPUT, **facts: Any) -> Transition:
    return Transition.objects.create(task=task, source=Phase.RUNNING, target=target, **facts)


def answered(question: Question) -> None:
    question.state = "dismissed"
    question.answered_at = timezone.now()
    question.save()
    Task.objects.filter(pk=question.task_id).update(phase=Phase.PENDING)
    Transition.objects.create(task=question.task, source=Phase.WAITING_FOR_INPUT, target=Phase.PENDING)


def member(task: Task, *, role: str = Role.MEMBER, email: str = "", **subscriptions: Any) -> User:
    user: User = MembershipFactory.create(project=task.project, role=role).user
    User.objects.filter(pk=user.pk).update(email=email)
    user.email = email
    if subscriptions:
        Preferences.objects.create(user=user, **subscriptions)
    return user


def hook(task: Task, *event_types: str, medium: Medium = Medium.WEBHOOK, user: User | None = None) -> Target:
    return Target.objects.create(
        project=None if user else task.project,
        user=user,
        medium=medium,
        name="hook",
        shown="https://hook.example/",
        encrypted_url=encrypt("https://hook.example/x"),
        encrypted_secret=encrypt("secret"),
        event_types=list(event_types or EventType.values),
    )


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What webhooks were sent; the real posting is tested in test_notifications_sending."""
    found: list[dict[str, Any]] = []

    def post(address: str, payload: dict[str, Any], *, key: str, **_: Any) -> int:
        found.append({"address": address, "key": key, **payload})
        return 200

    monkeypatch.setattr(webhook, "post", post)
    return found


# ---- telling ----


def test_a_question_makes_one_notice_for_each_user_who_may_answer() -> None:
    question = asked()
    told = member(question.task)
    viewer, stranger = member(question.task, role=Role.VIEWER), UserFactory.create()

    assert create_notifications() == 1
    assert create_notifications() == 0

    notice = Notice.objects.get()
    assert (notice.user, notice.event_type, notice.task) == (told, "question", question.task)
    assert (notice.headline, notice.step) == (str(question.title), question.step.name)
    assert not Notice.objects.filter(user__in=[viewer, stranger]).exists()
    assert Change.objects.filter(task=question.task, kind=ChangeKind.NOTICE).count() == 1


def test_the_creator_is_notified_of_every_kind_of_end() -> None:
    creator = MembershipFactory.create().user
    project = creator.memberships.get().project
    for phase in (Phase.DONE, Phase.FAILED, Phase.CANCELLED):
        halted(
            TaskFactory.create(project=project, created_by=creator, phase=phase, failure="The tests fail."),
            phase,
        )
        halted(TaskFactory.create(project=project, phase=phase), phase)  # somebody else's

    assert create_notifications() == 6
    told = Notice.objects.filter(user=creator).values_list("event_type", "headline")
    assert sorted(told) == [("cancelled", ""), ("done", ""), ("failed", "The tests fail.")]


def test_transitions_of_tasks_are_announced_and_those_of_steps_are_not() -> None:
    task = TaskFactory.create(phase=Phase.RUNNING)
    user = member(task, subscriptions=EVERYTHING)
    step = task.steps.get(position=1)
    type(step).objects.filter(pk=step.pk).update(phase=Phase.RUNNING)
    step.refresh_from_db()

    move(step, Phase.FAILED)
    move(task, Phase.FAILED, failure="It broke.")

    assert create_notifications() == 1
    assert Notice.objects.get(user=user).step == step.name


def test_the_notice_of_a_failed_check_names_it_and_its_last_line_of_output() -> None:
    task = TaskFactory.create(phase=Phase.RUNNING)
    user = member(task, subscriptions=EVERYTHING)
    output = "\n".join([*(f"line {number}" for number in range(200)), "2 of 9 tests failed", ""])
    move(task, Phase.FAILED, failure=f"“make test” ended with exit code 2.\n{output}")
    create_notifications()
    said = Notice.objects.get(user=user).headline
    assert said == "“make test” ended with exit code 2: 2 of 9 tests failed"


def test_nobody_is_notified_of_what_they_did_themselves() -> None:
    task = TaskFactory.create(phase=Phase.CANCELLED)
    one, other = member(task, subscriptions=EVERYTHING), member(task, subscriptions=EVERYTHING)
    halted(task, Phase.CANCELLED, actor=one)
    create_notifications()
    assert [notice.user for notice in Notice.objects.all()] == [other]


def test_events_older_than_a_day_are_not_notified() -> None:
    question = asked()
    member(question.task)
    Transition.objects.update(at=timezone.now() - timedelta(days=2))
    assert create_notifications() == 0 and not Notice.objects.exists()


def test_an_answered_question_notifies_nobody(posts: list[Any]) -> None:
    question = asked()
    member(question.task)
    hook(question.task)
    answered(question)
    create_notifications()
    assert not Notice.objects.exists() and not Delivery.objects.exists()


def test_a_newer_notice_of_a_task_replaces_the_one_before() -> None:
    question = asked()
    user = member(question.task, subscriptions=EVERYTHING)
    create_notifications()
    answered(question)
    assert notices_visible_to(acting(user)).unread().count() == 0
    Task.objects.update(phase=Phase.FAILED)
    halted(question.task, Phase.FAILED)
    create_notifications()
    assert [notice.event_type for notice in notices_visible_to(acting(user)).unread()] == ["failed"]


@pytest.mark.parametrize("project_selection", ProjectSelection.values)
def test_users_are_notified_of_the_projects_that_they_selected(project_selection: str) -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    admin = UserFactory.create(is_superuser=True)
    wanted = Preferences.objects.create(
        user=admin, subscriptions=EVERYTHING, project_selection=project_selection
    )
    chosen = ProjectFactory.create()
    wanted.projects.set([chosen])
    halted(task, Phase.DONE)
    halted(TaskFactory.create(project=chosen, phase=Phase.DONE), Phase.DONE)
    halted(TaskFactory.create(phase=Phase.DONE, created_by=admin), Phase.DONE)
    create_notifications()
    assert Notice.objects.count() == {"mine": 1, "all": 3, "chosen": 1}[project_selection]


def test_an_inactive_user_is_not_notified() -> None:
    question = asked()
    user = member(question.task)
    User.objects.filter(pk=user.pk).update(is_active=False)
    create_notifications()
    assert not Notice.objects.exists()


def test_an_event_that_fails_to_be_sent_does_not_hold_up_the_others(monkeypatch: Any) -> None:
    bad, good = asked(), asked()
    member(good.task)
    monkeypatch.setattr(
        "tasks_app.notifications.notices.step_of",
        lambda task: 1 / 0 if task == bad.task else step_of(task),
    )
    member(bad.task)
    assert create_notifications() == 1
    assert Notice.objects.get().task == good.task
    assert Transition.objects.filter(task=bad.task, announced_at=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_several_dispatchers_at_once_exactly_one_handles_each_event() -> None:
    questions = [asked() for _ in range(5)]
    for question in questions:
        member(question.task)
        hook(question.task)
    in_threads(4, create_notifications)
    assert Notice.objects.count() == Delivery.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_of_many_senders_at_once_each_delivery_is_sent_by_one(posts: list[dict[str, Any]]) -> None:
    for _ in range(6):
        hook(asked().task)
    create_notifications()
    in_threads(4, deliver)
    assert len({post["key"] for post in posts}) == len(posts) == 6
    assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.SENT}


def in_threads(count: int, work: Callable[[], object]) -> None:
    start = threading.Barrier(count)

    def run() -> None:
        start.wait()
        try:
            work()
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- sending ----


def test_a_mail_has_project_question_and_a_link(by_mail: None) -> None:
    question = QuestionFactory.create()
    creator = member(question.task, email="ann@example.org")
    Task.objects.filter(pk=question.task_id).update(created_by=creator)
    member(question.task, email="bob@example.org")  # not his task: the defaults leave him in peace
    halted(question.task)
    create_notifications()
    deliver()

    (sent,) = mail.outbox
    project, task = question.task.project.name, question.task
    assert sent.to == ["ann@example.org"]
    assert sent.subject == f"[{project}] Question: {question.title}"
    html = sent.alternatives[0][0]  # type: ignore[attr-defined]
    for body in (str(sent.body), html):
        assert project in body and task.title in body and question.headline in body
        assert f"http://127.0.0.1:8000/tasks/{task.pk}/#question-{question.pk}" in body
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == (DeliveryState.SENT, 1) and delivery.sent_at


def test_hostile_text_is_only_text_in_a_mail(by_mail: None) -> None:
    hostile = "Sure?\r\nBcc: all@example.org\n\n<script>alert(1)</script>"
    item = {"question": hostile, "header": "x", "options": []}
    question = asked(items=[item], task__title="<b>T</b>\nX: y")
    member(question.task, email="ann@example.org", subscriptions=EVERYTHING)
    create_notifications()
    deliver()
    (sent,) = mail.outbox
    assert "\n" not in sent.subject and "Bcc" not in sent.message()
    html = sent.alternatives[0][0]  # type: ignore[attr-defined]
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>T" not in html


def test_what_is_due_for_a_person_comes_in_one_mail(by_mail: None) -> None:
    first = asked()
    user = member(first.task, email="ann@example.org", subscriptions=EVERYTHING, digest=Digest.HOURLY)
    done = TaskFactory.create(project=first.task.project, phase=Phase.DONE)
    halted(done, Phase.DONE)
    create_notifications()
    assert deliver() == 0  # before the hour
    Delivery.objects.update(due_at=timezone.now())
    assert deliver() == 2
    (sent,) = mail.outbox
    assert sent.subject == f"[{done.project.name}] 1 question, 1 task done"
    assert first.headline in str(sent.body) and f"/tasks/{done.pk}/" in str(sent.body)
    assert user.deliveries.filter(state=DeliveryState.SENT).count() == 2


def test_quiet_hours_hold_back_mail_but_not_the_page(by_mail: None) -> None:
    question = asked()
    now = timezone.now()
    member(question.task, email="ann@example.org", subscriptions=EVERYTHING, **quiet_now())
    create_notifications()
    assert Notice.objects.count() == 1 and deliver() == 0
    waits = Delivery.objects.get().due_at - now
    assert timedelta(minutes=59) < waits <= timedelta(hours=1, seconds=5)


def quiet_now() -> dict[str, Any]:
    now = timezone.now()
    return {
        "quiet_from": (now - timedelta(hours=1)).time(),
        "quiet_until": (now + timedelta(hours=1)).time(),
    }


@pytest.mark.parametrize("medium", [Medium.EMAIL, Medium.CHAT])
def test_what_was_due_before_the_quiet_hours_and_was_not_sent_waits_for_their_end(
    by_mail: None, medium: Medium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker ran, or the first attempt failed just before."""
    told: list[Any] = []
    monkeypatch.setattr("tasks_app.notifications.chat.send", lambda *_, **__: told.append(_))
    question = asked()
    user = member(
        question.task,
        email="ann@example.org",
        subscriptions={EventType.QUESTION: {medium: TaskSelection.ALL}},
    )
    hook(question.task, medium=Medium.CHAT, user=user)
    create_notifications()
    Preferences.objects.update(**quiet_now())
    deliver()
    waits = Delivery.objects.get()
    assert not mail.outbox and not told
    assert (waits.state, waits.attempts, waits.error) == (DeliveryState.WAITING, 0, "")
    assert timedelta(minutes=59) < waits.due_at - timezone.now() <= timedelta(hours=1)


def test_a_test_comes_in_quiet_hours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("tasks_app.notifications.chat.send", lambda *_, **__: told.append(_))
    user = member(asked().task, **quiet_now())
    try_target(hook(TaskFactory.create(), medium=Medium.CHAT, user=user), by=acting(user))
    deliver()
    assert len(told) == 1


def test_a_digest_that_fails_comes_as_one_mail_later(by_mail: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked()
    member(first.task, email="ann@example.org", subscriptions=EVERYTHING)
    for _ in range(5):
        halted(TaskFactory.create(project=first.task.project, phase=Phase.DONE), Phase.DONE)
    create_notifications()
    monkeypatch.setattr(
        "tasks_app.notifications.mail.send", failing(NotSent("The mail server could not be reached."))
    )
    deliver()
    assert Delivery.objects.values("due_at").distinct().count() == 1


def test_a_question_that_is_answered_while_its_mail_waits_is_not_sent(by_mail: None) -> None:
    question = asked()
    member(question.task, email="ann@example.org", subscriptions=EVERYTHING)
    create_notifications()
    answered(question)
    deliver()
    assert not mail.outbox
    dropped = Delivery.objects.get()
    assert (dropped.state, dropped.error) == (DeliveryState.DROPPED, "The question was answered meanwhile.")


@pytest.mark.parametrize("loss", ["role", "login", "address"])
def test_who_may_not_know_any_more_gets_nothing_even_of_what_waits(by_mail: None, loss: str) -> None:
    question = asked()
    user = member(question.task, email="ann@example.org", subscriptions=EVERYTHING)
    create_notifications()
    if loss == "role":
        Membership.objects.filter(user=user).delete()
        assert not notices_visible_to(acting(user)).exists()
    else:
        User.objects.filter(pk=user.pk).update(**({"is_active": False} if loss == "login" else {"email": ""}))
    deliver()
    assert not mail.outbox
    assert Delivery.objects.get().state == DeliveryState.DROPPED


def test_a_webhook_gets_what_it_was_set_to(posts: list[dict[str, Any]]) -> None:
    question = asked()
    hook(question.task)
    hook(question.task, EventType.DONE)
    create_notifications()
    deliver()
    (post,) = posts
    assert post["event"] == "question" and post["project"]["name"] == question.task.project.name
    assert post["task"] == {"id": question.task_id, "title": question.task.title}
    assert post["questions"][0]["text"] == question.headline
    assert post["url"].endswith(f"/tasks/{question.task_id}/#question-{question.pk}")
    assert post["key"] == post["id"] == str(Delivery.objects.get().key)


def test_a_sender_that_dies_after_sending_sends_again_with_the_same_key(
    posts: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between sending and noting: the lease runs out, and the receiver can tell by the key."""
    hook(asked().task)
    create_notifications()
    note = delivery._update_if_held
    monkeypatch.setattr(delivery, "_update_if_held", killed)
    with pytest.raises(KeyboardInterrupt):
        deliver()
    monkeypatch.setattr(delivery, "_update_if_held", note)
    assert deliver() == 0  # somebody has it
    Delivery.objects.update(taken_until=timezone.now() - timedelta(hours=1))
    assert deliver() == 1
    assert len(posts) == 2 and posts[0]["key"] == posts[1]["key"]
    assert Delivery.objects.get().state == DeliveryState.SENT


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_the_same_messages_have_the_same_message_id(by_mail: None) -> None:
    question = asked()
    member(question.task, email="ann@example.org", subscriptions=EVERYTHING)
    create_notifications()
    deliver()
    Delivery.objects.update(state=DeliveryState.WAITING, token=None, taken_until=None)
    deliver()
    first, second = mail.outbox
    assert first.extra_headers["Message-ID"] == second.extra_headers["Message-ID"]


def test_who_lost_a_delivery_cannot_note_anything_on_it(posts: list[Any]) -> None:
    hook(asked().task)
    create_notifications()
    (mine,) = Delivery.objects.take([Delivery.objects.get().pk], seconds=-1)
    assert Delivery.objects.take([mine.pk], seconds=60)
    delivery._update_if_held([mine], state=DeliveryState.FAILED)
    assert Delivery.objects.get().state == DeliveryState.WAITING


def failing(error: NotSent) -> Callable[..., int]:
    def post(*_: Any, **__: Any) -> int:
        raise error

    return post


def test_a_failure_is_tried_again_later_and_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hook(asked().task)
    create_notifications()
    monkeypatch.setattr(webhook, "post", failing(NotSent("It answered 500.", status=500)))
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert deliver() == 1
        assert deliver() == 0  # not before its time
        delivery = Delivery.objects.get()
        assert (delivery.attempts, delivery.status, delivery.error) == (attempt, 500, "It answered 500.")
        Delivery.objects.update(due_at=timezone.now())
    assert delivery.state == DeliveryState.FAILED and deliver() == 0


def test_a_permanent_failure_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hook(asked().task)
    create_notifications()
    monkeypatch.setattr(webhook, "post", failing(NotSent("No.", permanent=True)))
    deliver()
    assert Delivery.objects.get().state == DeliveryState.FAILED


def test_a_url_encrypted_with_another_key_is_reported(settings: Any, posts: list[Any]) -> None:
    hook(asked().task)
    create_notifications()
    settings.SECRET_KEY = "another key that is long enough to be one"
    deliver()
    assert not posts and "secret key has changed" in Delivery.objects.get().error


def test_a_target_that_was_switched_off_gets_nothing(posts: list[Any]) -> None:
    target = hook(asked().task)
    create_notifications()
    Target.objects.filter(pk=target.pk).update(active=False)
    deliver()
    assert not posts and Delivery.objects.get().state == DeliveryState.DROPPED


def test_old_notices_and_deliveries_go(posts: list[Any]) -> None:
    question = asked()
    member(question.task)
    hook(question.task)
    create_notifications()
    deliver()
    assert Notice.objects.prune(timedelta(days=90)) == Delivery.objects.prune(timedelta(days=30)) == 0
    Notice.objects.update(at=timezone.now() - timedelta(days=91))
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=31))
    assert Notice.objects.prune(timedelta(days=90)) == Delivery.objects.prune(timedelta(days=30)) == 1


def test_the_defaults_leave_people_in_peace_about_what_is_not_theirs() -> None:
    subscriptions = default_subscriptions()
    assert subscriptions["question"] == {"page": "mine", "email": "mine", "chat": "mine"}
    assert subscriptions["done"]["email"] == "off"


def test_a_review_is_told_to_the_owner_and_to_other_reviewers() -> None:
    """V3, W6: not to its author, and by the media that they chose; the agent's end to the reviewers too."""
    owner = UserFactory.create(email="owner@example.org")
    task = TaskFactory.create(phase=Phase.DONE, created_by=owner)
    MembershipFactory.create(project=task.project, user=owner)
    members = [MembershipFactory.create(project=task.project).user for _ in range(3)]
    earlier, author, onlooker = members
    ReviewFactory.create(task=task, author=earlier, number=1, announced_at=timezone.now())
    ReviewFactory.create(task=task, author=author, number=2, verdict="request_changes", body="Round up.")
    assert (create_notifications(), create_notifications()) == (1, 0)
    told = {notice.user: notice for notice in Notice.objects.all()}
    assert set(told) == {owner, earlier}
    assert told[owner].headline == f"{author.shown_name} requested changes: Round up."
    halted(task, Phase.DONE)
    create_notifications()
    done = Notice.objects.filter(event_type=EventType.DONE)
    assert {notice.user for notice in done} == {owner, earlier, author} and onlooker not in told


def test_the_message_of_a_review_leads_to_the_diff() -> None:
    review = ReviewFactory.create(verdict="approve")
    target = hook(review.task, EventType.REVIEWED)
    create_notifications()
    delivery = Delivery.objects.get(target=target)
    message = message_of(delivery).as_json()
    assert message["event"] == "reviewed" and message["by"] == review.author.shown_name
    assert message["headline"] == f"{review.author.shown_name} approved: {review.task.title}"
    assert message["url"].endswith(f"/tasks/{review.task_id}/diff/")
    assert drop_reason(delivery) == ""


class TestReplies:
    """A reply is told to the owner and to those who wrote in the threads (V3)."""

    @pytest.fixture
    def thread(self) -> ReviewThread:
        review = ReviewFactory.create(announced_at=timezone.now())
        MembershipFactory.create(project=review.task.project, user=review.author)
        thread: ReviewThread = ThreadFactory.create(task=review.task, review=review)
        return thread

    @pytest.fixture
    def reviewer(self, thread: ReviewThread) -> User:
        assert thread.review
        return thread.review.author

    def replies(self, thread: ReviewThread, by: User, *texts: str) -> None:
        """What the user wrote a while ago."""
        for text in texts:
            reply_to(thread, text, by=acting(by))
        ThreadComment.objects.exclude(announce_at=None).update(announce_at=timezone.now())

    def member(self, thread: ReviewThread) -> User:
        user: User = MembershipFactory.create(project=thread.task.project).user
        return user

    def test_those_who_take_part_are_told_but_not_the_author(
        self, thread: ReviewThread, reviewer: User
    ) -> None:
        owner = UserFactory.create()
        Task.objects.update(created_by=owner)
        MembershipFactory.create(project=thread.task.project, user=owner)
        wrote, writes, _onlooker = (self.member(thread) for _ in range(3))
        self.replies(thread, wrote, "I think so, too.")
        create_notifications()
        Notice.objects.all().delete()
        self.replies(thread, writes, "It is tested elsewhere.")
        assert (create_notifications(), create_notifications()) == (1, 0)
        told = {notice.user: notice for notice in Notice.objects.all()}
        assert set(told) == {owner, reviewer, wrote}
        assert told[owner].headline == f"{writes.shown_name} replied: It is tested elsewhere."
        assert told[owner].event_type == EventType.REVIEWED

    def test_what_is_written_within_minutes_is_told_once(self, thread: ReviewThread, reviewer: User) -> None:
        another = ThreadFactory.create(task=thread.task, review=thread.review, number=2)
        writes = self.member(thread)
        reply_to(thread, "One.", by=acting(writes))
        assert create_notifications() == 0, "more may follow"
        reply_to(another, "Two.", by=acting(writes))
        self.replies(thread, writes, "Three.")
        assert create_notifications() == 1
        assert Notice.objects.get().headline == f"{writes.shown_name} replied 3 times: One."

    def test_preferences_count(self, thread: ReviewThread, reviewer: User) -> None:
        Preferences.objects.create(user=reviewer, subscriptions={"reviewed": {"page": "off"}})
        self.replies(thread, self.member(thread), "Why?")
        create_notifications()
        assert not Notice.objects.exists()

    def test_the_message_leads_to_the_diff(self, thread: ReviewThread) -> None:
        target, writes = hook(thread.task, EventType.REVIEWED), self.member(thread)
        self.replies(thread, writes, "Why?")
        create_notifications()
        delivery = Delivery.objects.take([Delivery.objects.get(target=target).pk], seconds=60)[0]
        message = message_of(delivery).as_json()
        assert message["headline"] == f"{writes.shown_name} replied in a review: {thread.task.title}"
        assert message["url"].endswith(f"/tasks/{thread.task_id}/diff/")
        assert drop_reason(delivery) == ""

    @pytest.mark.usefixtures("by_mail")
    def test_those_who_left_the_project_are_not_told(self, thread: ReviewThread, reviewer: User) -> None:
        User.objects.filter(pk=reviewer.pk).update(email="left@example.org")
        self.replies(thread, self.member(thread), "Why?")
        create_notifications()
        reviewer.memberships.all().delete()
        assert "no longer has a role" in drop_reason(Delivery.objects.get(medium=Medium.EMAIL))

    def test_old_replies_and_those_of_agents_are_not_told(self, thread: ReviewThread, reviewer: User) -> None:
        self.replies(thread, self.member(thread), "Why?")
        ThreadComment.objects.exclude(announce_at=None).update(at=timezone.now() - timedelta(days=2))
        run = RunFactory.create(task=thread.task)
        store_agent_replies(run, [AgentReply(thread.number or 0, "Done.", "1")])
        create_notifications()
        assert not Notice.objects.exists()
        assert not ThreadComment.objects.exclude(announce_at=None).exists()


def test_settings_saved_before_there_were_reviews_have_their_default() -> None:
    saved = Preferences(subscriptions={"done": {"page": "off"}})
    assert saved.selected_tasks(EventType.REVIEWED, Medium.PAGE) == "mine"
    assert saved.selected_tasks(EventType.DONE, Medium.PAGE) == "off"
