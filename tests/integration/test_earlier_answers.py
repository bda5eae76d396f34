"""Earlier answers to questions like an open one (D4), the same on both databases."""

from __future__ import annotations

import io
import os
import re
from copy import copy
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.cli.questions import Prompt
from tasks_app.cli.terminal import Keyboard, Screen
from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import Likeness, texts_of
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    IndexedAnswer,
    Project,
    Question,
    QuestionKind,
    QuestionState,
    Role,
    User,
)
from tasks_app.services.questions import earlier_answers
from tasks_app.services.questions.answers import Reply, answer_question, dismiss_question, undo_answer
from tasks_app.services.questions.earlier_answers import (
    EarlierAnswer,
    find_similar_answers,
    index_answer,
    newest_answers,
    same_answers,
)
from tasks_app.web.questions.cards import filled_in
from tests.api import Script
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    QuestionFactory,
    RunFactory,
    TaskFactory,
    UserFactory,
)
from tests.integration.conftest import Manage
from tests.people import acting
from tests.similar_questions import DIFFERENT_TEXTS, answered_items

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return MembershipFactory.create().user


@pytest.fixture
def project(user: User) -> Project:
    return Project.objects.get(memberships__user=user)


def item(question: str, *labels: str, several: bool = False) -> dict[str, Any]:
    options = [{"label": label, "description": "", "preview": ""} for label in labels]
    return {"question": question, "header": "", "options": options, "multiSelect": several}


def ask(project: Project, question: str, *labels: str, **values: Any) -> Question:
    task = TaskFactory.create(project=project, phase=Phase.WAITING_FOR_INPUT)
    run = RunFactory.create(task=task)
    items = [item(question, *labels, several=values.pop("several", False))]
    return QuestionFactory.create(task=task, run=run, items=items, **values)


def answered(project: Project, by: User, question: str, *labels: str, **values: Any) -> Question:
    """An answered question, without the transaction of the service: many are needed."""
    row = ask(
        project, question, *labels, state=QuestionState.ANSWERED, answered_by=by, answered_at=timezone.now(),
        answered_via=Channel.WEB, answers={question: labels[0] if labels else "Yes"}, **values,
    )  # fmt: skip
    index_answer(row)
    return row


STORE = ("Should sessions be stored in Redis or in PostgreSQL?", "Redis", "PostgreSQL")


def found(question: Question) -> list[Question]:
    return [one.question for one in find_similar_answers(question)]


def only(question: Question) -> EarlierAnswer:
    (one,) = find_similar_answers(question)
    return one


def test_d4_the_same_question_is_found_with_blanks_and_order_ignored(project: Project, user: User) -> None:
    earlier = answered(project, user, *STORE)
    again = ask(
        project,
        f" {STORE[0]}\n",
        "PostgreSQL (Recommended)",
        "Redis",
    )
    one = only(again)
    assert (one.question, one.score, one.same, one.times) == (earlier, 1.0, True, 1)
    assert one.differences == ()


def test_names_in_what_differs_are_as_they_were_written(project: Project, user: User) -> None:
    answered(project, user, "Should .github/CODEOWNERS or __fp.read be kept as it is?", "Yes", "No")
    one = only(ask(project, "Should docs/Guide.md or __fp.read be kept as it is?", "Yes", "No"))
    assert one.differences == ("other paths: .github/CODEOWNERS, __fp.read",)


def test_d4_what_differs_is_said(project: Project, user: User) -> None:
    earlier = answered(
        project, user, "Store sessions of src/auth.py in Redis or in PostgreSQL?", "Redis", "PostgreSQL",
        several=True,
    )  # fmt: skip
    earlier.task.pipeline = "quick"
    earlier.task.save()
    new = ask(project, "Store sessions of src/login.py in Redis or PostgreSQL?", "Redis", "Memcached")
    one = only(new)
    assert not one.same and earlier_answers.THRESHOLD <= one.score < 1
    assert one.differences == (
        "options that it did not have: Memcached",
        "options that only it had: PostgreSQL",
        "several could be chosen",
        "other paths: src/auth.py",
        "other pipeline: quick",
    )


def test_d4_of_the_same_task_only_the_same_question_is_shown(project: Project, user: User) -> None:
    """The agent knows what was answered to a similar one, and asks all the same."""
    new = ask(project, *STORE)
    similar, same = answered(project, user, STORE[0].upper(), *STORE[1:]), answered(project, user, *STORE)
    assert found(new) == [same, similar]
    for number, one in enumerate((similar, same), start=2):
        Question.objects.filter(pk=one.pk).update(task=new.task, number=number)
    assert found(new) == [same]


