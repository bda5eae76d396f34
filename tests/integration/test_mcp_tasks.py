"""Questions as forms, and tasks that a program follows, over MCP (A1, A2)."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from django.db import OperationalError
from django.test import Client as Browser
from django.utils import timezone
from mcp.client.client import Client

from tasks_app.agent.approvals import approval_of
from tasks_app.core.phases import Phase
from tasks_app.engine.runs.conclude import items_json
from tasks_app.mcp_server import forms, tasks
from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.server import PROBLEM
from tasks_app.models import (
    AuditEntry,
    Channel,
    Project,
    Question,
    QuestionKind,
    Review,
    Role,
    Scope,
    Task,
    Transition,
    User,
    Verdict,
)
from tasks_app.permissions import Principal
from tasks_app.services.questions.answers import undo_answer
from tests.factories import DecisionFactory, MembershipFactory, QuestionFactory
from tests.mcp import MODERN, TASKS, Program, in_the_same_thread
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db

ITEMS = [
    {
        "question": "Which way?",
        "header": "Rounding",
        "options": [{"label": "Half up", "description": "to the cent above"}, {"label": "Half even"}],
    },
    {
        "question": "Which columns?",
        "header": "Columns",
        "multiSelect": True,
        "options": [{"label": "Name"}, {"label": "Price"}],
    },
    {"question": "Under which name?"},
]


@pytest.fixture(autouse=True)
def same_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_same_thread(monkeypatch)


@pytest.fixture
def question() -> Question:
    made: Question = QuestionFactory.create(items=ITEMS)
    return made


def member_of(project: Project, role: Role = Role.MEMBER) -> User:
    user: User = MembershipFactory.create(project=project, role=role).user
    return user


def following(project: Project, *scopes: Scope, role: Role = Role.MEMBER) -> Program:
    return Program(member_of(project, role), *scopes, forms=True, extensions=TASKS)


def asked(program: Program, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Call a tool that asks; the key and the parameters of its form."""
    result = program.send("tools/call", {"name": tool, "arguments": arguments})
    assert result["resultType"] == "input_required", result
    ((key, request),) = result["inputRequests"].items()
    assert request["method"] == "elicitation/create" and request["params"]["mode"] == "form"
    return key, request["params"]


