"""`POST /questions/{id}/answer` obeys H5 to the letter; keys make sending twice harmless (W5, R1)."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import AuditEntry, Decision, EventKind, Question, QuestionKind, Task
from tasks_app.services.questions.earlier_answers import question_key
from tests.api import PROBLEM, Script
from tests.factories import (
    COLUMNS,
    FILE_NAME,
    DecisionFactory,
    MembershipFactory,
    QuestionFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(question: Question) -> Script:
    return Script(MembershipFactory.create(project=question.task.project, user__username="ann").user)


def address(question: Question) -> str:
    return f"/questions/{question.pk}/answer"


def test_an_answer_is_taken_and_says_by_whom_and_when(question: Question, ann: Script) -> None:
    answer = ann.post(address(question), {"answer": "Half up", "notes": "as before"})
    assert answer.status_code == 200
    said = answer.json()["question"]
    assert (said["answered_by"]["username"], said["answered_via"], said["state"]) == (
        "ann",
        "api",
        "answered",
    )
    assert said["answered_at"]
    entry = AuditEntry.objects.get(action="answered")
    assert (entry.via, entry.token) == ("api", "script")


@pytest.mark.parametrize(
    "body", [{"answer": ""}, {"answer": " \n"}, {}, {"answer": None}, None, "", "{", "[]"]
)
def test_an_empty_answer_is_400(body: object, question: Question, ann: Script) -> None:
    answer = ann.post(address(question), body)
    assert (answer.status_code, answer["Content-Type"]) == (400, PROBLEM)
    assert Question.objects.get().is_open


def test_an_answer_reads_nothing_twice(question: Question, ann: Script) -> None:
    append(question.run, [NewEvent(EventKind.TEXT, {"text": "I ask."})], seq=0)
    ann.get("/tasks")  # the first use of a token is written down
    with CaptureQueriesContext(connection) as captured:
        assert ann.post(address(question), {"answer": "Half up"}).status_code == 200
    said = [query["sql"] for query in captured.captured_queries]
    reads = Counter(re.findall(r'^SELECT .*? FROM "tasks_app_(\w+)"', "\n".join(said), re.MULTILINE))
    assert reads == {
        "apitoken": 1, "question": 2, "project": 1, "decision": 1, "task": 1, "event": 1, "asked": 1,
    }  # fmt: skip
    assert len(said) <= 19, "14 of them are the transaction"


def test_the_same_answer_again_changes_nothing_and_another_is_409(question: Question, ann: Script) -> None:
    ann.post(address(question), {"answer": "Half up"})
    again = ann.post(address(question), {"answer": "Half up"})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    for late in (ann, Script(UserFactory.create(is_superuser=True))):
        refused = late.post(address(question), {"answer": "Half to even"})
        assert refused.status_code == 409
        assert "Answered by ann" in refused.json()["detail"]
        assert list(refused.json()["question"]["answers"].values()) == ["Half up"]


def test_long_answers_work_and_too_long_ones_are_413(question: Question, ann: Script) -> None:
    for size in (200_001, 3_000_000):
        refused = ann.post(address(question), {"answer": "x" * size})
        assert (refused.status_code, refused["Content-Type"]) == (413, PROBLEM)
    assert ann.post(address(question), {"answer": "x" * 100_000}).status_code == 200


def test_several_answers_and_several_choices_are_taken(question: Question, ann: Script) -> None:
    Question.objects.filter(pk=question.pk).update(items=[COLUMNS, FILE_NAME])
    answers = {COLUMNS["question"]: ["Name", "E-mail"], FILE_NAME["question"]: "c.csv"}
    assert ann.post(address(question), {"answers": answers}).status_code == 200
    question.refresh_from_db()
    assert question.answers == {COLUMNS["question"]: "Name, E-mail", FILE_NAME["question"]: "c.csv"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "Cannot parse request body"),
        ("[]", "body: Input should be a valid dictionary"),
        ("{}", 'send {"answer"'),
        ('{"answer": "a", "answers": {}}', 'send {"answer"'),
        ('{"answer": 7}', "body.answer.str: Input should be a valid string"),
        ('{"answer": null}', 'send {"answer"'),
        ('{"answer": " "}', "Choose an option or type an answer"),
        ('{"answer": "a\\u0000b"}', "the answer contains a NUL character"),
        ('{"answer": "a", "notes": 1}', "body.notes: Input should be a valid string"),
        ('{"answers": []}', "body.answers: Input should be a valid dictionary"),
        ('{"answers": {"Another?": "a"}}', "question ID does not ask “Another?”"),
        (b"\xff", "Cannot parse request body"),
    ],
)
def test_a_body_that_is_no_answer_is_400_and_says_why(
    question: Question, ann: Script, body: str | bytes, reason: str
) -> None:
    answer = ann.post(address(question), body)
    assert (answer.status_code, answer["Content-Type"]) == (400, PROBLEM)
    assert reason.replace("ID", str(question.pk)) in answer.json()["detail"]
    assert Question.objects.get().is_open and Question.objects.get().answers == {}


#: By operation: the kind of question, a good body, and the outcome.
WAYS = {
    "dismiss": (QuestionKind.CLARIFICATION, {"notes": "n"}, "Dismissed by ann"),
    "decide": (QuestionKind.APPROVAL, {"verdict": "denied", "notes": "n"}, "Denied by ann"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_decision_is_repeated_without_effect_and_a_late_one_is_409(
    question: Question, ann: Script, way: str
) -> None:
    kind, body, outcome = WAYS[way]
    Question.objects.filter(pk=question.pk).update(kind=kind)
    url = f"/questions/{question.pk}/{way}"
    first, again = ann.post(url, body), ann.post(url, body)
    assert (first.status_code, first.json()["repeated"]) == (200, False), first.content
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    late = Script(UserFactory.create(is_superuser=True)).post(url, body)
    assert late.status_code == 409 and late.json()["detail"].startswith(outcome)


def test_equal_calls_are_approved_together(ann: Script, question: Question) -> None:
    facts = {"task": question.task, "step": question.step, "run": question.run}
    first, equal, other = (
        QuestionFactory.create(kind="approval", number=10 + number, tool_input={"command": command}, **facts)
        for number, command in enumerate(("make", "make", "make deploy"))
    )
    assert ann.get(f"/questions/{first.pk}").json()["equal_calls"] == [equal.pk]
    url = f"/questions/{first.pk}/decide"
    assert ann.post(url, {"verdict": "denied", "notes": "No.", "rest": True}).status_code == 400
    answer = ann.post(url, {"verdict": "approved", "rest": True})
    assert (answer.status_code, answer.json()["approved_too"]) == (200, [equal.pk])
    assert set(Question.objects.open()) == {question, other}
    later = QuestionFactory.create(kind="approval", number=20, tool_input={"command": "make"}, **facts)
    again = ann.post(url, {"verdict": "approved", "rest": True})
    assert again.json()["repeated"] and not again.json()["approved_too"]
    assert later in Question.objects.open(), "it was asked for after the approval"


def test_the_same_command_in_another_folder_is_another_call(ann: Script, question: Question) -> None:
    facts = {"task": question.task, "step": question.step, "run": question.run}
    folder = {"kind": "text", "title": "Folder of the shell", "text": "tests"}
    first, equal, _ = (
        QuestionFactory.create(
            kind="approval",
            number=10 + number,
            tool_input={"command": "rm -r data"},
            evidence=[{"kind": "command", "title": title, "text": "rm -r data"}, *more],
            **facts,
        )
        for number, (title, more) in enumerate(
            (("Command", []), ("The agent says: once", []), ("Command", [folder]))
        )
    )
    assert ann.get(f"/questions/{first.pk}").json()["equal_calls"] == [equal.pk]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("body", ["{", "[]", '{"notes": 7}', '{"answer": "x"}'])
def test_a_body_that_is_no_decision_is_400(question: Question, ann: Script, way: str, body: str) -> None:
    Question.objects.filter(pk=question.pk).update(kind=WAYS[way][0])
    answer = ann.post(f"/questions/{question.pk}/{way}", body)
    assert answer.status_code == 400 and answer.json()["detail"]
    assert Question.objects.get().is_open


def test_odd_characters_and_bodies_are_400(question: Question, ann: Script) -> None:
    for body in ('{"answer": "a\\u0000b"}', "[" * 100_000, b"\xff", '{"answer": 1}'):
        assert ann.post(address(question), body).status_code == 400


def test_a_key_makes_a_repetition_harmless(question: Question, ann: Script) -> None:
    first = ann.post(address(question), {"answer": "Half up"}, Idempotency_Key="k")
    again = ann.post(address(question), {"answer": "Half up"}, Idempotency_Key="k")
    assert again["Idempotency-Replayed"] == "true" and again.json() == first.json()
    other = ann.post(address(question), {"answer": "Half to even"}, Idempotency_Key="k")
    assert (other.status_code, other["Content-Type"]) == (422, PROBLEM)


def test_what_was_refused_is_not_kept_under_its_key(question: Question, ann: Script) -> None:
    assert ann.post(address(question), {"answer": ""}, Idempotency_Key="k").status_code == 400
    assert ann.post(address(question), {"answer": "Half up"}, Idempotency_Key="k").status_code == 200
    assert Task.objects.get().phase == "pending"


def test_whatever_is_wrong_below_api_is_a_problem(ann: Script) -> None:
    for method, path, status in (
        ("get", "/nowhere", 404), ("get", "/tasks/99999999999999999999", 404), ("get", "/tasks/x", 404),
        ("delete", "/tasks", 405), ("get", "/tasks?limit=1e9", 400), ("get", "/tasks?project=%00", 400),
        ("get", "/projects/%00", 404), ("get", "/questions?cursor=99999999999999999999", 400),
    ):  # fmt: skip
        answer = ann.send(method, path)
        assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), path


COLUMNS_ASKED, NAME_ASKED = str(COLUMNS["question"]), str(FILE_NAME["question"])
BOTH = {COLUMNS_ASKED: ["Name"], NAME_ASKED: "a.csv"}


def with_two_items(question: Question) -> Question:
    question.items = [COLUMNS, FILE_NAME]
    question.save()
    return question


def test_d2_each_item_that_is_remembered_becomes_a_decision(question: Question, ann: Script) -> None:
    with_two_items(question)
    body = {"answers": BOTH, "remember": {"scope": "project"}}
    assert ann.post(address(question), body).status_code == 200
    made = ann.get(f"/projects/{question.task.project.name}/decisions").json()["items"]
    assert [one["question"] for one in made] == [question.pk] * 2
    assert {one["statement"] for one in made} == {
        f"{COLUMNS_ASKED} Name",
        f"{NAME_ASKED} a.csv",
    }


def test_d2_statements_say_which_items_are_remembered(question: Question, ann: Script) -> None:
    with_two_items(question)
    remember = {"scope": "project", "statements": {NAME_ASKED: "Files are called a.csv."}}
    assert ann.post(address(question), {"answers": BOTH, "remember": remember}).status_code == 200
    assert Decision.objects.get().statement == "Files are called a.csv."


@pytest.mark.parametrize(
    ("remember", "where"),
    [
        ({"statement": "One."}, "remember.statement"),
        ({"statements": {"Which?": "One."}}, "remember.statements"),
        ({"statement": "One.", "statements": {NAME_ASKED: ""}}, "remember.statements"),
    ],
)
def test_d2_a_statement_without_its_item_is_400(
    question: Question, ann: Script, remember: dict[str, object], where: str
) -> None:
    with_two_items(question)
    refused = ann.post(address(question), {"answers": BOTH, "remember": {"scope": "project", **remember}})
    assert refused.status_code == 400 and where in refused.json()["detail"]
    assert Question.objects.get().is_open and not Decision.objects.exists()


@pytest.mark.parametrize(
    "said",
    [{"remember": {"scope": "project"}}, {"decisions": [{"decision": 1, "stance": "agree"}]}],
    ids=["remember", "decisions"],
)
def test_d2_an_answer_about_costs_is_not_remembered(
    question: Question, ann: Script, said: dict[str, object]
) -> None:
    Question.objects.update(kind=QuestionKind.COST, tool_input={"spent_usd": 1.0})
    refused = ann.post(address(question), {"answer": "2.50", **said})
    assert refused.status_code == 400
    assert "an answer about costs holds for its task only" in refused.json()["detail"]
    assert Question.objects.get().is_open
    assert ann.post(address(question), {"answer": "2.50", "remember": {"scope": "task"}}).status_code == 200


@pytest.mark.parametrize("kind", [QuestionKind.APPROVAL, QuestionKind.PLAN])
def test_d2_a_verdict_is_not_remembered(question: Question, ann: Script, kind: QuestionKind) -> None:
    Question.objects.update(kind=kind)
    remember = {"remember": {"scope": "project"}}
    refused = ann.post(f"/questions/{question.pk}/decide", {"verdict": "approved", **remember})
    assert refused.status_code == 400 and "remember" in str(refused.json()["errors"])
    refused = ann.post(address(question), {"answer": "Yes", **remember})
    assert refused.status_code == 400 and f"is {'an approval' if kind == 'approval' else 'a plan'}" in str(
        refused.json()["detail"]
    )
    assert Question.objects.get().is_open


def test_d6_a_question_says_which_decisions_it_concerns(question: Question, ann: Script) -> None:
    asked = str(question.items[0]["question"])
    project = question.task.project
    DecisionFactory.create(
        project=project,
        statement="Round up.",
        question_key=question_key(question),
        answers={asked: "Half up"},
    )
    (shown,) = ann.get(f"/questions/{question.pk}").json()["decisions"]
    assert shown == {
        "decision": 1, "statement": "Round up.", "asked": asked, "items": [asked],
        "same": True, "named": False, "holds_here": True,
    }  # fmt: skip
    refused = ann.post(address(question), {"answer": "Half to even"})
    assert refused.status_code == 400 and "contradicts D-1" in refused.json()["detail"]
    stance = {"decisions": [{"decision": 1, "stance": "exception"}]}
    assert ann.post(address(question), {"answer": "Half to even", **stance}).status_code == 200
    assert ann.get(f"/questions/{question.pk}").json()["decisions"] == []


def test_d6_it_must_be_said_what_an_answer_means_for_a_decision_that_is_named(
    question: Question, ann: Script
) -> None:
    DecisionFactory.create(project=question.task.project)
    question.items = [{**question.items[0], "question": "D-1 says so. And refunds?"}]
    question.save()
    refused = ann.post(address(question), {"answer": "Half up"})
    assert refused.status_code == 400 and "does not affect it" in refused.json()["detail"]
    stance = {"decisions": [{"decision": 1, "stance": "unaffected"}]}
    assert ann.post(address(question), {"answer": "Half up", **stance}).status_code == 200
