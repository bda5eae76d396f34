"""`/mcp`: who may use it, its tools for reading, and each version of the protocol (A1)."""

from __future__ import annotations

import shlex
from typing import Any

import jsonschema
import pytest
from django.core.management import call_command
from mcp.client.client import Client

from tasks_app.history.events.blocks import append_one
from tasks_app.mcp_server import application
from tasks_app.mcp_server.tools import LONGEST_PART, TOOLS
from tasks_app.models import EventKind, Project, Question, Role, Scope, Task
from tests.factories import DecisionFactory, MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory
from tests.mcp import LEGACY, MODERN, Program, in_the_same_thread

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def same_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_same_thread(monkeypatch)


@pytest.fixture
def question() -> Question:
    made: Question = QuestionFactory.create()
    return made


def viewer_of(project: Project) -> Any:
    return MembershipFactory.create(project=project, role=Role.VIEWER).user


@pytest.fixture
def viewer(question: Question) -> Program:
    return Program(viewer_of(question.task.project))


@pytest.mark.parametrize("mode", ["auto", "legacy", MODERN])
def test_a_client_of_each_era_lists_the_tools_and_calls_one(viewer: Program, mode: str) -> None:
    async def talk(client: Client) -> tuple[list[str], Any]:
        tools = await client.list_tools()
        result = await client.call_tool("tasks", {})
        assert not result.is_error, result
        return [tool.name for tool in tools.tools], result.structured_content

    names, tasks = viewer.converse(talk, mode)
    assert names == list(TOOLS)
    assert [task["phase"] for task in tasks["items"]] == [Task.objects.get().phase]


@pytest.mark.parametrize("version", LEGACY)
def test_an_older_client_needs_no_session(viewer: Program, version: str) -> None:
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    begun = viewer.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert begun.json()["result"]["protocolVersion"] == version and "Mcp-Session-Id" not in begun.headers
    called = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "projects"}}
    answer = viewer.post(called, Mcp_Protocol_Version=version).json()
    assert answer["result"]["structuredContent"]["items"]


def test_a_call_needs_a_token_that_works_and_has_the_scope(question: Question) -> None:
    user = viewer_of(question.task.project)
    nobody = Program(None)
    stranger = nobody.response("tools/list")
    assert stranger.status_code == 401 and stranger.headers["WWW-Authenticate"].startswith("Bearer")
    nobody.headers["Authorization"] = "Bearer cath_invented"
    unknown = nobody.response("tools/list")
    assert unknown.status_code == 401 and 'error="invalid_token"' in unknown.headers["WWW-Authenticate"]
    narrow = Program(user, Scope.ANSWER).response("tools/call", {"name": "tasks", "arguments": {}})
    assert narrow.status_code == 403
    assert 'error="insufficient_scope", scope="read"' in narrow.headers["WWW-Authenticate"]


def test_requests_are_counted_with_those_of_the_api(
    viewer: Program, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"api_rate": 1})
    first, second = viewer.response("tools/list"), viewer.response("tools/list")
    assert (first.status_code, second.status_code) == (200, 429) and second.headers["Retry-After"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:9999"}, 403),
        ({"Origin": "http://localhost"}, 200),
    ],
)
def test_host_and_origin_are_checked(viewer: Program, headers: dict[str, str], status: int) -> None:
    assert viewer.response("tools/list", None, **headers).status_code == status


def test_only_messages_of_a_bounded_size_are_accepted(
    viewer: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "MAX_BODY", 100)
    assert viewer.response("tools/list").status_code == 413


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_another_method_is_refused(viewer: Program, method: str) -> None:
    answer = viewer.post("", method=method)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        '[{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]',
        '{"jsonrpc": "2.0", "id": 1, "method": 3}',
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("version", [MODERN, *LEGACY])
def test_what_is_no_single_message_gets_an_error(viewer: Program, body: str, version: str) -> None:
    answer = viewer.post(body, Mcp_Protocol_Version=version)
    assert answer.status_code == 400 and answer.json()["error"]["message"]


def test_an_unknown_version_an_unknown_method_and_an_unknown_tool_get_errors(viewer: Program) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    assert "error" in viewer.post(request, Mcp_Protocol_Version="1999-01-01").json()
    assert viewer.response("tools/burn").json()["error"]["code"] == -32601
    assert "error" in viewer.response("tools/call", {"name": "burn", "arguments": {}}).json()


def test_a_token_sees_its_projects_only(question: Question) -> None:
    outsider = Program(viewer_of(ProjectFactory.create()))
    assert outsider.call("tasks")["items"] == outsider.call("questions")["items"] == []
    assert outsider.refused("task", task_id=question.task_id)["status"] == 404
    limited = Program(viewer_of(question.task.project), Scope.READ, projects=[ProjectFactory.create()])
    assert limited.call("projects")["items"] == []
    assert limited.refused("question", question_id=question.pk)["status"] == 404


