"""Search over tasks, questions and answers (W2), on SQLite and PostgreSQL; the database keeps the index."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tasks_app.core.types import ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.models import Project, Question, QuestionKind, QuestionState, Task
from tasks_app.permissions import questions_visible_to, tasks_visible_to
from tasks_app.services.search import parse_query, questions_with, tasks_with
from tests.factories import MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


def found(text: str) -> set[str]:
    return set(tasks_with(Task.objects.all(), parse_query(text)).values_list("title", flat=True))


def asked(text: str) -> set[int]:
    return set(questions_with(Question.objects.all(), parse_query(text)).values_list("pk", flat=True))


@pytest.fixture
def rounding() -> Task:
    return TaskFactory.create(
        title="Round prices",
        body="Totals on receipts end in .99, see src/shop/price_table.py.\nLe café ferme à l'été.",
        failure="make: *** [test] Error 2",
    )


@pytest.mark.parametrize(
    "text",
    [
        "round",
        "ROUND prices",
        "pri",
        "receipts round",
        "shop",
        "price_table.py",
        "src/shop/price",
        "table",
        "cafe",
        "CAFÉ",
        "été",
        '"round prices"',
        '"on receipts end"',
        "round -banana",
        'round -"prices round"',
        "error 2",
        "Error",
    ],
)
def test_a_task_is_found_by_its_words(rounding: Task, text: str) -> None:
    TaskFactory.create(title="Another", body="nothing")
    assert found(text) == {"Round prices"}


@pytest.mark.parametrize(
    "text",
    [
        "banana",
        "round banana",
        "ound",
        "rou prices",
        '"prices round"',
        "round -prices",
        'round -"round prices"',
        "-round",
        "",
        "  ",
        "-",
        '"rou"',
    ],
)
def test_what_does_not_match_is_not_found(rounding: Task, text: str) -> None:
    assert found(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        '"',
        '""',
        '"""',
        "'",
        "\\",
        "\0",
        "a\0b",
        "*",
        "(",
        ")",
        "NEAR(",
        "NEAR(a b, 3)",
        "AND",
        "OR NOT",
        "^a",
        "title:x",
        "{title}:x",
        "a:*",
        "!",
        "&",
        "|",
        "<->",
        "a <-> b",
        ":*",
        "%",
        "%s",
        "--",
        "-- DROP TABLE x",
        '-"',
        "- -",
        "🙂",
        "½",
        "\u0301",
        "\ud800",
        "\u202e",
        "x" * 10_000,
        "word " * 2_000,
        '"' * 10_000,
        "-" * 10_000,
    ],
)
def test_no_garbage_is_an_error(rounding: Task, text: str) -> None:
    with transaction.atomic():
        found(text)
        asked(text)


def test_a_question_is_found_by_all_that_was_said() -> None:
    question = QuestionFactory.create(
        items=[
            {
                "question": 'Which "rounding"?\nPlease',
                "header": "Häder",
                "multiSelect": False,
                "options": [{"label": "Half up", "description": "As at school.", "preview": "0.125"}],
            }
        ],
        evidence=[{"kind": "markdown", "title": "rm", "text": "rm -rf build/cache"}],
        answers={'Which "rounding"?\nPlease': "Commercially"},
        notes="Ask Özlem",
        state=QuestionState.ANSWERED,
        answered_at=timezone.now(),
        answered_by=UserFactory.create(),
    )
    for text in (
        "rounding",
        "please",
        "hader",
        "school",
        "build cache",
        "commerc",
        "ozlem",
        '"rm -rf build"',
    ):
        assert asked(text) == {question.pk}, text
        assert found(text) == {question.task.title}, text
    for text in ("multiSelect", "markdown", "clarification", "false"):
        assert asked(text) == set(), text


def test_the_words_of_the_portal_around_a_plan_or_a_call_are_not_found() -> None:
    options = [{"label": "Approve", "description": "The agent goes on and does what it planned."}]
    plan = QuestionFactory.create(
        kind=QuestionKind.PLAN,
        items=[{"question": REVIEW_PLAN, "header": "Plan", "options": options}],
        evidence=[{"kind": "markdown", "title": "Plan", "text": "# Rates\n\nOne table."}],
    )
    call = QuestionFactory.create(
        kind=QuestionKind.APPROVAL,
        items=[{"question": f"{ALLOW_COMMAND}\n\n`make deploy`", "header": "Approval", "options": options}],
        evidence=[{"kind": "command", "title": "The agent says: Roll out", "text": "make deploy"}],
    )
    assert asked("rates table") == {plan.pk}
    assert asked("make deploy") == asked("roll out") == {call.pk}
    for text in ("review", "plan", "planned", "approve", "approval", "allow", "goes on"):
        assert asked(text) == set(), text
    Question.objects.update(kind=QuestionKind.CLARIFICATION)
    assert asked("approve") == {plan.pk, call.pk}


def test_bulk_updates_are_found_and_what_was_there_before_is_not(rounding: Task) -> None:
    question = QuestionFactory.create(task=rounding)
    Task.objects.update(title="Sharpen knives", failure="")
    Question.objects.update(notes="zebra", items=[{"question": "Yak?"}])
    assert found("knives") == {"Sharpen knives"} and not found("prices") and not found("error")
    assert asked("zebra") == asked("yak") == {question.pk} and not asked("half")


def test_what_is_deleted_is_not_found(rounding: Task) -> None:
    QuestionFactory.create(task=rounding, notes="zebra")
    Project.objects.filter(pk=rounding.project_id).delete()
    assert not found("round") and not asked("zebra")
    TaskFactory.create(pk=rounding.pk, title="Reborn")
    assert found("reborn") == {"Reborn"} and not found("receipts")


def test_what_is_rolled_back_is_not_found(rounding: Task) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Task.objects.update(title="Sharpen knives")
        raise ZeroDivisionError
    assert found("prices") and not found("knives")


def test_a_very_long_text_is_stored() -> None:
    words = " ".join(f"{number:x}ü" for number in range(400_000))
    task = TaskFactory.create(title="Long", body=words, failure=words)
    QuestionFactory.create(task=task, notes=words, answers={"a": words})
    assert found("1ü") == {"Long"}


def test_nothing_of_other_projects_is_found(rounding: Task) -> None:
    QuestionFactory.create(task=rounding, notes="zebra")
    outsider = MembershipFactory.create(project=ProjectFactory.create()).user
    member = MembershipFactory.create(project=rounding.project).user
    for text in ("round", "zebra"):
        assert not tasks_with(tasks_visible_to(acting(outsider)), parse_query(text))
        assert tasks_with(tasks_visible_to(acting(member)), parse_query(text)).get() == rounding
    assert not questions_with(questions_visible_to(acting(outsider)), parse_query("zebra"))


def test_the_index_is_used(rounding: Task) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
    plan = tasks_with(Task.objects.all(), parse_query("round")).explain()
    assert "SCAN search_tasks VIRTUAL TABLE INDEX" in plan or "search_tasks" in plan
    assert "SCAN tasks_app_task" not in plan and "Seq Scan" not in plan