def test_d4_unlike_questions_are_not_shown(project: Project, user: User) -> None:
    answered(project, user, *STORE)
    assert not find_similar_answers(ask(project, "Which font should the headings have?", "Serif", "Sans"))


def test_d4_only_answers_of_people_in_the_same_project(project: Project, user: User) -> None:
    other = TaskFactory.create().project
    answered(other, user, *STORE)
    answered(project, user, *STORE, kind=QuestionKind.COST)
    for state in (QuestionState.OPEN, QuestionState.WITHDRAWN):
        ask(project, *STORE, state=state)
    nobody = ask(
        project, *STORE, state=QuestionState.ANSWERED, answered_at=timezone.now(), answers={STORE[0]: "Redis"}
    )
    index_answer(nobody)
    assert not find_similar_answers(ask(project, *STORE))


NAMES_A_DECISION = ("Does D-3 still hold?", "Yes", "No")


def test_d4_a_label_of_another_project_means_another_decision(project: Project, user: User) -> None:
    """D1: within a project a label means one decision for good, so there equal words ask the same."""
    answered(TaskFactory.create().project, user, *NAMES_A_DECISION)
    assert not find_similar_answers(ask(project, *NAMES_A_DECISION))
    earlier = answered(project, user, *NAMES_A_DECISION)
    one = only(ask(project, *NAMES_A_DECISION))
    assert (one.question, one.same) == (earlier, True)


def test_d4_questions_that_name_different_decisions_are_never_the_same(project: Project, user: User) -> None:
    answered(project, user, "Does D-4 still hold?", *NAMES_A_DECISION[1:])
    assert not any(one.same for one in find_similar_answers(ask(project, *NAMES_A_DECISION)))


def test_d4_approvals_and_plans_have_no_earlier_answers(project: Project, user: User) -> None:
    answered(project, user, *STORE)
    for kind in (QuestionKind.APPROVAL, QuestionKind.PLAN, QuestionKind.COST):
        assert not find_similar_answers(ask(project, *STORE, kind=kind))


