"""What the pages do, the API does too (W5): settling questions, changing and searching tasks."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import CLAIM_LASTS, AuditEntry, Question, QuestionKind, Role, Step, Task
from tests.api import PROBLEM, Script
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(question: Question) -> Script:
    return Script(MembershipFactory.create(project=question.task.project, user__username="ann").user)


def approval(question: Question, kind: str = QuestionKind.APPROVAL) -> Question:
    Question.objects.filter(pk=question.pk).update(kind=kind)
    return question


def refused(answer: Any, status: int, where: str = "") -> None:
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), answer.content
    if where:
        assert [one["where"] for one in answer.json()["errors"]] == [where]


def test_a_question_is_dismissed_and_never_looks_answered(question: Question, ann: Script) -> None:
    answer = ann.post(f"/questions/{question.pk}/dismiss", {"notes": "Either is fine."})
    assert answer.status_code == 200, answer.content
    said = answer.json()["question"]
    assert (said["state"], said["answers"], said["notes"]) == ("dismissed", {}, "Either is fine.")
    assert (said["answered_by"]["username"], said["answered_via"]) == ("ann", "api")
    assert AuditEntry.objects.get(action="dismissed").via == "api"
    assert Task.objects.get().phase == Phase.PENDING


def test_a_late_dismissal_or_answer_shows_the_outcome(question: Question, ann: Script) -> None:
    """H5"""
    address = f"/questions/{question.pk}"
    ann.post(f"{address}/dismiss", {"notes": "Either."})
    assert ann.post(f"{address}/dismiss", {"notes": "Either."}).json()["repeated"] is True
    bob = Script(MembershipFactory.create(project=question.task.project).user)
    for late in (bob.post(f"{address}/dismiss", {}), bob.post(f"{address}/answer", {"answer": "Half up"})):
        refused(late, 409)
        assert "Dismissed by ann" in late.json()["detail"]
        assert late.json()["question"]["state"] == "dismissed"


@pytest.mark.parametrize(
    ("kind", "verdict", "action"),
    [
        (QuestionKind.APPROVAL, "approved", "approved"),
        (QuestionKind.APPROVAL, "denied", "denied"),
        (QuestionKind.PLAN, "approved", "plan_approved"),
        (QuestionKind.PLAN, "sent_back", "plan_sent_back"),
    ],
)
def test_a_decision_is_taken_with_its_verdict_and_notes(
    kind: str, verdict: str, action: str, question: Question, ann: Script
) -> None:
    answer = ann.post(
        f"/questions/{approval(question, kind).pk}/decide", {"verdict": verdict, "notes": "Because."}
    )
    assert answer.status_code == 200, answer.content
    said = answer.json()["question"]
    assert (said["verdict"], said["notes"], said["answered_via"]) == (verdict, "Because.", "api")
    assert AuditEntry.objects.filter(action=action, token="script").count() == 1


def test_a_late_decision_shows_the_verdict_and_by_whom(question: Question, ann: Script) -> None:
    """H5"""
    address = f"/questions/{approval(question).pk}/decide"
    ann.post(address, {"verdict": "denied", "notes": "Not on production."})
    late = Script(UserFactory.create(is_superuser=True)).post(address, {"verdict": "approved"})
    refused(late, 409)
    assert "Denied by ann" in late.json()["detail"] and "Not on production." in late.json()["detail"]
    assert late.json()["question"]["verdict"] == "denied"


def test_a_decision_that_cannot_be_taken_names_its_field(question: Question, ann: Script) -> None:
    address = f"/questions/{question.pk}/decide"
    refused(ann.post(address, {"verdict": "approved"}), 400, "verdict")  # a clarification gets an answer
    approval(question)
    refused(ann.post(address, {"verdict": "sent_back", "notes": "x"}), 400, "verdict")
    refused(ann.post(address, {"verdict": "denied", "notes": " \n"}), 400, "notes")
    refused(ann.post(address, {"verdict": "perhaps"}), 400, "body.verdict")
    refused(ann.post(address, {"verdict": "approved", "why": "x"}), 400, "body.why")
    refused(ann.post(f"/questions/{question.pk}/dismiss", {}), 400)
    assert Question.objects.get().is_open


def test_a_claim_says_who_is_answering_and_blocks_nobody(question: Question, ann: Script) -> None:
    bob = Script(MembershipFactory.create(project=question.task.project, user__username="bob").user)
    url = f"/questions/{question.pk}"

    def answering(answer: Any) -> str | None:
        assert answer.status_code == 200, answer.content
        claimed_by = answer.json()["claimed_by"]
        return claimed_by and str(claimed_by["username"])

    assert answering(ann.get(url)) is None
    assert answering(ann.post(f"{url}/claim")) == "ann"
    assert answering(bob.post(f"{url}/claim")) == "ann"  # the first keeps it
    assert answering(bob.send("delete", f"{url}/claim")) == "ann"
    assert answering(ann.send("delete", f"{url}/claim")) is None
    assert answering(bob.post(f"{url}/claim")) == "bob"
    Question.objects.update(claimed_at=timezone.now() - CLAIM_LASTS)
    assert answering(ann.get(url)) is None
    assert answering(bob.post(f"{url}/claim")) == "bob"
    assert ann.post(f"{url}/dismiss", {}).status_code == 200
    late = bob.post(f"{url}/claim")
    assert answering(late) is None and late.json()["state"] == "dismissed"


def test_keys_make_decisions_and_dismissals_harmless_to_repeat(question: Question, ann: Script) -> None:
    address = f"/questions/{question.pk}/dismiss"
    first = ann.post(address, {}, Idempotency_Key="k")
    again = ann.post(address, {}, Idempotency_Key="k")
    assert again["Idempotency-Replayed"] == "true" and again.json() == first.json()
    other = QuestionFactory.create(task=question.task, run=question.run, number=2)
    refused(ann.post(f"/questions/{other.pk}/dismiss", {}, Idempotency_Key="k"), 422)


def test_the_threshold_of_a_waiting_task_is_changed(question: Question, ann: Script) -> None:
    answer = ann.send("patch", f"/tasks/{question.task_id}", {"threshold": 1})
    assert (answer.status_code, answer.json()["threshold"]) == (200, 1)
    assert AuditEntry.objects.get(action="task_changed").detail["threshold"] == [3, 1]
    for bad in (6, -1, "2", 2.5, True, None):
        refused(ann.send("patch", f"/tasks/{question.task_id}", {"threshold": bad}), 400, "body.threshold")
    assert Task.objects.get().threshold == 1


def test_a_failed_task_is_retried_from_a_step(ann: Script, question: Question) -> None:
    task = TaskFactory.create(project=question.task.project, phase=Phase.FAILED)
    task.steps.update(phase=Phase.FAILED)
    RunFactory.create(task=task)
    answer = ann.post(f"/tasks/{task.pk}/steps/1/retry", {})
    assert (answer.status_code, answer.json()["phase"]) == (200, "pending"), answer.content
    entry = AuditEntry.objects.get(action="task_retried")
    assert (entry.detail["step"], entry.detail["put_back"], entry.via) == ("plan", False, "api")


def test_a_step_that_cannot_be_retried_says_why(ann: Script, question: Question) -> None:
    task = TaskFactory.create(project=question.task.project, phase=Phase.FAILED)
    refused(ann.post(f"/tasks/{task.pk}/steps/2/retry", {}), 400, "retry")
    refused(ann.post(f"/tasks/{task.pk}/steps/9/retry", {}), 404)
    Step.objects.filter(task=task, position=1).update(phase=Phase.FAILED)
    RunFactory.create(task=task)
    refused(ann.post(f"/tasks/{task.pk}/steps/1/retry", {"put_back": True}), 400, "retry")


def ids(answer: Any, name: str = "task") -> list[int]:
    assert answer.status_code == 200, answer.content
    return [one[name] for one in answer.json()["items"]]


def test_tasks_are_searched_and_filtered_as_in_the_history(question: Question, ann: Script) -> None:
    project = question.task.project
    bob = MembershipFactory.create(project=project, user__username="bob").user
    tax = TaskFactory.create(
        project=project, title="Show the tax", pipeline="quick", created_by=bob, steps=("do",)
    )
    RunFactory.create(task=tax, model="opus")
    TaskFactory.create(title="Show the tax elsewhere")  # of a project that ann does not see
    waiting = question.task_id
    for query, expected in (
        ({"q": "tax"}, [tax.pk]), ({"q": '"show the" ta'}, [tax.pk]), ({"q": "half cents"}, [waiting]),
        ({"person": "bob"}, [tax.pk]), ({"pipeline": "quick"}, [tax.pk]), ({"model": "opus"}, [tax.pk]),
        ({"questions": "yes"}, [waiting]), ({"questions": "no"}, [tax.pk]), ({"to": "2020-01-01"}, []),
        ({"from": "2020-01-01"}, [tax.pk, waiting]), ({"sort": "oldest"}, [waiting, tax.pk]),
        ({"phase": ["pending", "waiting_for_input"]}, [tax.pk, waiting]), ({"phase": "done"}, []),
        ({"q": "---"}, []),
    ):  # fmt: skip
        assert ids(ann.get("/tasks", **query)) == expected, query


def test_questions_are_searched_and_filtered_as_in_the_history(question: Question, ann: Script) -> None:
    ann.post(f"/questions/{question.pk}/answer", {"answer": "Half up, as the cashier"})
    other = QuestionFactory.create(task__project=question.task.project)
    for query, expected in (
        ({"q": "cashier"}, [question.pk]), ({"person": "ann"}, [question.pk]), ({"via": "web"}, []),
        ({"via": "api"}, [question.pk]), ({"state": "open"}, [other.pk]),
        ({"sort": "newest"}, [other.pk, question.pk]), ({"task": other.task_id}, [other.pk]),
        ({"to": "2020-01-01"}, []),
    ):  # fmt: skip
        assert ids(ann.get("/questions", **query), "id") == expected, query


@pytest.mark.parametrize(
    "query",
    [
        {"from": "yesterday"},
        {"to": "0001-01-01"},
        {"to": "0"},
        {"questions": "perhaps"},
        {"phase": "x"},
        {"q": "\0"},
    ],
)
def test_a_filter_that_cannot_be_used_is_400_and_named(query: dict[str, str], ann: Script) -> None:
    answer = ann.get("/tasks", **query)
    refused(answer, 400)
    assert answer.json()["errors"][0]["where"] == f"query.{next(iter(query))}"


def test_a_restricted_token_of_an_admin_finds_only_in_its_projects(question: Question) -> None:
    admin = UserFactory.create(is_superuser=True)
    mine = TaskFactory.create(title="Show the tax")
    script = Script(admin, projects=[mine.project])
    assert ids(script.get("/tasks")) == ids(script.get("/tasks", q="tax")) == [mine.pk]
    assert ids(script.get("/questions"), "id") == ids(script.get("/tasks", q="half cents")) == []


def test_the_next_page_of_results_keeps_the_filters(question: Question, ann: Script) -> None:
    made = [TaskFactory.create(project=question.task.project, title=f"tax {n}").pk for n in range(3)]
    first = ann.get("/tasks", q="tax", sort="oldest", limit=2)
    assert ids(first) == made[:2]
    following = first.json()["next"].removeprefix("/api/v1")
    second = ann.get(following)
    assert ids(second) == made[2:] and second.json()["next"] is None


@pytest.mark.parametrize("address", ["/tasks?q=tax", "/questions?q=half", "/sequences"])
def test_lists_ask_the_database_as_often_for_many_rows_as_for_one(
    address: str, ann: Script, question: Question
) -> None:
    def more() -> None:
        asked = QuestionFactory.create(task__project=question.task.project, task__title="tax")
        asked.task.sequence = SequenceFactory.create(project=question.task.project)
        asked.task.save()

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert ann.get(address).json()["items"]
        return len(queries)

    more()
    count()  # the first use of a token is written down
    once = count()
    for _ in range(5):
        more()
    assert count() == once


def test_a_sequence_says_what_is_to_come_or_why_it_is_not_known(question: Question, ann: Script) -> None:
    sequence = SequenceFactory.create(project=question.task.project)
    said = ann.get(f"/sequences/{sequence.pk}").json()
    assert said["to_come"] == [] and said["trouble"]


def test_a_viewer_may_not_retry_change_dismiss_or_decide(question: Question) -> None:
    viewer = Script(MembershipFactory.create(project=question.task.project, role=Role.VIEWER).user)
    refused(viewer.post(f"/questions/{question.pk}/dismiss", {}), 403)
    refused(viewer.post(f"/tasks/{question.task_id}/steps/1/retry", {}), 403)
    outsider = Script(MembershipFactory.create(project=ProjectFactory.create()).user)
    refused(outsider.post(f"/questions/{question.pk}/decide", {"verdict": "approved"}), 404)


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("/questions?status=open", "query.status"),
        ("/tasks?phase=failed&page=2", "query.page"),
        ("/tasks/export?Format=csv", "query.Format"),
        ("/projects?q=shop", "query.q"),
    ],
)
def test_a_parameter_that_is_not_known_is_refused_and_not_passed_over(
    ann: Script, address: str, where: str
) -> None:
    """Else a filter that was spelled wrong would answer with everything."""
    answer = ann.get(address)
    refused(answer, 400, where)
    assert "limit" in answer.json()["detail"] or "format" in answer.json()["detail"]


def test_an_operation_without_parameters_says_so(question: Question, ann: Script) -> None:
    answer = ann.post(f"/questions/{question.pk}/answer?dry_run=1", {"answer": "Half up"})
    refused(answer, 400, "query.dry_run")
    assert "takes none" in answer.json()["detail"]
    question.refresh_from_db()
    assert question.is_open
