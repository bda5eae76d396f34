"""Earlier answers to questions like an open one (D4), the same on both databases."""

from __future__ import annotations

import importlib
import io
import os
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.cli.keyboard import Keyboard
from tasks_app.cli.prompt import Prompt
from tasks_app.cli.screen import Screen
from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import profile_of, similarity
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
from tasks_app.reporting.search import schema
from tasks_app.services.questions import answer_index, earlier_answers
from tasks_app.services.questions.answer_index import index_answer, same_answers
from tasks_app.services.questions.answers import Reply, answer_question, dismiss_question
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.services.questions.undo import undo_answer
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, RunFactory, TaskFactory, UserFactory
from tests.integration.conftest import Manage
from tests.people import acting
from tests.similar_questions import pairs

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


def test_d4_the_same_question_is_found_with_case_punctuation_and_order_ignored(
    project: Project, user: User
) -> None:
    earlier = answered(project, user, *STORE)
    again = ask(
        project,
        "should sessions be stored in  Redis or in “PostgreSQL”",
        "PostgreSQL (Recommended)",
        "redis",
    )
    one = only(again)
    assert (one.question, one.score, one.same, one.times) == (earlier, 1.0, True, 1)
    assert one.differences == ()


def test_d4_what_differs_is_said(project: Project, user: User) -> None:
    earlier = answered(
        project, user, "Store sessions of src/auth.py in Redis or in PostgreSQL?", "Redis", "PostgreSQL",
        several=True,
    )  # fmt: skip
    earlier.task.pipeline = "quick"
    earlier.task.save()
    new = ask(project, "Store sessions of src/login.py in Redis or PostgreSQL?", "Redis", "Memcached")
    one = only(new)
    assert not one.same and 0.45 <= one.score < 1
    assert one.differences == (
        "other wording",
        "options that it did not have: Memcached",
        "options that only it had: PostgreSQL",
        "several could be chosen",
        "other paths: src/auth.py",
        "other pipeline: quick",
    )


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
    key = answer_index.question_key(rows[0])
    assert [one.question for one in same_answers(project.pk, key)] == rows[::-1]
    assert not same_answers(project.pk + 1, key)