def test_d4_an_answer_is_indexed_with_it_and_leaves_when_it_is_taken_back(
    project: Project, user: User, settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    first, second = ask(project, *STORE), ask(project, *STORE)
    answer_question(first, Reply.to(first, "Redis"), by=acting(user), via=Channel.WEB)
    assert found(second) == [first]
    undo_answer(first, by=acting(user))
    assert not found(second) and not IndexedAnswer.objects.exists()


def test_d4_a_dismissed_question_is_no_answer(project: Project, user: User) -> None:
    first, second = ask(project, *STORE), ask(project, *STORE)
    dismiss_question(first, by=acting(user), via=Channel.WEB)
    assert not found(second) and not IndexedAnswer.objects.exists()


def test_d4_equal_questions_count_once_with_the_latest_answer(project: Project, user: User) -> None:
    rows = [answered(project, user, *STORE) for _ in range(4)]
    latest = rows[1]
    Question.objects.filter(pk=latest.pk).update(answered_at=timezone.now())
    other = answered(project, user, "Should sessions be stored in Redis?", "Redis", "PostgreSQL")
    one, two = find_similar_answers(ask(project, *STORE))
    assert (one.question, one.times) == (latest, 4)
    assert (two.question, two.times) == (other, 1)


def test_d4_the_same_question_is_one_look_up(project: Project, user: User) -> None:
    rows = [answered(project, user, *STORE) for _ in range(2)]
    key = earlier_answers.question_key(rows[0])
    assert [one.question for one in same_answers(project.pk, key)] == rows[::-1]
    assert not same_answers(project.pk + 1, key)


def test_d4_the_work_does_not_grow_with_the_answers(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest, those of full text, the same question, their texts, and a count for each answer shown.

    Full text is not asked when the newest are all.
    """
    monkeypatch.setattr(earlier_answers, "SAMPLE", 10)
    monkeypatch.setattr(earlier_answers, "MOST_TIMES", 2)
    new = ask(project, *STORE)
    counts = []
    for number in (3, 30):
        for n in range(number):
            answered(project, user, f"{STORE[0]}{'?' * (number + n)}", *STORE[1:])
            answered(project, user, *STORE)
        with CaptureQueriesContext(connection) as asked:
            assert (
                len(find_similar_answers(Question.objects.select_related("task", "step").get(pk=new.pk))) == 3
            )
        counts.append(len(asked))
    assert counts == [10, 11]


def test_d4_full_text_finds_what_is_not_among_the_newest(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_answers, "SAMPLE", 10)
    earlier = answered(
        project, user, "Are invoices archived in Glacier after seven years?", "Glacier", "Tape"
    )
    for n in range(40):
        answered(project, user, f"Which colour has the button {n} of the page?", "Blue", "Red")
    new = ask(project, "After how many years are invoices archived to Glacier?", "Seven", "Ten")
    assert found(new) == [earlier]


def test_d4_what_was_answered_is_compared_as_well(project: Project, user: User) -> None:
    earlier = answered(project, user, "Which delivery?", "By courier, Fridays excepted", "By post")
    assert found(ask(project, "Is the courier paid on Fridays?")) == [earlier]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("本番環境で使うデータベースはどれですか?", "本番環境のデータベースは MySQL ですか?"),
        ("订单取消以后，什么时候给用户退款?", "用户取消订单以后，应该自动退款吗?"),
        ("접근 로그를 얼마나 오래 보관해야 합니까?", "며칠이 지난 접근 로그를 삭제해도 됩니까?"),
    ],
    ids=["Japanese", "Chinese", "Korean"],
)
def test_d4_languages_without_blanks_between_words(
    earlier: str, later: str, project: Project, user: User
) -> None:
    row = answered(project, user, earlier)
    assert found(ask(project, later)) == [row]


def test_d4_what_other_rules_have_indexed_is_indexed_anew_after_an_update(
    project: Project, user: User
) -> None:
    earlier = answered(project, user, *STORE)
    nothing = answered(project, user, "?!")
    words = IndexedAnswer.objects.get(question=earlier).words
    assert words and not IndexedAnswer.objects.get(question=nothing).words.count(" ")
    IndexedAnswer.objects.update(words="w0123456789ab w0123456789ac")
    earlier_answers.renew_index(using="default")
    assert IndexedAnswer.objects.get(question=earlier).words == words
    with CaptureQueriesContext(connection) as asked:
        earlier_answers.renew_index(using="default")
    assert not [one for one in asked if one["sql"].startswith("UPDATE")], "nothing is left to do"


def test_d4_pairs_of_words_that_are_everywhere_are_not_looked_for() -> None:
    common, rare = frozenset({"a", "b"}), frozenset({"c"})
    sample = [common] * 100 + [rare]
    assert earlier_answers._rare_pairs(["a", "b", "c"], sample) == [("c", "a"), ("c", "b")]
    assert earlier_answers._rare_pairs(["a", "b"], sample) == []


def test_d4_hostile_words_are_no_query(project: Project, user: User) -> None:
    hostile = "' OR 1=1 -- \" AND NEAR(x) * \x1b[31m & | ! <-> :* redis sessions postgres"
    earlier = answered(project, user, hostile, "') --", "*")
    assert found(ask(project, hostile, "') --", "*")) == [earlier]
    assert not find_similar_answers(ask(project, "?!…"))


@pytest.mark.django_db(transaction=True)
def test_d4_the_index_outlives_a_change_of_its_table(project: Project, user: User) -> None:
    """To change a table of SQLite, Django makes another one, and triggers go with the old one."""
    before = IndexedAnswer._meta.get_field("question_key")
    longer = copy(before)
    longer.max_length = 99
    with connection.schema_editor() as editor:
        editor.alter_field(IndexedAnswer, before, longer)
    try:
        earlier = answered(project, user, *STORE)
        assert found(ask(project, *STORE)) == [earlier]
    finally:
        with connection.schema_editor() as editor:
            editor.alter_field(IndexedAnswer, longer, before)


def test_d4_both_databases_rank_the_shipped_answers_as_a_comparison_with_all_of_them(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    task = TaskFactory.create(project=project)
    run = RunFactory.create(task=task)
    for number, one in enumerate(answered_items()[:200], start=2):
        row = QuestionFactory.create(
            task=task, run=run, number=number, items=[one.item], state=QuestionState.ANSWERED,
            answered_by=user, answered_at=timezone.now(), answers={one.item["question"]: one.answer},
        )  # fmt: skip
        index_answer(row)
    rows = list(IndexedAnswer.objects.order_by("-question"))
    likeness = Likeness([row.words.split() for row in rows])
    run = RunFactory.create(task=TaskFactory.create(project=project))
    new = QuestionFactory.build(task=run.step.task, run=run, step=run.step, pk=0)

    def of_all() -> list[int]:
        words = earlier_answers.indexed_words(project.pk, texts_of(new.items[0]))
        scored = [(round(likeness.of(words, row.words.split()), 4), row.question_id) for row in rows]
        ranked = sorted(scored, reverse=True)
        least = earlier_answers.lowest_shown(score for score, _ in scored)
        return [pk for score, pk in ranked if score >= least][:3]

    missed = wanted = 0
    for one in answered_items():
        if not one.later:
            continue
        new.items = [one.later]
        expected = of_all()
        with subtests.test(one.later["question"]):
            assert [found.question.pk for found in find_similar_answers(new)] == expected
        words = earlier_answers.indexed_words(project.pk, texts_of(one.later))
        with monkeypatch.context() as few:  # full text has to find nearly all of them
            few.setattr(earlier_answers, "SAMPLE", 20)
            by_words = earlier_answers.find_by_full_text(new, words, newest_answers(new))
        missed += bool(expected) and expected[0] not in {entry.question_id for entry in by_words}
        wanted += bool(expected)
    assert wanted > 30 and missed <= wanted / 10


def test_d4_an_answer_that_is_taken_is_recorded_counted_and_forgotten_with_it(
    project: Project, user: User, settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    earlier = answered(project, user, STORE[0], "Redis (Recommended)", "PostgreSQL")
    new = ask(project, *STORE)
    assert only(new).answers == {STORE[0]: "Redis"}, "in the words of the new question"
    reply = Reply({STORE[0]: "Redis"}, taken_from=earlier.pk)
    assert answer_question(new, reply, by=acting(user), via=Channel.WEB).question.taken_from == earlier
    assert answer_question(new, reply, by=acting(user), via=Channel.WEB).repeated
    assert AuditEntry.objects.get(action=Action.ANSWERED).detail["taken_from"] == earlier.pk
    assert {one.question: one.taken for one in find_similar_answers(ask(project, *STORE))} == {new: 0}
    undo_answer(new, by=acting(user))
    new.refresh_from_db()
    assert new.taken_from is None and only(ask(project, *STORE)).question == earlier


def test_d4_another_answer_is_not_taken_from_anywhere(project: Project, user: User) -> None:
    earlier = answered(project, user, *STORE)
    elsewhere = answered(TaskFactory.create().project, user, *STORE)
    for given, source in (
        ("PostgreSQL", earlier.pk),
        ("Redis", elsewhere.pk),
        ("Redis", 2**62),
        ("Redis", None),
    ):
        new = ask(project, *STORE)
        reply = Reply({STORE[0]: given}, taken_from=source)
        assert answer_question(new, reply, by=acting(user), via=Channel.API).question.taken_from is None


def test_d4_only_the_answer_to_the_same_item_is_taken(project: Project, user: User) -> None:
    columns = item("Which columns?", "id", "name", "mail", several=True)
    earlier = answered(project, user, *STORE)
    earlier.items = [columns, item("Which name?")]
    earlier.answers = {"Which columns?": "id, mail, notes", "Which name?": "Orders"}
    new = ask(project, *STORE)
    new.items = [
        item("Which name?"),
        item("Which columns?", "mail (Recommended)", "name", "id", several=True),
    ]
    taken = {"Which columns?": "id, mail (Recommended), notes", "Which name?": "Orders"}
    assert earlier_answers.answers_for(new, earlier) == taken
    new.items = [item("Which names?"), item("Which columns?", "ID", "name", "mail", several=True)]
    assert earlier_answers.answers_for(new, earlier) == {}


@pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXTS)
def test_d4_a_similar_answer_is_shown_and_cannot_be_taken(
    one: str, other: str, project: Project, user: User
) -> None:
    """One key must not fill in the answer to a question that differs in a character."""
    asked = "Which spelling of the delimiter should the importer of orders accept?"
    earlier = answered(project, user, asked, one, "Neither")
    new = ask(project, asked, other, "Neither")
    shown = only(new)
    assert (shown.question, shown.same) == (earlier, False) and shown.differences
    assert filled_in(new, str(earlier.pk)) is None
    assert 'data-use="' not in signed_in(user).get(reverse("question", args=[new.pk])).text
    reply = Reply({asked: one}, taken_from=earlier.pk)
    assert answer_question(new, reply, by=acting(user), via=Channel.WEB).question.taken_from is None


def answered_card(project: Project, by: User, *items: dict[str, Any], **answers: str) -> Question:
    """An answered card of several items; `answers` by their places, as in `a0`."""
    row = ask(project, "?", state=QuestionState.ANSWERED, answered_by=by, answered_at=timezone.now())
    row.items = list(items)
    row.answers = {str(one["question"]): answers[f"a{place}"] for place, one in enumerate(items)}
    row.save()
    index_answer(row)
    return row


def test_d4_what_a_card_of_several_items_answered_is_found_for_one_of_them(
    project: Project, user: User
) -> None:
    fonts = item("Which font should the headings have?", "Serif", "Sans")
    earlier = answered_card(project, user, fonts, item(*STORE), a0="Sans", a1="Redis")
    one = only(ask(project, *STORE))
    assert (one.question, one.same, one.times) == (earlier, True, 1)
    assert (one.headline, one.text, one.answers) == (STORE[0], "Redis", {STORE[0]: "Redis"})
    assert IndexedAnswer.objects.filter(question=earlier).count() == 2


def test_d4_each_item_of_a_card_has_its_own_earlier_answers(project: Project, user: User) -> None:
    stored = answered(project, user, *STORE)
    fonts = answered(project, user, "Which font should the headings have?", "Sans", "Serif")
    new = ask(project, *STORE)
    new.items = [item("Which colours?"), item(*STORE), *fonts.items]
    new.save()
    assert [(one.question, dict(one.answers)) for one in find_similar_answers(new)] == [
        (stored, {STORE[0]: "Redis"}),
        (fonts, {fonts.headline: "Sans"}),
    ]
    reply = Reply(
        {"Which colours?": "Red", STORE[0]: "PostgreSQL", fonts.headline: "Sans"}, taken_from=fonts.pk
    )
    assert answer_question(new, reply, by=acting(user), via=Channel.WEB).question.taken_from == fonts


def test_d4_the_card_shows_the_nearest_answer_and_fills_it_in_without_scripts(
    project: Project, user: User
) -> None:
    earlier = answered(project, user, *STORE)
    Question.objects.filter(pk=earlier.pk).update(notes="With a password.")
    answered(project, user, "Should sessions be stored in <b>Redis</b>?", "Redis", "PostgreSQL")
    new = ask(project, *STORE)
    page = signed_in(user).get(f"/questions/{new.pk}/").content.decode()
    assert "Asked before" in page and "The same question." in page and "1 more" in page
    assert f'href="/questions/{new.pk}/?use={earlier.pk}"' in page and "<b>Redis" not in page
    assert page.count(" checked") == 1  # “this task”, how far the answer holds
    filled = signed_in(user).get(f"/questions/{new.pk}/?use={earlier.pk}").content.decode()
    assert (
        re.search(r'value="Redis"[^>]* checked', filled)
        and f'name="taken_from" value="{earlier.pk}"' in filled
    )
    assert ">With a password.</textarea>" in filled, "they were dropped without a word"
    more = QuestionFactory.create(
        task=TaskFactory.create(project=project),
        items=[*new.items, {"question": "Which port?", "options": []}],
    )
    filled_with_more = signed_in(user).get(f"/questions/{more.pk}/?use={earlier.pk}").content.decode()
    assert 'value="Redis"' in filled_with_more and ">With a password.</textarea>" not in filled_with_more
    assert "Filled in. Nothing is sent yet." in filled and Question.objects.get(pk=new.pk).is_open
    assert signed_in(user).get(f"/questions/{new.pk}/?use=x").status_code == 200
    sent = {"item-0": "Redis", "taken_from": str(earlier.pk)}
    done = signed_in(user).post(f"/questions/{new.pk}/answer/", sent).content.decode()
    assert "As in task" in done and "Asked before" not in done


def test_a_question_that_is_only_similar_is_not_called_asked_before(
    project: Project, user: User, manage: Manage
) -> None:
    """Notes on several questions are named as such: they are no part of this one answer."""
    old = ask(project, *STORE)
    old.items = [*old.items, item("And for how long?")]
    old.save(update_fields=["items"])
    answers = {STORE[0]: "Redis", "And for how long?": "A week"}
    answer_question(old, Reply(answers, notes="Keep it small."), by=acting(user), via=Channel.WEB)
    same, similar = ask(project, *STORE), ask(project, STORE[0].upper(), *STORE[1:])
    for new, heading, other in (
        (same, "Asked before", "Similar question"), (similar, "Similar question", "Asked before")
    ):  # fmt: skip
        page = signed_in(user).get(f"/questions/{new.pk}/").text
        shown = manage("status", new.task_id)[1]
        assert f">{heading}</h3>" in page and other not in page
        assert f"{heading}: " in shown and f"{other}: " not in shown
        assert "Notes on all of these questions: Keep it small." in page


def test_d4_viewers_see_no_button(project: Project, user: User) -> None:
    answered(project, user, *STORE)
    viewer = MembershipFactory.create(project=project, role=Role.VIEWER).user
    page = signed_in(viewer).get(f"/questions/{ask(project, *STORE).pk}/").content.decode()
    assert "Use this answer" not in page


def test_d4_the_api_lists_earlier_answers_and_takes_one(project: Project, user: User) -> None:
    earlier, new = answered(project, user, *STORE), ask(project, *STORE)
    script = Script(user)
    (shown,) = script.get(f"/questions/{new.pk}").json()["earlier"]
    assert (shown["question"], shown["answers"], shown["same"]) == (earlier.pk, {STORE[0]: "Redis"}, True)
    done = script.post(f"/questions/{new.pk}/answer", {"answer": "Redis", "taken_from": earlier.pk}).json()
    assert done["question"]["taken_from"] == earlier.pk
    assert script.get(f"/questions/{new.pk}").json()["earlier"] == []


def type_at_the_prompt(question: Question, typed: bytes) -> tuple[Reply, str]:
    reading, writing = os.pipe()
    os.write(writing, typed)
    os.close(writing)
    shown = io.StringIO()
    reply = Prompt(Screen(shown), Keyboard(reading), check_interrupt=lambda: None).reply_to(question)
    os.close(reading)
    return reply, shown.getvalue()


def test_the_prompt_of_the_terminal_takes_an_earlier_answer_with_one_key(
    project: Project, user: User
) -> None:
    old, question = answered(project, user, *STORE), ask(project, *STORE)
    reply, shown = type_at_the_prompt(question, b"r\n")
    assert f"Asked before: {user.shown_name}, 20" in shown and "The same question." in shown
    assert "Type r to give the same answer as before." in shown
    assert (reply.answers, reply.taken_from) == ({STORE[0]: "Redis"}, old.pk)
    answer_question(question, reply, by=acting(user), via=Channel.TERMINAL)
    question.refresh_from_db()
    assert question.taken_from == old and find_similar_answers(ask(project, *STORE))[0].times == 2


def test_what_is_typed_instead_is_the_answer(project: Project, user: User) -> None:
    answered(project, user, *STORE)
    for typed, answer in ((b"2\n", "PostgreSQL"), (b"R\n", "R"), (b"r9\n", "r9"), (b"rr\n", "rr")):
        reply, _ = type_at_the_prompt(ask(project, *STORE), typed)
        assert (reply.answers, reply.taken_from) == ({STORE[0]: answer}, None)
    answered(project, user, "In which language?", "r", "python")
    reply, _ = type_at_the_prompt(ask(project, "In which language?", "python", "r"), b"r\n")
    assert (reply.answers, reply.taken_from) == ({"In which language?": "r"}, None)


def test_at_the_prompt_only_what_the_earlier_answer_leaves_open_is_asked(
    project: Project, user: User
) -> None:
    old = answered(project, user, *STORE)
    question = ask(project, *STORE)
    question.items = [*question.items, item("And for how long?")]
    question.save(update_fields=["items"])
    assert found(question) == [old], "it is near enough"
    reply, shown = type_at_the_prompt(question, b"r\nA week\n")
    assert reply.answers == {STORE[0]: "Redis", "And for how long?": "A week"}
    assert "And for how long?" in shown


def test_the_commands_show_and_take_earlier_answers(project: Project, user: User, manage: Manage) -> None:
    old, question = answered(project, user, *STORE), ask(project, *STORE)
    UserFactory.create(username="ann", is_superuser=True)
    assert "Asked before: " in manage("status", question.task_id)[1]
    other = ask(project, STORE[0].upper(), *STORE[1:])
    assert manage("answer", "--as", user.username, other.pk, "--take")[0] == 2
    assert manage("answer", "--as", user.username, question.pk, "Redis", "--take")[0] == 2
    code, out, _ = manage("answer", "--as", user.username, question.pk, "--take")
    question.refresh_from_db()
    assert (code, question.taken_from, question.answer_text) == (0, old, "Redis") and "Redis" in out
