"""What programs do over MCP in the name of people, and what needs a person's own word (A1, A2)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.mcp_server import application
from tasks_app.models import (
    AuditEntry,
    Channel,
    Project,
    Question,
    QuestionKind,
    QuestionState,
    Review,
    Role,
    Scope,
    Task,
    User,
)
from tests.factories import MembershipFactory, QuestionFactory
from tests.mcp import Program, in_the_same_thread
from tests.runner import Runner

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def same_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_same_thread(monkeypatch)


@pytest.fixture
def question() -> Question:
    made: Question = QuestionFactory.create()
    return made


def member_of(project: Project, role: Role = Role.MEMBER) -> User:
    user: User = MembershipFactory.create(project=project, role=role).user
    return user


@pytest.fixture
def program(question: Question) -> Program:
    return Program(member_of(question.task.project))


def test_an_answer_is_stored_as_a_programs_and_everybody_reads_that(
    program: Program, question: Question
) -> None:
    done = program.call("answer", question_id=question.pk, answer="Half up", notes="As in the books.")
    assert not done["repeated"] and done["question"]["answered_via"] == Channel.MCP
    question.refresh_from_db()
    assert (question.answers, question.answered_with) == ({question.headline: "Half up"}, "Claude Code")
    assert program.call("answer", question_id=question.pk, answer="Half up", notes="As in the books.")[
        "repeated"
    ]
    said = "through Claude Code, written by the program"
    assert said in "".join(render_log(question.step, LogKind.OUTPUT))
    client = Client()
    client.force_login(program.token.user)
    for page in (
        f"/tasks/{question.task_id}/history/",
        f"/questions/{question.pk}/",
        f"/tasks/{question.task_id}/log/",
    ):
        assert said in " ".join(client.get(page, follow=True).text.split()), page
    entry = AuditEntry.objects.get(action="answered")
    assert (entry.via, entry.token) == (Channel.MCP, "program")


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("a\x00b", "a b"),
        ("\ud800x", "x"),
        ("\x1b[31mred\nline", "red line"),
        ("\u202eevil", "⟨U+202E⟩evil"),
        ("", "claude-code"),
    ],
)
def test_the_name_of_a_program_is_text_in_one_line(
    program: Program, question: Question, title: str, shown: str
) -> None:
    program.title = title
    program.call("answer", question_id=question.pk, answer="Half up")
    question.refresh_from_db()
    assert question.answered_with == shown


def test_an_older_program_is_named_by_its_header_without_controls() -> None:
    assert application._client({"headers": [(b"user-agent", b"codex\x9b31m\xad/1.0")]}) == "codex"
    assert application._client({"headers": [(b"user-agent", b"\x9b/1")]}) == "an MCP client"


@pytest.mark.parametrize(
    ("tool", "arguments"), [("task", {"task_id": "\ud800"}), ("tasks", {"q": "\ud800", "limit": 3})]
)
def test_half_a_character_is_no_internal_error(
    program: Program, tool: str, arguments: dict[str, Any]
) -> None:
    assert "result" in program.response("tools/call", {"name": tool, "arguments": arguments}).json()


def test_the_second_answer_is_told_of_the_first(program: Program, question: Question) -> None:
    other = Program(member_of(question.task.project))
    other.call("answer", question_id=question.pk, answer="Half up")
    problem = program.refused("answer", question_id=question.pk, answer="Half even")
    assert problem["status"] == 409 and other.token.user.shown_name in problem["detail"]
    assert "through Claude Code" in problem["detail"] and "Half up" in problem["detail"]


@pytest.mark.parametrize("kind", [QuestionKind.APPROVAL, QuestionKind.PLAN])
def test_a_program_decides_only_where_the_project_lets_it(program: Program, kind: QuestionKind) -> None:
    question = QuestionFactory.create(kind=kind, task__project=program.token.user.memberships.get().project)
    problem = program.refused("decide", question_id=question.pk, verdict="approved")
    assert problem["status"] == 403 and f"/questions/{question.pk}" in problem["detail"]
    assert Question.objects.get(pk=question.pk).is_open
    Project.objects.update(overrides={"programs_decide": True})
    program.call("decide", question_id=question.pk, verdict="approved")
    assert Question.objects.get(pk=question.pk).answered_via == Channel.MCP


def test_a_program_does_not_allow_more_costs(program: Program) -> None:
    project = program.token.user.memberships.get().project
    question = QuestionFactory.create(kind=QuestionKind.COST, task__project=project)
    assert program.refused("answer", question_id=question.pk, answer="2.50")["status"] == 403


def test_the_same_token_decides_by_the_api_as_before(program: Program) -> None:
    question = QuestionFactory.create(
        kind=QuestionKind.APPROVAL, task__project=program.token.user.memberships.get().project
    )
    answer = Client().post(
        f"/api/v1/questions/{question.pk}/decide",
        {"verdict": "approved"},
        content_type="application/json",
        headers={"Authorization": program.headers["Authorization"]},
    )
    assert answer.json()["question"]["answered_via"] == Channel.API


def test_a_viewer_and_a_narrow_token_cannot_act(question: Question) -> None:
    viewer = Program(member_of(question.task.project, Role.VIEWER))
    assert viewer.refused("answer", question_id=question.pk, answer="Half up")["status"] == 403
    assert viewer.refused("cancel", task_id=question.task_id)["status"] == 403
    narrow = Program(member_of(question.task.project), Scope.READ)
    answer = narrow.response("tools/call", {"name": "answer", "arguments": {"question_id": question.pk}})
    assert answer.status_code == 403 and 'scope="answer"' in answer.headers["WWW-Authenticate"]
    assert Question.objects.get().state == QuestionState.OPEN


def test_a_task_is_started_cancelled_and_resumed(runner: Runner) -> None:
    project = runner.project()
    program = Program(member_of(project))
    MembershipFactory.create(project=project, user__username="bob")
    made = program.call("start_task", project=project.name, text="# Round the totals", ask=["bob"])
    task = Task.objects.get(pk=made["task"])
    assert task.phase == Phase.PENDING and task.created_by == program.token.user
    assert made["ask"] == task.ask == ["bob"]
    assert program.call("cancel", task_id=task.pk)["phase"] == Phase.CANCELLED
    assert program.call("resume", task_id=task.pk, message="Go on.")["phase"] == Phase.PENDING
    problem = program.refused("start_task", project=project.name, text="---\nthreshold: 9\n---\n# X")
    assert problem["errors"][0]["where"].startswith("task:")


def test_a_review_needs_a_person_and_publishing_does_not(runner: Runner) -> None:
    task = runner.advance(runner.task())
    program = Program(member_of(task.project))
    problem = program.refused("review", task_id=task.pk, verdict="comment", body="Nearly there.")
    assert (
        problem["status"] == 403 and f"/tasks/{task.pk}" in problem["detail"] and not Review.objects.exists()
    )
    Project.objects.update(overrides={"programs_decide": True})
    program.call("review", task_id=task.pk, verdict="comment", body="Nearly there.")
    assert Review.objects.get().via == Channel.MCP
    assert program.refused("publish", task_id=task.pk)["status"] == 409  # it changed nothing


def test_hints_say_what_changes_or_ends_something(program: Program) -> None:
    hints: dict[str, Any] = {one["name"]: one["annotations"] for one in program.send("tools/list")["tools"]}
    destructive = {name for name, hint in hints.items() if hint["destructiveHint"]}
    assert destructive == {"decide", "cancel"}
    assert {name for name, hint in hints.items() if hint["openWorldHint"]} == {"publish"}
