"""Whom a question is asked of: hand over, second opinion (Q2), the inbox and notices that follow (Q6)."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import AnswerTooLong, BadInput, NotAllowed, NotOpen
from tasks_app.core.types import Json
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    Action,
    Asked,
    AskedBy,
    AuditEntry,
    Channel,
    Delivery,
    EventKind,
    MemberGroup,
    Notice,
    Preferences,
    Question,
    Role,
    Rung,
    Scope,
    Transition,
    User,
    WorkingHours,
    asked_of,
)
from tasks_app.notifications.delivery import drop_reason
from tasks_app.notifications.message import message_of
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.questions.answers import Reply, answer_question, dismiss_question
from tasks_app.services.questions.asking import ask_opinion, hand_over, take_back
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db


def member(question: Question, username: str, role: str = Role.MEMBER) -> User:
    user = UserFactory.create(username=username, first_name=username.title())
    MembershipFactory.create(user=user, project=question.task.project, role=role)
    return user


def asked_of_user(question: Question, user: User, **facts: Any) -> Asked:
    made = {"asked_by": AskedBy.OWNER, "why": "owns payments/ by CODEOWNERS", "at": timezone.now(), **facts}
    return Asked.objects.create(question=question, user=user, **made)


@pytest.fixture
def question() -> Question:
    return QuestionFactory.create()


def card(user: User, question: Question) -> str:
    return tidy(signed_in(user).get(reverse("question", args=[question.pk])).text)


def test_q6_the_card_and_the_api_say_who_is_asked_and_why(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    assert "data-asked-user=" not in card(bob, question), "a question of everybody names nobody"
    asked_of_user(question, ann)
    asked_of_user(question, bob, ended_at=timezone.now())
    page = card(bob, question)
    assert 'data-asked-user="ann"' in page and "owns payments/ by CODEOWNERS" in page
    assert 'data-asked-user="bob"' not in page
    (row,) = Script(bob, Scope.READ).get(f"/questions/{question.pk}").json()["asked"]
    assert (row["user"]["username"], row["asked_by"]) == ("ann", "owner")


# ---- hand over, second opinion, undo ----


def away(user: User, days: int, word: str = "") -> None:
    """The user is away from today on for so many days."""
    today = timezone.now().date()
    absence = {"first": str(today), "last": str(today + timedelta(days=days)), "word": word}
    hours: Json = {"begin": "09:00", "end": "17:00"}
    WorkingHours.objects.create(user=user, week=[hours] * 7, absences=[absence])


def test_q4_the_card_says_who_is_away_until_when(question: Question) -> None:
    ann, bob, cat = member(question, "ann"), member(question, "bob"), member(question, "cat")
    for user in (ann, bob, cat):
        asked_of_user(question, user)
    away(bob, 3, "<b>holiday</b>")
    away(cat, -1)
    until = timezone.now().date() + timedelta(days=3)
    shown = card(ann, question)
    assert shown.count("away until") == 1
    assert f"away until <time>{until}</time>, &lt;b&gt;holiday&lt;/b&gt;)" in " ".join(shown.split())


def test_q6_the_answered_card_says_who_was_asked_before_and_how_far_it_climbed(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    asked_of_user(question, ann)
    now = timezone.now()
    for position, action in enumerate(("ask", "remind", "everybody", "remind")):
        done = {"done_at": now, "outcome": "done"} if position < 3 else {}
        Rung.objects.create(question=question, position=position, action=action, due=now, **done)
    Asked.objects.update(ended_at=now)
    assert "data-climbed" not in card(ann, question), "the open one shows its ladder"
    answer_question(question, Reply.to(question, "Half up"), by=acting(bob), via=Channel.WEB)
    shown = " ".join(re.sub(r"<[^>]*>", " ", card(ann, question)).split())
    assert "Ann was asked (owns payments/ by CODEOWNERS). Nobody had answered: reminded" in shown
    assert shown.count("everybody was asked") == 1 and shown.count("reminded") == 1
    Rung.objects.filter(position__gt=0).delete()
    assert "data-climbed" not in card(ann, question)


def current(question: Question) -> dict[str, str]:
    return dict(question.asked.current().values_list("user__username", "asked_by"))


def test_q2_a_hand_over_ends_the_own_row_and_is_taken_back_by_one_click(question: Question) -> None:
    ann, bob, eve = (member(question, name) for name in ("ann", "bob", "eve"))
    asked_of_user(question, ann)
    asked_of_user(question, eve)
    made = hand_over(question, bob, by=acting(ann), note="I am away.")
    assert current(question) == {"bob": "hand_over", "eve": "owner"}
    assert (made.by, made.note, made.why) == (ann, "I am away.", "Ann handed it over")
    assert hand_over(question, bob, by=acting(ann), note="I am away.") == made, "sent twice, done once"
    assert question.asked.count() == 3
    for _ in range(2):
        take_back(made, by=acting(ann))
        assert current(question) == {"ann": "owner", "eve": "owner"}
    done = AuditEntry.objects.filter(task=question.task).order_by("pk").values_list("action", flat=True)
    assert list(done) == [Action.HANDED_OVER, Action.ASKING_TAKEN_BACK]
    stored = Events(Q(run=question.run)).of_kinds((EventKind.NOTE,))
    notes = [event.payload["text"] for event in stored.of_run(question.run)]
    assert len(notes) == 2 and "I am away." in notes[0]


def test_q2_who_is_not_asked_hands_over_for_all_and_an_opinion_takes_nothing_away(question: Question) -> None:
    ann, bob, eve, root = (member(question, name) for name in ("ann", "bob", "eve", "root"))
    opinion = ask_opinion(question, eve, by=acting(ann), note="?")
    for user in (ann, bob, eve):
        assert Question.objects.filter(asked_of(user)).exists(), "it is asked of everybody, as before"
    asked_of_user(question, ann)
    assert not Question.objects.filter(asked_of(bob)).exists()
    hand_over(question, bob, by=acting(root))
    assert current(question) == {"bob": "hand_over", "eve": "opinion"}
    with pytest.raises(NotAllowed):
        take_back(opinion, by=acting(bob))
    take_back(opinion, by=acting(eve))
    assert current(question) == {"bob": "hand_over"}


def test_q2_an_opinion_is_given_to_who_wanted_it_and_the_first_reason_stays(question: Question) -> None:
    olga, dave = member(question, "olga"), member(question, "dave")
    asked_of_user(question, olga)
    ask_opinion(question, dave, by=acting(olga))
    form = signed_in(dave).get(reverse("question_asking", args=[question.pk])).text
    assert 'value="olga" selected' in form
    given = hand_over(question, olga, by=acting(dave), note="Commas, please.")
    assert [(one.user, one.why) for one in question.asked.current()] == [
        (olga, "Dave gave an opinion; owns payments/ by CODEOWNERS"),
    ]  # fmt: skip
    assert given.note == "Commas, please."


def test_q2_a_hand_over_that_went_on_is_taken_back_last_first(question: Question) -> None:
    ann, bob, eve = (member(question, name) for name in ("ann", "bob", "eve"))
    first = hand_over(question, bob, by=acting(ann))
    second = hand_over(question, eve, by=acting(bob))
    with pytest.raises(NotOpen):
        take_back(first, by=acting(ann))
    take_back(second, by=acting(bob))
    take_back(Asked.objects.get(pk=first.pk), by=acting(ann))
    assert current(question) == {}


def test_q2_only_others_who_may_answer_can_be_asked_and_only_while_it_is_open(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    viewer, stranger = member(question, "vic", Role.VIEWER), UserFactory.create(username="mallory")
    for to in (viewer, stranger, ann):
        with pytest.raises(BadInput) as refused:
            hand_over(question, to, by=acting(ann))
        assert refused.value.where == "to"
    for by in (viewer, stranger):
        with pytest.raises(NotAllowed):
            hand_over(question, bob, by=acting(by))
    with pytest.raises(AnswerTooLong):
        hand_over(question, bob, by=acting(ann), note="x" * 1_000_000)
    made = hand_over(question, bob, by=acting(ann))
    dismiss_question(question, by=acting(bob), via=Channel.WEB)
    for late in (lambda: take_back(made, by=acting(ann)), lambda: ask_opinion(question, ann, by=acting(bob))):
        with pytest.raises(NotOpen):
            late()


# ---- notices ----


def told() -> list[tuple[str, str]]:
    create_notifications()
    unread = Notice.objects.filter(read_at=None).order_by("pk")
    return list(unread.values_list("user__username", "headline"))


def test_q2_the_new_person_hears_of_it_at_once_and_who_lost_it_too(question: Question, settings: Any) -> None:
    settings.SENDS_EMAIL = True
    ann, bob = member(question, "ann"), member(question, "bob")
    owner, deputy = member(question, "owner"), member(question, "deputy")
    User.objects.update(email="somebody@example.org")
    asked_of_user(question, owner)
    made = hand_over(question, deputy, by=acting(ann), note="The owner is ill.")
    assert sorted(user for user, _ in told()) == ["deputy", "owner"]
    mail = Delivery.objects.get()
    assert (mail.user, mail.asked) == (deputy, made) and drop_reason(mail) == ""
    assert "The owner is ill." in message_of(mail).headline and str(question.pk) in message_of(mail).url
    take_back(made, by=acting(ann))
    assert sorted(user for user, _ in told()) == ["deputy", "owner"]
    assert drop_reason(Delivery.objects.get(pk=mail.pk)), "what was taken back is not sent any more"
    assert not Notice.objects.filter(user__in=[ann, bob]).exists()


def test_q2_what_is_taken_back_before_it_was_told_tells_nobody(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    take_back(ask_opinion(question, bob, by=acting(ann)), by=acting(ann))
    assert told() == []


def test_q6_a_question_is_announced_to_those_who_are_asked(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    loud = member(question, "loud")
    everything = {"question": {"page": "all", "email": "off", "chat": "off"}}
    Preferences.objects.create(user=loud, subscriptions=everything)
    asked_of_user(question, ann)
    Transition.objects.create(task=question.task, source="running", target="waiting_for_input")
    assert [user for user, _ in told()] == ["ann", "loud"], "all tasks, for those who chose that"
    other = QuestionFactory.create(task__project=question.task.project)
    Transition.objects.create(task=other.task, source="running", target="waiting_for_input")
    create_notifications()
    assert Notice.objects.filter(user=bob, task=other.task).exists(), "asked of nobody by name: of all"


# ---- pages, API, terminal ----


def post(user: User, question: Question, *, htmx: bool = True, **fields: Any) -> Any:
    headers = {"HX-Request": "true"} if htmx else {}
    url = reverse("question_asking", args=[question.pk])
    return signed_in(user).post(url, fields, headers=headers)


def test_q2_the_card_hands_over_shows_the_note_and_takes_back(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    url = reverse("question_asking", args=[question.pk])
    form = tidy(signed_in(ann).get(url).text)
    assert 'value="bob"' in form and 'value="ann"' not in form
    done = post(ann, question, to="bob", kind="hand_over", note="I am <b>away</b>.")
    assert done.status_code == 200 and 'data-asked-user="bob"' in done.text
    assert "I am &lt;b&gt;away" in card(bob, question), "who is asked reads the note"
    row = question.asked.get()
    assert f'name="take_back" value="{row.pk}"' in tidy(done.text)
    assert f'name="take_back" value="{row.pk}"' in card(bob, question), "it can be given back"
    assert post(ann, question, take_back=row.pk).status_code == 200
    assert current(question) == {}
    assert post(ann, question, htmx=False, to="bob", kind="opinion").status_code == 302
    assert current(question) == {"bob": "opinion"}


def test_q2_a_refusal_keeps_what_was_entered(question: Question) -> None:
    ann, _bob = member(question, "ann"), member(question, "bob")
    refused = post(ann, question, to="nobody", kind="hand_over")
    assert refused.status_code == 400
    assert refused["HX-Retarget"] == f"#question-{question.pk}-asking-refusal"
    page = post(ann, question, htmx=False, to="nobody", kind="hand_over", note="Please.")
    assert page.status_code == 400 and "Please.</textarea>" in page.text
    assert post(member(question, "vic", Role.VIEWER), question, to="bob").status_code == 403
    assert post(UserFactory.create(), question, to="bob").status_code == 404


def test_q2_the_api_asks_and_takes_back(question: Question) -> None:
    ann, _bob = member(question, "ann"), member(question, "bob")
    script, path = Script(ann, Scope.ANSWER), f"/questions/{question.pk}/asked"
    for _ in range(2):
        asked = script.post(path, {"to": "bob", "kind": "hand_over", "note": "Yours."})
        (row,) = asked.json()["asked"]
        assert (row["user"]["username"], row["by"]["username"], row["note"]) == ("bob", "ann", "Yours.")
    refused = script.post(path, {"to": "nobody", "kind": "opinion"})
    assert refused.status_code == 400 and "to" in str(refused.json())
    for _ in range(2):
        assert script.send("delete", f"{path}/bob").json()["asked"] == []


def test_q2_the_terminal_claims_hands_over_and_takes_back(question: Question, manage: Manage) -> None:
    ann, _bob = member(question, "ann"), member(question, "bob")

    def answer(*given: str) -> tuple[int, str]:
        code, out, err = manage("answer", str(question.pk), *given, "--as", "ann")
        return code, out + err

    assert answer("--claim")[0] == 0
    question.refresh_from_db()
    assert question.claimed_by == ann
    code, said = answer("--hand-over", "bob", "--note", "I am away.")
    assert code == 0 and "Bob (Ann handed it over)" in said
    question.refresh_from_db()
    assert question.asked.get().note == "I am away." and question.claimed_by is None
    assert answer("--undo")[0] == 0 and current(question) == {}
    code, said = answer("--second-opinion", "bob", "--json")
    assert json.loads(said)["asked"][0]["asked_by"] == "opinion"
    for wrong, where in (
        (("--hand-over", "nobody"), "--hand-over"),
        (("--second-opinion", "ann"), "--second-opinion"),
        (("--claim", "--hand-over", "bob"), "--claim"),
        (("--hand-over", "bob", "Half up"), "--hand-over"),
        (("Half up", "--note", "x"), "--note"),
    ):
        code, said = answer(*wrong)
        assert code == 2 and where in said, said


def test_q6_the_api_lists_what_is_asked_of_me_and_of_my_groups(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    project = question.task.project
    group = MemberGroup.objects.create(project=project, name="payments")
    group.members.add(bob)
    MemberGroup.objects.create(project=QuestionFactory.create().task.project, name="payments").members.add(
        ann
    )
    everybody = QuestionFactory.create(task__project=project)
    asked_of_user(question, ann, group="payments")

    scripts = {user: Script(user, Scope.READ) for user in (ann, bob)}

    def listed(user: User, asked: str) -> list[int]:
        return [row["id"] for row in scripts[user].get("/questions", asked=asked).json()["items"]]

    assert listed(ann, "me") == listed(ann, "all") == [question.pk, everybody.pk]
    assert listed(bob, "me") == [everybody.pk]
    assert (listed(ann, "groups"), listed(bob, "groups")) == ([], [question.pk])


# ---- the inbox and counts ----


def inbox(user: User, **query: str) -> str:
    return tidy(signed_in(user).get(reverse("inbox"), query).text)


def test_q6_the_inbox_begins_with_what_is_asked_of_me(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    everybody = QuestionFactory.create(task__project=question.task.project)
    assert "data-segment=" not in inbox(ann), "where all is asked of all, there is nothing to choose"
    asked_of_user(question, bob, group="payments")
    row = f'data-row="{question.pk}"'
    assert row in inbox(bob) and "owns payments/ by CODEOWNERS" in inbox(bob)
    page = inbox(ann)
    assert row not in page and f'data-row="{everybody.pk}"' in page
    assert 'data-segment="me" aria-current="true"' in page and 'data-segment="groups"' not in page
    assert 'aria-current="page">Open <span class="number">1</span>' in page
    assert row in inbox(ann, asked="all") and "Bob: owns payments/" in inbox(ann, asked="all")
    group = MemberGroup.objects.create(project=question.task.project, name="payments")
    group.members.add(ann)
    mine = inbox(ann, asked="groups")
    assert row in mine and f'data-row="{everybody.pk}"' not in mine
    assert 'name="asked" value="groups"' in mine, "a filter keeps the segment"


def test_q6_counts_and_the_list_of_tasks_follow(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    for asked, others in ((False, False), (True, True)):
        if asked:
            asked_of_user(question, bob)
        for user, needed in ((bob, True), (ann, not others)):
            page = signed_in(user).get(reverse("tasks")).text
            assert ('data-open="1"' in page, "task-group-answer" in page) == (needed, needed)
            assert ("task-group-others" in page) is not needed


def test_q6_only_who_is_asked_reads_that_their_answer_is_needed(question: Question) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    for asked in (False, True):
        if asked:
            asked_of_user(question, bob)
        for user, needed in ((bob, True), (ann, not asked)):
            for address in (reverse("task", args=[question.task_id]), reverse("tasks_all")):
                page = tidy(signed_in(user).get(address).text)
                badge = "needs your answer" if needed else "waiting for input"
                assert f"{badge}</span>" in page, (user, asked, address)
                assert ("needs your answer</" in page) is needed, (user, asked, address)


def test_q6_the_terminal_lists_what_is_asked_of_me(question: Question, manage: Manage) -> None:
    ann, bob = member(question, "ann"), member(question, "bob")
    asked_of_user(question, bob)
    listed = {
        (user.username, asked): manage("inbox", "--no-input", "--asked", asked, "--as", user.username)
        for user in (ann, bob)
        for asked in ("me", "groups", "all")
    }
    found = {key for key, (_, out, _) in listed.items() if question.headline in out}
    assert found == {("bob", "me"), ("bob", "all"), ("ann", "all")}