def test_errors_have_the_words_and_the_places_of_the_api(viewer: Program) -> None:
    assert viewer.refused("tasks", colour="red")["errors"][0]["where"] == "query.colour"
    assert viewer.refused("tasks", phase=["burning"])["errors"][0]["where"] == "query.phase"
    assert viewer.refused("task")["errors"] == [{"where": "task_id", "message": "Field required"}]
    assert viewer.refused("task", task_id="../projects")["status"] == 404
    assert viewer.refused("log", task_id=1, position=0)["errors"][0]["where"] == "body.position"


def test_the_list_of_tools_is_the_same_each_time_and_says_what_only_reads(viewer: Program) -> None:
    first, second = viewer.send("tools/list"), viewer.send("tools/list")
    assert first["tools"] == second["tools"]
    for tool in first["tools"]:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
        assert tool["annotations"]["readOnlyHint"] == TOOLS[tool["name"]].only_reads


def test_results_are_as_their_schemas_say(viewer: Program, question: Question) -> None:
    task, project = question.task, question.task.project
    DecisionFactory.create(project=project)
    calls: dict[str, dict[str, Any]] = {
        "projects": {},
        "tasks": {"phase": [task.phase], "limit": 5},
        "task": {"task_id": task.pk},
        "log": {"task_id": task.pk, "position": question.step.position},
        "diff": {"task_id": task.pk},
        "questions": {"state": "open"},
        "question": {"question_id": question.pk},
        "decisions": {"project": project.name},
        "reviews": {"task_id": task.pk},
    }
    assert set(calls) == {name for name, tool in TOOLS.items() if tool.only_reads}
    for name, arguments in calls.items():
        jsonschema.validate(viewer.call(name, **arguments), TOOLS[name].output_schema)
    assert viewer.call("questions")["items"][0]["id"] == question.pk
    assert viewer.call("task", task_id=task.pk)["steps"][0]["position"] == question.step.position


def test_lists_have_a_cursor_for_what_follows(viewer: Program, question: Question) -> None:
    TaskFactory.create_batch(2, project=question.task.project)
    page = viewer.call("tasks", limit=2)
    assert f"cursor={page['items'][-1]['task']}" in page["next"]
    rest = viewer.call("tasks", limit=2, cursor=page["items"][-1]["task"])
    assert [one["task"] for one in rest["items"]] == [question.task_id] and rest["next"] is None


def test_a_long_text_is_cut_and_the_result_says_so(viewer: Program, question: Question) -> None:
    Task.objects.update(text="x" * (LONGEST_PART + 1))
    result = viewer.send("tools/call", {"name": "task", "arguments": {"task_id": question.task_id}})
    assert len(result["structuredContent"]["text"]) < LONGEST_PART
    assert "text: " in result["content"][1]["text"]


def test_a_command_prints_how_to_add_the_portal(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("mcp_config")
    words = shlex.split(capsys.readouterr().out)
    assert words[:3] == ["claude", "mcp", "add"] and words[-1].startswith("Authorization: Bearer cath_")


def test_a_log_is_read_in_parts(viewer: Program, question: Question) -> None:
    append_one(question.run, EventKind.TEXT, {"text": "Let me look."})
    where = {"task_id": question.task_id, "position": question.step.position}
    whole = viewer.call("log", **where)
    assert whole["next_offset"] is None and "Let me look." in whole["text"]
    first = viewer.call("log", **where, offset=0, limit=20)
    second = viewer.call("log", **where, offset=first["next_offset"], limit=LONGEST_PART)
    assert first["text"] + second["text"] == whole["text"] and second["next_offset"] is None
    end = viewer.call("log", **where, limit=20)
    assert end["text"] == whole["text"][-20:] and end["offset"] == len(whole["text"]) - 20


def test_plan_log_and_diff_are_resources(viewer: Program, question: Question) -> None:
    task = question.task
    task.steps.update(plan="# The plan")
    append_one(question.run, EventKind.TEXT, {"text": "Let me look."})
    listed = [one["uri"] for one in viewer.send("resources/list")["resources"]]
    assert listed == [f"cat-herder://tasks/{task.pk}/{thing}" for thing in ("plan", "log", "diff")]
    templates = viewer.send("resources/templates/list")["resourceTemplates"]
    assert [one["name"] for one in templates] == ["plan", "log", "diff"]
    plan, log, diff = (viewer.send("resources/read", {"uri": uri})["contents"][0] for uri in listed)
    assert (plan["text"], plan["mimeType"]) == ("# The plan", "text/markdown")
    assert "Let me look." in log["text"] and diff["text"] == ""
    outsider = Program(viewer_of(ProjectFactory.create()))
    assert outsider.send("resources/list")["resources"] == []
    for uri in (*listed, "cat-herder://tasks/0/log", "file:///etc/passwd"):
        assert "error" in outsider.response("resources/read", {"uri": uri}).json()


def test_the_prompt_says_what_waits(viewer: Program, question: Question) -> None:
    assert [one["name"] for one in viewer.send("prompts/list")["prompts"]] == ["herd"]
    (message,) = viewer.send("prompts/get", {"name": "herd"})["messages"]
    assert f"Question {question.pk}" in message["content"]["text"]
    assert question.headline in message["content"]["text"]
    assert "error" in viewer.response("prompts/get", {"name": "burn"}).json()
