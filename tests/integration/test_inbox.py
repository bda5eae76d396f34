"""The inbox (W2, H5): what became of questions, filters in the URL, the selected one, who is answering."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import (
    CLAIM_LASTS,
    Change,
    EventKind,
    Question,
    QuestionKind,
    QuestionState,
    User,
)
from tasks_app.web import counting
from tasks_app.web.questions import inbox
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.markup import tidy

pytestmark = pytest.mark.django_db


def asked(text: str, **facts: Any) -> Question:
    return QuestionFactory.create(items=[{"question": text}], **facts)


def answered(text: str, by: User, **facts: Any) -> Question:
    done = {"state": QuestionState.ANSWERED, "answered_at": timezone.now(), "answered_via": "web"}
    return asked(text, answered_by=by, answers={text: "Indeed."}, **done, **facts)


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, username="root")


def look(user: User, **query: Any) -> str:
    client = signed_in(user)
    page = client.get(reverse("inbox"), query)
    assert page.status_code == 200
    return tidy(page.text)


def listed(page: str) -> int:
    return page.count('<li class="inbox-row">')


def triggers(page: str) -> dict[str, str]:
    """What makes each part of the page fetch itself again, by the part's address."""
    return dict(re.findall(r'hx-get="([^"]*)"[^>]* hx-trigger="([^"]*)"', tidy(page)))


def test_numbers_beside_a_question_are_fetched_after_it(admin: User) -> None:
    """A new question is on its way alone; tabs and navigation follow."""
    question = asked("Red?")
    late, soon = "catherder:state from:body delay:150ms", "catherder:state from:body,"
    parts = triggers(look(admin))
    (tabs,) = [trigger for address, trigger in parts.items() if address.endswith("part=tabs")]
    (rows,) = [trigger for address, trigger in parts.items() if address.endswith("part=list")]
    assert tabs.startswith(late) and parts[reverse("navigation")].startswith(late)
    assert rows.startswith(soon)
    task = question.task
    parts = triggers(str(signed_in(admin).get(reverse("task", args=[task.pk])).text))
    waiting = {name for name in parts if "delay:150ms" in parts[name]}
    names = ("task_history", "task_plan", "task_timeline")
    assert waiting == {reverse("navigation"), *(reverse(name, args=[task.pk]) for name in names)}
    assert "delay" not in parts[reverse("task_questions", args=[task.pk])]