def test_d4_the_work_does_not_grow_with_the_answers(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest, those of full text, the same question, their texts, and a count for each answer shown.

    Full text is not asked when all pairs of words are common.
    """
    monkeypatch.setattr(earlier_answers, "MOST_TIMES", 2)
    new = ask(project, *STORE)
    counts = []
    for number in (3, 30):
        for n in range(number):
            answered(project, user, f"Should sessions {n} be stored in Redis or in PostgreSQL?", *STORE[1:])
            answered(project, user, *STORE)
        with CaptureQueriesContext(connection) as asked:
            assert (
                len(find_similar_answers(Question.objects.select_related("task", "step").get(pk=new.pk))) == 3
            )
        counts.append(len(asked))
    assert counts == [11, 10]


def test_d4_full_text_finds_what_is_not_among_the_newest(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_index, "SAMPLE", 10)
    earlier = answered(
        project, user, "Are invoices archived in Glacier after seven years?", "Glacier", "Tape"
    )
    for n in range(40):
        answered(project, user, f"Which colour has the button {n} of the page?", "Blue", "Red")
    new = ask(project, "After how many years are invoices archived to Glacier?", "Seven", "Ten")
    assert found(new) == [earlier]


def test_d4_pairs_of_words_that_are_everywhere_are_not_looked_for() -> None:
    common, rare = frozenset({"a", "b"}), frozenset({"c"})
    sample = [common] * 100 + [rare]
    assert answer_index._rare_pairs(["a", "b", "c"], sample) == [("c", "a"), ("c", "b")]
    assert answer_index._rare_pairs(["a", "b"], sample) == []


def test_d4_hostile_words_are_no_query(project: Project, user: User) -> None:
    hostile = "' OR 1=1 -- \" AND NEAR(x) * \x1b[31m & | ! <-> :* redis sessions postgres"
    earlier = answered(project, user, hostile, "') --", "*")
    assert found(ask(project, hostile, "') --", "*")) == [earlier]
    assert not find_similar_answers(ask(project, "?!…"))


def test_d4_old_answers_are_indexed_by_the_migration(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [answered(project, user, *STORE) for _ in range(5)]
    ask(project, *STORE)
    made = list(IndexedAnswer.objects.order_by("question").values("question", "question_key", "words"))
    IndexedAnswer.objects.all().delete()
    migration = importlib.import_module("tasks_app.migrations.0066_earlier_answers")
    monkeypatch.setattr(migration, "BATCH", 2)
    migration.index_old_answers(apps, SimpleNamespace(connection=connection))
    indexed = IndexedAnswer.objects.order_by("question").values("question", "question_key", "words")
    assert list(indexed) == made and len(made) == len(rows)


def test_d4_lost_triggers_of_the_index_come_back(project: Project, user: User) -> None:
    if connection.vendor != "sqlite":
        assert schema.is_whole(connection)
        return
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER search_answer_made")
    assert not schema.is_whole(connection)
    assert schema.mend(connection) and not schema.mend(connection)


@pytest.mark.django_db(transaction=True)
def test_d4_the_index_is_dropped_and_made_again(project: Project, user: User) -> None:
    earlier = answered(project, user, *STORE)
    try:
        with connection.schema_editor() as editor:
            schema.drop_answers(None, editor)
        tables = connection.introspection.table_names()
        assert not [name for name in tables if name.startswith("search_answers")]
    finally:
        with connection.schema_editor() as editor:
            schema.make_answers(None, editor)
    assert found(ask(project, *STORE)) == [earlier]


def test_d4_a_score_is_symmetric() -> None:
    one, other = (profile_of([item(text)]) for text in (STORE[0], "Where are sessions stored?"))
    assert similarity(one, other) == similarity(other, one) > 0


def test_d4_both_databases_rank_the_shipped_pairs_as_a_comparison_with_all_of_them(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    task = TaskFactory.create(project=project)
    run = RunFactory.create(task=task)
    texts = {str(pair.earlier[0]["question"]): pair.earlier for pair in pairs()}
    for number, items in enumerate(texts.values(), start=2):
        row = QuestionFactory.create(
            task=task, run=run, number=number, items=items, state=QuestionState.ANSWERED,
            answered_by=user, answered_at=timezone.now(), answers={items[0]["question"]: "Yes"},
        )  # fmt: skip
        index_answer(row)
    rows = list(Question.objects.all())
    new = QuestionFactory.build(task=task, run=run, step=run.step, pk=0)

    def of_all() -> list[int]:
        mine, key = profile_of(new.items), answer_index.question_key(new)
        scored = []
        for row in rows:
            same = answer_index.question_key(row) == key
            score = 1.0 if same else min(similarity(mine, profile_of(row.items)), 0.99)
            scored.append((score, row.pk))
        ranked = sorted(scored, reverse=True)
        return [pk for score, pk in ranked if score >= earlier_answers.THRESHOLD][:3]

    missed = wanted = 0
    for pair in pairs():
        new.items = pair.later
        expected = of_all()
        with subtests.test(pair.later[0]["question"]):
            assert [one.pk for one in found(new)] == expected
        with monkeypatch.context() as few:  # full text has to find nearly all of them
            few.setattr(answer_index, "SAMPLE", 1)
            missed += bool(expected) and [one.pk for one in found(new)][:1] != expected[:1]
            wanted += bool(expected)
    assert wanted > 60 and missed <= wanted / 10


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


def test_d4_each_item_takes_the_answer_to_the_most_similar_one(project: Project, user: User) -> None:
    items = [item("Which columns?", "id", "name", "mail", several=True), item("Which name?")]
    earlier = answered(project, user, *STORE)
    earlier.items, earlier.answers = items, {"Which columns?": "id, Mail, notes", "Which name?": "Orders"}
    later = [item("What name?"), item("Which columns are shown?", "ID", "mail", several=True)]
    new = ask(project, *STORE)
    new.items = later
    taken = {"Which columns are shown?": "ID, mail, notes", "What name?": "Orders"}
    assert earlier_answers.answers_for(new, earlier) == taken
    new.items = [*later[:1], item("How long are sessions kept?")]
    assert earlier_answers.answers_for(new, earlier) == {"What name?": "Orders"}


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


def test_d4_the_migration_gives_each_item_its_own_entry(
    project: Project, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts = item("Which font should the headings have?", "Serif", "Sans")
    cards = [answered_card(project, user, fonts, item(*STORE), a0="Sans", a1="Redis") for _ in range(3)]
    answered(project, user, *STORE)
    columns = ("question", "place", "question_key", "words")
    made = list(IndexedAnswer.objects.order_by("question", "place").values(*columns))
    IndexedAnswer.objects.exclude(place=0).delete()
    for card in cards:
        old = answer_index.index_values(project.pk, card.items)
        IndexedAnswer.objects.filter(question=card).update(**old)
    migration = importlib.import_module("tasks_app.migrations.0076_answers_by_item")
    monkeypatch.setattr(migration, "BATCH", 2)
    migration.index_items(apps, SimpleNamespace(connection=connection))
    assert list(IndexedAnswer.objects.order_by("question", "place").values(*columns)) == made
    assert only(ask(project, *STORE)).times == 4
    migration.forget_items(apps, SimpleNamespace(connection=connection))
    assert IndexedAnswer.objects.count() == 4


def test_d4_the_card_shows_the_nearest_answer_and_fills_it_in_without_scripts(
    project: Project, user: User
) -> None:
    earlier = answered(project, user, *STORE)
    answered(project, user, "Should sessions be stored in <b>Redis</b>?", "Redis", "PostgreSQL")
    new = ask(project, *STORE)
    page = signed_in(user).get(f"/questions/{new.pk}/").content.decode()
    assert "Asked before" in page and "The same question." in page and "1 more" in page
    assert f'href="/questions/{new.pk}/?use={earlier.pk}"' in page and "<b>Redis" not in page
    assert page.count(" checked") == 1  # “this task”, how far the answer holds
    filled = signed_in(user).get(f"/questions/{new.pk}/?use={earlier.pk}").content.decode()
    assert 'value="Redis" checked' in filled and f'name="taken_from" value="{earlier.pk}"' in filled
    assert "Filled in. Nothing is sent yet." in filled and Question.objects.get(pk=new.pk).is_open
    assert signed_in(user).get(f"/questions/{new.pk}/?use=x").status_code == 200
    sent = {"item-0": "Redis", "taken_from": str(earlier.pk)}
    done = signed_in(user).post(f"/questions/{new.pk}/answer/", sent).content.decode()
    assert "As in task" in done and "Asked before" not in done


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
    reply, shown = type_at_the_prompt(question, b"r @project\n")
    assert f"Asked before (1): {user.shown_name}, 20" in shown and "The same question." in shown
    assert "Type r to give the same answer as before." in shown
    assert (reply.answers, reply.taken_from) == ({STORE[0]: "Redis"}, old.pk)
    assert reply.decision_input.remember.scope == "project"
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
    assert "Asked before (1)" in manage("status", question.task_id)[1]
    code, _, err = manage("answer", "--as", user.username, question.pk, "--take", "2")
    assert code == 2 and "has 1 earlier answer" in err
    assert manage("answer", "--as", user.username, question.pk, "Redis", "--take")[0] == 2
    code, out, _ = manage("answer", "--as", user.username, question.pk, "--take")
    question.refresh_from_db()
    assert (code, question.taken_from, question.answer_text) == (0, old, "Redis") and "Redis" in out