def replied(program: Program, tool: str, key: str, reply: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return program.send("tools/call", {"name": tool, "arguments": arguments, "inputResponses": {key: reply}})


#: The reply to the form of each item.
CONTENTS: list[dict[str, Any]] = [
    {"answer_1": "Half up"},
    {"answer_2": ["Name", "Price"], "other_2": "Size", "notes": "As in the books."},
    {"other_3": "prices"},
]
ANSWERS = {"Which way?": "Half up", "Which columns?": "Name, Price, Size", "Under which name?": "prices"}


def accepted(content: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def test_each_item_of_a_question_comes_as_a_form_and_the_replies_are_the_persons_word(
    question: Question,
) -> None:
    program = Program(member_of(question.task.project), forms=True)
    key, form = asked(program, "answer", question_id=question.pk)
    assert "to the cent above" in form["message"] and f"/questions/{question.pk}" in form["message"]
    fields = form["requestedSchema"]["properties"]
    assert list(fields) == ["answer_1", "other_1", "notes"]
    assert fields["answer_1"]["oneOf"] == [
        {"const": "Half up", "title": "Half up: to the cent above"},
        {"const": "Half even", "title": "Half even"},
    ]
    second = replied(program, "answer", key, accepted(CONTENTS[0]), question_id=question.pk)
    ((key, request),) = second["inputRequests"].items()
    fields = request["params"]["requestedSchema"]["properties"]
    assert list(fields) == ["answer_2", "other_2", "notes"]
    assert [one["const"] for one in fields["answer_2"]["items"]["anyOf"]] == ["Name", "Price"]
    third = replied(program, "answer", key, accepted(CONTENTS[1]), question_id=question.pk)
    ((key, request),) = third["inputRequests"].items()
    assert list(request["params"]["requestedSchema"]["properties"]) == ["other_3", "notes"]
    assert Question.objects.get().is_open
    result = replied(program, "answer", key, accepted(CONTENTS[2]), question_id=question.pk)
    assert not result.get("isError"), result
    question.refresh_from_db()
    assert (question.answers, question.notes) == (ANSWERS, "As in the books.")
    assert (question.answered_via, question.answered_through) == (Channel.MCP_FORM, "through Claude Code")
    assert AuditEntry.objects.get(action="answered").via == Channel.MCP_FORM
    again = replied(program, "answer", key, accepted(CONTENTS[2]), question_id=question.pk)
    assert again["isError"] and "prices" in again["content"][0]["text"]
    assert AuditEntry.objects.filter(action="answered").count() == 1


@pytest.mark.parametrize("field", [f"decision_{'9' * 5000}", "decision_1", "decision_"])
@pytest.mark.parametrize("value", ["agree", [], None])
def test_a_reply_about_no_decision_of_the_question_is_no_internal_error(
    question: Question, field: str, value: Any
) -> None:
    program = Program(member_of(question.task.project), forms=True)
    key, _ = asked(program, "answer", question_id=question.pk)
    reply = {"action": "accept", "content": {"answer_1": "Half up", field: value}}
    replied(program, "answer", key, reply, question_id=question.pk)


@pytest.mark.parametrize("mode", ["auto", MODERN])
def test_the_packages_own_client_shows_the_forms(question: Question, mode: str) -> None:
    program = Program(member_of(question.task.project))
    shown: list[str] = []

    async def show(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult.model_validate(accepted(CONTENTS[len(shown) - 1]))

    async def talk(client: Client) -> types.CallToolResult:
        return await client.call_tool("answer", {"question_id": question.pk})

    result = program.converse(talk, mode, elicitation_callback=show)
    assert not result.is_error and len(shown) == len(ITEMS)
    question.refresh_from_db()
    assert (question.answers, question.answered_via) == (ANSWERS, Channel.MCP_FORM)


def test_the_packages_own_client_of_an_older_era_answers_by_arguments(question: Question) -> None:
    program = Program(member_of(question.task.project))

    async def talk(client: Client) -> types.CallToolResult:
        refused = await client.call_tool("answer", {"question_id": question.pk})
        assert refused.is_error and refused.meta and refused.meta[PROBLEM]["errors"][0]["where"] == "answer"
        return await client.call_tool("answer", {"question_id": question.pk, "answers": ANSWERS})

    async def show(context: Any, params: Any) -> types.ElicitResult:
        raise AssertionError(params.message)

    assert not program.converse(talk, "legacy", elicitation_callback=show).is_error
    question.refresh_from_db()
    assert (question.answers, question.answered_via) == (ANSWERS, Channel.MCP)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_declines_leaves_the_question_open_and_is_told_so(question: Question, action: str) -> None:
    program = Program(member_of(question.task.project), forms=True)
    key, _ = asked(program, "answer", question_id=question.pk)
    result = replied(program, "answer", key, {"action": action}, question_id=question.pk)
    assert result["isError"] and f"/questions/{question.pk}" in result["content"][0]["text"]
    assert Question.objects.get().is_open


def test_a_program_without_forms_answers_by_arguments_only(question: Question) -> None:
    program = Program(member_of(question.task.project))
    assert program.refused("answer", question_id=question.pk)["errors"][0]["where"] == "answer"


def command_to_approve(question: Question, command: str) -> Question:
    return call_to_approve(question, "Bash", {"command": command})


def call_to_approve(question: Question, tool: str, given: dict[str, Any]) -> Question:
    ask = approval_of("c", tool, given, workspace=Path("/w"), home=Path("/h"), rule="Bash(rm*)")
    approval: Question = QuestionFactory.create(
        kind=QuestionKind.APPROVAL,
        task__project=question.task.project,
        items=items_json(ask),
        evidence=[asdict(piece) for piece in ask.evidence],
    )
    return approval


def verdicts_offered(program: Program, question: Question) -> dict[str, str]:
    _, form = asked(program, "decide", question_id=question.pk, verdict="approved")
    assert f"/questions/{question.pk}" in form["message"]
    offered = form["requestedSchema"]["properties"]["verdict"]["oneOf"]
    return {one["const"]: one["title"] for one in offered}


def test_an_approval_is_decided_in_a_form_that_shows_the_whole_command(question: Question) -> None:
    approval = command_to_approve(question, "rm -rf \x1b[2J build")
    program = Program(member_of(question.task.project), forms=True)
    key, form = asked(program, "decide", question_id=approval.pk, verdict="approved")
    assert "rm -rf ␛[2J build" in form["message"].splitlines()[0]
    assert form["requestedSchema"]["required"] == ["verdict"]
    assert set(verdicts_offered(program, approval)) == {"approved", "denied"}
    reply = {"action": "accept", "content": {"verdict": "denied", "notes": "Not there."}}
    replied(program, "decide", key, reply, question_id=approval.pk, verdict="approved")
    approval.refresh_from_db()
    assert (approval.verdict, approval.answered_via) == (Verdict.DENIED, Channel.MCP_FORM)


@pytest.mark.parametrize("command", ["make\nrm -rf /", "true;" * 100])
def test_a_call_that_the_form_does_not_show_is_not_approved_in_it(question: Question, command: str) -> None:
    program = Program(member_of(question.task.project), forms=True)
    assert set(verdicts_offered(program, command_to_approve(question, command))) == {"denied"}


@pytest.mark.parametrize(
    ("tool", "given", "approves"),
    [
        ("Write", {"file_path": "/w/a.txt", "content": "one line"}, True),
        ("Write", {"file_path": "/w/a.txt", "content": "one\nand\nmore"}, False),
        ("mcp__db__query", {"sql": "drop table prices"}, True),
        ("mcp__db__query", {"sql": "drop table prices; " * 20}, False),
        ("mcp__db__tables", {}, True),
        ("Bash", {"command": "make", "timeout": 9}, True),
    ],
)
def test_what_a_call_does_beside_its_headline_is_shown_or_not_approved(
    question: Question, tool: str, given: dict[str, Any], approves: bool
) -> None:
    program = Program(member_of(question.task.project), forms=True)
    assert ("approved" in verdicts_offered(program, call_to_approve(question, tool, given))) is approves


def test_the_folder_of_a_command_is_shown_with_it(question: Question) -> None:
    approval = command_to_approve(question, "rm -r data")
    approval.evidence += [{"kind": "text", "title": "Folder of the shell", "text": "tests"}]
    approval.save()
    program = Program(member_of(question.task.project), forms=True)
    _, form = asked(program, "decide", question_id=approval.pk, verdict="approved")
    assert "Folder of the shell: tests" in form["message"].splitlines()[0]
    assert "approved" in verdicts_offered(program, approval)


def test_a_plan_is_approved_by_who_says_that_they_read_it(question: Question) -> None:
    plan = QuestionFactory.create(
        kind=QuestionKind.PLAN,
        task__project=question.task.project,
        evidence=[{"kind": "markdown", "title": "Plan", "text": "Step. " * 2_000}],
    )
    program = Program(member_of(question.task.project), forms=True)
    offered = verdicts_offered(program, plan)
    assert set(offered) == {"approved", "sent_back"} and f"/questions/{plan.pk}" in offered["approved"]


def test_a_named_decision_is_asked_about_as_well(question: Question) -> None:
    decision = DecisionFactory.create(project=question.task.project)
    question.items = [{"question": f"As {decision.label} says, or not?"}]
    question.save()
    program = Program(member_of(question.task.project), forms=True)
    key, form = asked(program, "answer", question_id=question.pk)
    field = f"decision_{decision.number}"
    assert field in form["requestedSchema"]["properties"]
    said = {"other_1": "As it says.", field: "agree"}
    result = replied(program, "answer", key, {"action": "accept", "content": said}, question_id=question.pk)
    assert not result.get("isError"), result


def test_a_review_is_sent_as_the_person_changed_it(runner: Runner) -> None:
    task = runner.advance(runner.task())
    program = Program(member_of(task.project), forms=True)
    given = {"task_id": task.pk, "verdict": "approve", "body": "Good.", "threads": [{"text": "Why?"}]}
    key, form = asked(program, "review", **given)
    assert "Why?" in form["message"] and form["requestedSchema"]["properties"]["body"]["default"] == "Good."
    reply = {"action": "accept", "content": {"verdict": "comment", "body": "Hm."}}
    result = replied(program, "review", key, reply, **given)
    if task.head_commit:
        assert Review.objects.get().verdict == "comment"
    else:
        assert result["isError"] and "no result" in result["content"][0]["text"]


# Tasks that a program follows.


def started(program: Program, project: Project) -> dict[str, Any]:
    arguments = {"project": project.name, "text": "# Round the totals"}
    return program.send("tools/call", {"name": "start_task", "arguments": arguments})


def test_a_program_follows_a_task_from_its_start_to_its_result(runner: Runner) -> None:
    project = runner.project()
    program = following(project)
    begun = started(program, project)
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    name = {"taskId": begun["taskId"]}
    task = Task.objects.get()
    QuestionFactory.create(task=task, step=task.steps.get(), items=ITEMS)
    Task.objects.update(phase=Phase.WAITING_FOR_INPUT)
    waiting = program.send("tasks/get", name)
    assert (waiting["resultType"], waiting["status"]) == ("complete", "input_required")
    ((key, request),) = waiting["inputRequests"].items()
    assert request["method"] == "elicitation/create" and "Which way?" in request["params"]["message"]
    keys = reply_to_all(program, name)
    question = Question.objects.get()
    assert (question.answers, question.answered_via) == (ANSWERS, Channel.MCP_FORM)
    for key in keys:  # sent again: the same, stored once
        reply(program, name, key, CONTENTS[-1])
    assert AuditEntry.objects.filter(action="answered").count() == 1
    Task.objects.update(phase=Phase.DONE)
    done = program.send("tasks/get", name)
    assert done["status"] == "completed" and done["result"]["structuredContent"]["task"] == task.pk
    tools = {one["name"]: one for one in program.send("tools/list")["tools"]}
    jsonschema.validate(done["result"]["structuredContent"], tools["start_task"]["outputSchema"])
    assert f"/tasks/{task.pk}" in done["result"]["content"][0]["text"]


def form_of(program: Program, name: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The key and the parameters of the one form that the task shows."""
    ((key, request),) = program.send("tasks/get", name)["inputRequests"].items()
    return key, request["params"]


def reply(program: Program, name: dict[str, Any], key: str, content: dict[str, Any]) -> None:
    program.send("tasks/update", {**name, "inputResponses": {key: accepted(content)}})


def reply_to_all(program: Program, name: dict[str, Any]) -> list[str]:
    """Reply to the forms of `ITEMS` as they come; their keys."""
    keys = []
    for content in CONTENTS:
        keys.append(form_of(program, name)[0])
        reply(program, name, keys[-1], content)
    return keys


def test_the_program_is_told_why_a_task_failed_or_was_cancelled(question: Question) -> None:
    program = following(question.task.project)
    name = follow(program, question.task)
    Task.objects.update(phase=Phase.FAILED, failure="The checks failed.")
    failed = program.send("tasks/get", name)
    assert failed["status"] == "failed" and "The checks failed." in failed["error"]["message"]
    Task.objects.update(phase=Phase.CANCELLED)
    assert program.send("tasks/get", name)["status"] == "cancelled"


def follow(program: Program, task: Task) -> dict[str, Any]:
    """The name of an existing task for this program."""
    caller = Caller(Principal.of_token(program.token), "", "")
    return {"taskId": tasks.created(caller, task.pk)["taskId"]}


def test_a_program_that_does_not_follow_tasks_never_gets_one(runner: Runner) -> None:
    project = runner.project()
    program = Program(member_of(project), forms=True, extensions={"com.example/other": {}})
    begun = started(program, project)
    assert begun["resultType"] == "complete" and begun["structuredContent"]["phase"] == Phase.PENDING
    refused = program.response("tasks/get", {"taskId": "x"}).json()["error"]
    assert refused["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    told = following(project)
    result = told.call("start_task", project=project.name, text="# X", wait=False)
    assert result["phase"] == Phase.PENDING


def test_a_name_is_of_no_use_to_another_token_and_cannot_be_forged(question: Question) -> None:
    program, other = following(question.task.project), following(question.task.project)
    name = follow(program, question.task)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for forged in (name, {"taskId": "gAAAA"}, {"taskId": str(question.task_id)}):
            error = other.response(method, {**forged, "inputResponses": {}}).json()["error"]
            assert error["code"] == types.INVALID_PARAMS, error
    assert program.send("tasks/get", name)["status"] == "input_required"
    MembershipFactory._meta.model.objects.all().delete()
    assert "error" in program.response("tasks/get", name).json()


def test_an_answer_that_comes_second_is_told_of_the_first(question: Question) -> None:
    program = following(question.task.project)
    name = follow(program, question.task)
    (key,) = program.send("tasks/get", name)["inputRequests"]
    other = Program(member_of(question.task.project))
    other.call("answer", question_id=question.pk, answers=ANSWERS)
    late = {**name, "inputResponses": {key: accepted(CONTENTS[0])}}
    error = program.response("tasks/update", late).json()["error"]
    assert other.token.user.shown_name in error["message"]
    assert program.send("tasks/get", name)["status"] == "working"  # the form goes away
    for phase in (Phase.FAILED, Phase.DONE):  # programs show the refusal to nobody
        Task.objects.update(phase=phase, failure="The checks failed.")
        ended = program.send("tasks/get", name)
        said = ended["result"]["content"][0]["text"] if phase == Phase.DONE else ended["error"]["message"]
        assert f"{question.title} Answered by {other.token.user.shown_name}" in said


def test_a_question_that_is_open_again_has_another_key(question: Question, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    program = following(question.task.project)
    name = follow(program, question.task)
    keys = reply_to_all(program, name)
    undo_answer(Question.objects.get(), by=acting(program.token.user))
    again, form = form_of(program, name)
    assert again not in keys and "answer_1" in form["requestedSchema"]["properties"]


def test_declining_leaves_it_open_and_a_wrong_key_is_an_error(question: Question) -> None:
    program = following(question.task.project)
    name = follow(program, question.task)
    (key,) = program.send("tasks/get", name)["inputRequests"]
    program.send("tasks/update", {**name, "inputResponses": {key: {"action": "decline"}}})
    waiting = program.send("tasks/get", name)
    assert key in waiting["inputRequests"] and "stays open" in waiting["statusMessage"]
    for wrong in ("question-0-0", "question-0", f"question-{question.pk}-{'9' * 5000}"):
        late = {**name, "inputResponses": {wrong: accepted(CONTENTS[0])}}
        assert "error" in program.response("tasks/update", late).json()
    assert Question.objects.get().is_open


@pytest.mark.parametrize("unusable", [{}, {"other_2": " ", "notes": "Hm."}, {"other_2": "x" * 200_001}])
def test_a_reply_that_is_not_usable_is_asked_for_again_in_a_form_that_says_why(
    question: Question, unusable: dict[str, Any]
) -> None:
    """After an error Claude Code would cancel the task."""
    program = following(question.task.project)
    name = follow(program, question.task)
    reply(program, name, form_of(program, name)[0], CONTENTS[0])
    key, form = form_of(program, name)
    for _ in range(2):
        reply(program, name, key, unusable)
        again, refused = form_of(program, name)
        assert again != key and refused["message"].startswith("Not accepted: ")
        assert refused["requestedSchema"] == form["requestedSchema"]
        key = again
    reply(program, name, key, CONTENTS[1])
    key, form = form_of(program, name)
    assert "Not accepted" not in form["message"]
    reply(program, name, key, CONTENTS[2])
    assert Question.objects.get().answers == ANSWERS


def test_a_reply_that_could_not_be_stored_is_asked_for_again_by_the_program_itself(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats a request after an internal error; other errors would make it cancel the task."""
    program = following(question.task.project)
    name = follow(program, question.task)
    key, _ = form_of(program, name)

    def fail(*args: Any) -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(forms, "take_reply", fail)
        sent = {**name, "inputResponses": {key: accepted(CONTENTS[0])}}
        error = program.response("tasks/update", sent).json()["error"]
    assert error["code"] == types.INTERNAL_ERROR
    reply(program, name, key, CONTENTS[0])
    assert "2 of 3" in form_of(program, name)[1]["message"]


def test_what_was_replied_stays_while_the_rest_waits(question: Question, client: Browser) -> None:
    """Another program of the same person goes on with the next item, and so does their page."""
    program, other = following(question.task.project), following(question.task.project)
    name = follow(program, question.task)
    key, _ = form_of(program, name)
    reply(program, name, key, CONTENTS[0])
    reply(program, name, key, {"answer_1": "Half even"})  # sent again: the first one counts
    second = Program(program.token.user, name="second", forms=True, extensions=TASKS)
    for own in (program, second):
        shown = form_of(own, follow(own, question.task))[1]
        assert "2 of 3" in shown["message"].splitlines()[0] and "answer_2" in str(shown["requestedSchema"])
    assert "answer_1" in str(form_of(other, follow(other, question.task))[1]["requestedSchema"])
    for user, chosen in ((program.token.user, ["Half up"]), (other.token.user, [])):
        client.force_login(user)
        page = client.get(f"/questions/{question.pk}/").content.decode()
        inputs = [tag for tag in re.findall("<input[^>]*>", page) if 'name="item-0"' in tag]
        assert [re.findall('value="(.*?)"', tag)[0] for tag in inputs if "checked" in tag] == chosen
    name = follow(second, question.task)
    for content in CONTENTS[1:]:
        reply(second, name, form_of(second, name)[0], content)
    question.refresh_from_db()
    assert (question.answers, question.answered_by) == (ANSWERS, program.token.user)


def test_an_answer_of_somebody_else_counts_before_replies_to_some_items(question: Question) -> None:
    program, other = following(question.task.project), Program(member_of(question.task.project))
    name = follow(program, question.task)
    reply(program, name, form_of(program, name)[0], CONTENTS[0])
    key, _ = form_of(program, name)
    other.call("answer", question_id=question.pk, answers={**ANSWERS, "Which way?": "Half even"})
    late = {**name, "inputResponses": {key: accepted(CONTENTS[1])}}
    assert other.token.user.shown_name in program.response("tasks/update", late).json()["error"]["message"]
    question.refresh_from_db()
    assert question.answers["Which way?"] == "Half even"


def test_of_several_questions_one_form_is_shown_at_a_time_and_declined_ones_come_last(
    question: Question,
) -> None:
    task = question.task
    QuestionFactory.create(task=task, step=question.step, run=question.run, number=2, items=ITEMS[2:])
    program = following(task.project)
    name = follow(program, task)
    first, _ = form_of(program, name)
    program.send("tasks/update", {**name, "inputResponses": {first: {"action": "decline"}}})
    second, form = form_of(program, name)
    assert first != second and "other_1" in form["requestedSchema"]["properties"]
    program.send("tasks/update", {**name, "inputResponses": {second: {"action": "decline"}}})
    assert list(program.send("tasks/get", name)["inputRequests"]) == [first, second]
    reply(program, name, second, {"other_1": "prices"})
    assert form_of(program, name)[0] == first


def test_many_questions_of_one_task_need_no_more_forms_than_claude_code_shows(question: Question) -> None:
    """It shows 16 of a task; five cards with four items would need 20."""
    task, items = question.task, [{"question": f"Which {n}?"} for n in "abcd"]
    program = following(task.project)
    name = follow(program, task)
    Question.objects.all().delete()
    keys: list[str] = []
    for number in range(1, 9):
        QuestionFactory.create(task=task, step=question.step, run=question.run, number=number, items=items)
        Task.objects.update(phase=Phase.WAITING_FOR_INPUT)
        while (state := program.send("tasks/get", name)).get("inputRequests"):
            ((key, request),) = state["inputRequests"].items()
            fields = request["params"]["requestedSchema"]["properties"]
            content = {field: f"{number} {field}" for field in fields if field != "notes"}
            if len(content) == len(items) and len(keys) % 2:
                content.popitem()  # what is left out comes back alone
            reply(program, name, key, content)
            keys.append(key)
    assert len(set(keys)) == len(keys) <= 16 + 3
    assert not Question.objects.open().exists()
    for answered in Question.objects.all():
        assert list(answered.answers.values()) == [f"{answered.number} other_{n}" for n in range(1, 5)]


def test_who_may_not_answer_gets_no_form_and_who_may_not_cancel_cancels_nothing(question: Question) -> None:
    viewer = following(question.task.project, role=Role.VIEWER)
    name = follow(viewer, question.task)
    assert viewer.send("tasks/get", name)["status"] == "working"
    assert "error" in viewer.response("tasks/cancel", name).json()
    late = {**name, "inputResponses": {f"question-{question.pk}-0": accepted(CONTENTS[0])}}
    assert "error" in viewer.response("tasks/update", late).json()
    reader = following(question.task.project, Scope.READ)
    assert reader.send("tasks/get", follow(reader, question.task))["status"] == "working"
    assert reader.response("tasks/cancel", follow(reader, question.task)).status_code == 403
    question.refresh_from_db()
    assert question.is_open and question.task.phase == Phase.WAITING_FOR_INPUT


def test_cancelling_cancels_the_task_once(question: Question) -> None:
    program = following(question.task.project)
    name = follow(program, question.task)
    program.send("tasks/cancel", name)
    program.send("tasks/cancel", name)
    assert Task.objects.get().phase == Phase.CANCELLED
    assert program.send("tasks/get", name)["status"] == "cancelled"


def test_a_question_waits_for_a_month_and_is_asked_about_ever_more_seldom(question: Question) -> None:
    program = following(question.task.project)
    name = follow(program, question.task)
    Transition.objects.create(task=question.task, source="running", target="waiting_for_input")
    soon = program.send("tasks/get", name)
    long_ago = timezone.now() - timedelta(days=30)
    Transition.objects.update(at=long_ago)
    Task.objects.update(created_at=long_ago)
    later = program.send("tasks/get", name)
    assert later["status"] == "input_required" and later["pollIntervalMs"] > soon["pollIntervalMs"]
    reply_to_all(program, name)
    assert Question.objects.get().answers == ANSWERS
    lives = timedelta(milliseconds=later["ttlMs"])
    assert Task.objects.get().created_at + lives > timezone.now() + timedelta(days=30)