def test_what_is_too_much_to_count_has_a_plus_and_the_rest_is_in_the_history(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, F: no page reads a million questions to say how many there are."""
    monkeypatch.setattr(inbox, "PER_PAGE", 2)
    monkeypatch.setattr(counting, "MOST_COUNTED", 2)
    monkeypatch.setattr(counting, "MOST_LISTED", 4)
    for number in range(5):
        answered(f"Number {number}?", admin)
    asked("Still open?")
    first, last = (look(admin, state="answered", page=number) for number in (1, 99))
    assert 'aria-current="page">Answered <span class="number">2+</span>' in first
    assert 'Open <span class="number">1</span>' in first
    assert "Page 1 of 2+" in first and listed(first) == 2 and "Number 4?" in first
    assert "Page 2 of 2+" in last and listed(last) == 2 and "Number 1?" in last
    assert '/history/?kind=questions">More in the history</a>' in last


def test_the_steps_to_choose_from_are_those_of_the_newest_questions(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_NEWEST", 1)
    for step, days in (("survey", 9), ("build", 1)):
        question = asked(f"In {step}?", asked_at=timezone.now() - timedelta(days=days))
        question.step.name = step
        question.step.save()
    assert ">build</option>" in look(admin) and ">survey</option>" not in look(admin)
    assert "<option selected>survey</option>" in look(admin, step="survey"), "what was chosen stays"


def test_each_state_has_its_tab_with_a_count(admin: User) -> None:
    asked("Still open?")
    answered("Long answered?", admin)
    asked("Taken back?", state=QuestionState.WITHDRAWN)
    page = look(admin)
    assert "Still open?" in page and "Long answered?" not in page
    assert 'Open <span class="number">1</span>' in page
    done = look(admin, state="answered")
    assert "Long answered?" in done and "Indeed." in done and "Still open?" not in done
    assert "Taken back?" in look(admin, state="withdrawn")


def test_the_filters_are_in_the_address_and_stay_from_tab_to_tab(admin: User) -> None:
    old = asked("Old?", asked_at=timezone.now() - timedelta(days=3), task__created_by=admin)
    asked("New?", kind=QuestionKind.PLAN)
    ways = [{"project": old.task.project.name}, {"age": "1d"}, {"person": "mine"}, {"kind": "clarification"}]
    for query in ways:
        page = look(admin, **query)
        assert listed(page) == 1 and "Old?" in page, query
        name, value = next(iter(query.items()))
        assert f"?state=answered&amp;{name}={value}" in page
    assert listed(look(admin, step="plan")) == 2
    assert listed(look(admin, step="implement")) == 0


def test_what_a_person_answered_can_be_found(admin: User) -> None:
    answered("By root?", admin)
    answered("By another?", UserFactory.create(username="ann"))
    page = look(admin, state="answered", person="ann")
    assert "By another?" in page and "By root?" not in page
    assert '<option value="ann" selected>answered by ann</option>' in page


@pytest.mark.parametrize("state", QuestionState.values)
def test_an_empty_tab_says_what_would_stand_here(admin: User, state: str) -> None:
    page = look(admin, state=state)
    assert 'class="empty none"' in page and "Clear filters" not in page


def test_where_nothing_matches_the_filters_can_be_cleared(admin: User) -> None:
    asked("Still open?")
    page = look(admin, project="another")
    assert "No matching questions" in page and 'href="?state=open">Clear filters' in page
    assert "<summary>1 filter</summary>" in page


@pytest.mark.parametrize("garbage", ["\x00", "'; --", "x" * 5000, "%F0%9F", "\ud800"])
def test_garbage_in_the_address_is_no_error(admin: User, garbage: str) -> None:
    asked("Still open?")
    garbage = garbage.encode(errors="replace").decode()
    names = ("state", "project", "step", "kind", "age", "person", "page", "question")
    for name in names:
        look(admin, **{name: garbage})
    look(admin, **dict.fromkeys(names, garbage))


def test_names_of_projects_steps_and_people_that_one_may_not_see_are_not_offered() -> None:
    answered("Secret?", UserFactory.create(username="secret-person"), task__project__name="secret-project")
    outsider = MembershipFactory.create().user
    page = look(outsider, state="answered")
    assert "secret-" not in page and listed(page) == 0
    assert listed(look(outsider, state="answered", project="secret-project", person="secret-person")) == 0


def test_it_pages_and_its_queries_do_not_grow(admin: User) -> None:
    client = signed_in(admin)
    counts = []
    for many in (1, 55):
        for number in range(many):
            answered(f"Number {number}?", UserFactory.create())
        QuestionFactory.create_batch(3)
        for state in ("open", "answered"):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(reverse("inbox"), {"state": state})
            counts.append(len(queries))
    assert counts[:2] == counts[2:]
    assert listed(page.text) == 50 and "Page 1 of 2" in page.text


def test_the_first_question_is_shown_beside_the_list_and_any_by_its_number(admin: User) -> None:
    first, second = asked("One?"), asked("Two?")
    run = second.run
    append(run, [NewEvent(EventKind.TEXT, {"text": "I looked at the file."})], seq=run.next_seq())
    page = look(admin)
    assert f'id="question-{first.pk}"' in page and f'id="question-{second.pk}"' not in page
    assert f'question={first.pk}" aria-current="true">' in page
    page = look(admin, question=second.pk)
    assert f'id="question-{second.pk}"' in page and "I looked at the file." in page and "inbox-chosen" in page
    done = answered("Settled?", admin)
    assert f'id="question-{done.pk}"' in look(admin, question=done.pk)  # though the list has only open ones


@pytest.mark.parametrize("number", ["", "0", "-1", "x", "9" * 40])
def test_a_question_that_does_not_exist_gives_the_first(admin: User, number: str) -> None:
    first = asked("One?")
    assert f'id="question-{first.pk}"' in look(admin, question=number)


def test_a_question_that_one_may_not_see_is_not_shown(admin: User) -> None:
    secret = asked("Secret?")
    outsider = MembershipFactory.create().user
    assert "Secret?" not in look(outsider, question=secret.pk)


def test_a_page_in_use_fetches_its_parts(admin: User) -> None:
    first, second = asked("One?"), asked("Two?")
    client = signed_in(admin)

    def part(name: str, **query: Any) -> str:
        return str(client.get(reverse("inbox"), {"part": name, **query}, headers={"HX-Request": "true"}).text)

    assert listed(part("list")) == 2 and "<article" not in part("list")
    pane = part("question", question=second.pk)
    assert "Two?" in pane and "One?" not in pane and "<html" not in pane
    assert "Open" in part("tabs") and str(first) not in part("tabs")


# ---- claims ----


def claim(user: User, question: Question, **fields: str) -> Any:
    return signed_in(user).post(reverse("question_claim", args=[question.pk]), fields)


def said(user: User, question: Question) -> str:
    return str(signed_in(user).get(reverse("question_claim", args=[question.pk])).text).strip()


def test_others_see_who_is_answering_and_the_answerer_does_not(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project, user__first_name="Ann").user
    changes = Change.objects.count()
    assert claim(ann, question).status_code == 200
    assert "Ann is answering" in said(admin, question) and "is answering" in look(admin)
    assert said(ann, question) == "" and "is answering" not in look(ann)
    assert Change.objects.count() == changes + 1, "other pages are told"


def test_the_first_claim_holds_and_blocks_no_answer(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project).user
    claim(ann, question)
    claim(admin, question)
    question.refresh_from_db()
    assert question.claimed_by == ann
    answer = {"item-0-other": "Me."}
    done = signed_in(admin).post(reverse("question_answer", args=[question.pk]), answer)
    assert done.status_code == 200
    question.refresh_from_db()
    assert question.answered_by == admin and not question.is_claimed
    assert "is answering" not in look(admin, state="answered")


def test_a_claim_ends_by_itself_and_when_its_user_leaves(admin: User) -> None:
    question = asked("Who?")
    ann = MembershipFactory.create(project=question.task.project).user
    claim(ann, question)
    claim(admin, question, release="yes")
    assert "is answering" in said(admin, question), "nobody ends the claim of another"
    claim(ann, question, release="yes")
    assert said(admin, question) == ""
    claim(ann, question)
    Question.objects.filter(pk=question.pk).update(claimed_at=timezone.now() - CLAIM_LASTS)
    assert said(admin, question) == ""
    claim(admin, question)
    question.refresh_from_db()
    assert question.claimed_by == admin


def test_a_viewer_claims_nothing() -> None:
    question = asked("Who?")
    viewer = MembershipFactory.create(project=question.task.project, role="viewer").user
    assert claim(viewer, question).status_code == 403
    question.refresh_from_db()
    assert question.claimed_by is None
