"""The extension by which a program follows a task: `io.modelcontextprotocol/tasks` (SEP-2663).

The package `mcp` knows of it only that there are extensions. A task of the portal is such a task as it is:
nothing is stored for it. Its name in messages is encrypted, with the token that it was made for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import mcp_types as types
from django.utils import timezone
from mcp.shared.exceptions import MCPError

from tasks_app import permissions
from tasks_app.core.phases import Phase
from tasks_app.encryption import CannotDecrypt, Purpose, decrypt, encrypt
from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.forms import QuestionForm
from tasks_app.mcp_server.operations import Failed, Operation, run
from tasks_app.models import SHOWN_WITH, Scope, Task
from tasks_app.services.commands import page_url
from tasks_app.services.questions.question_outcomes import why_not_open
from tasks_app.services.wait_sentences import phase_sentence

EXTENSION = "io.modelcontextprotocol/tasks"
#: How long after its last change a program should still know the task.
_LASTS = timedelta(days=90)
#: A program asks again after a tenth of the time in which nothing has happened, within these seconds.
_SHORTEST, _LONGEST = 2, 90
#: The newest answers that a result names.
_ANSWERS = 10
_KEY = re.compile(r"question-([1-9]\d{0,17})-(\d{1,9})")
_STATUS = {
    Phase.DONE: "completed",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
}


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, types.ElicitResult]


def created(caller: Caller, task_id: int) -> dict[str, Any]:
    """Return the result of the call that started the task, for a program that follows it from now on."""
    return {**_state(caller, _task(caller, task_id)), "resultType": "task"}


def get(caller: Caller, name: str) -> dict[str, Any]:
    """Return what the task does, what it asks, or its result."""
    task = _named(caller, name)
    state = _state(caller, task)
    if state["status"] == "input_required":
        forms = QuestionForm.of(caller, *task.questions.open().select_related(*SHOWN_WITH))
        # One at a time, so that each reply is sent; those that were declined are offered together.
        wanted = [form for form in forms if not form.draft.declined][:1] or forms
        state["inputRequests"] = {
            form.key: form.request().model_dump(mode="json", by_alias=True, exclude_none=True)
            for form in wanted
        }
    if state["status"] == "completed":
        state["result"] = result_of(caller, task)
    if state["status"] == "failed":
        message = "\n".join([f"{task.failure} {page_url(task)}", *_answers(task)])
        state["error"] = {"code": types.INTERNAL_ERROR, "message": message, "data": {"task": task.pk}}
    return state


def update(caller: Caller, name: str, responses: Mapping[str, types.ElicitResult]) -> dict[str, Any]:
    """Store what was replied to forms. What was declined or put off stays open.

    A reply that is not usable is asked for again, in a new form that says why: after an error Claude Code
    would cancel the task. Raises MCPError if somebody else was first; other replies are stored.
    """
    task = _named(caller, name)
    questions = {question.pk: question for question in task.questions.select_related(*SHOWN_WITH)}
    problems = []
    for key, response in responses.items():
        found = _KEY.fullmatch(key)
        if found is None or int(found[1]) not in questions:
            problems.append({"detail": f"There is no form “{key[:100]}” of this task."})
            continue
        (form,) = QuestionForm.of(caller, questions[int(found[1])])
        if response.action == "accept":
            form.draft.replies = int(found[2])
            try:
                form.store(caller, response.content or {})
            except Failed as error:
                problems.append(error.problem)
        elif form.key == key:
            form.decline()
    if problems:
        raise refusal(problems[0])
    return {}


def cancel(caller: Caller, name: str) -> dict[str, Any]:
    """Cancel the task, if the caller may; one that has ended stays as it is."""
    task = _named(caller, name)
    if not task.is_ended:
        try:
            Operation("cancel_task").call(caller, {"task_id": task.pk})
        except Failed as error:
            raise refusal(error.problem) from error
    return {}


def result_of(caller: Caller, task: Task) -> dict[str, Any]:
    """Return the result of the call that started the task, once it is done."""
    found = Operation("get_task").call(caller, {"task_id": task.pk})
    said = [f"Task {task.pk} “{task.title}” is done. {phase_sentence(task)}", f"Page: {page_url(task)}"]
    if found["commit"]:
        said.append(f"Branch: {task.branch} ({found['commit']})")
    if pull_request := found["pull_request"]:
        said.append(f"Pull request: {pull_request['url']}")
    said += [f"{message['step']}: {message['text']}" for message in found["messages"][:1]]
    said += _answers(task)
    return {
        "content": [{"type": "text", "text": "\n".join(said)}],
        "structuredContent": found,
        "isError": False,
    }


def _answers(task: Task) -> list[str]:
    """Return who answered what. Claude Code shows nobody that their reply to a form was refused."""
    settled = task.questions.exclude(answered_at=None).order_by("-answered_at")[:_ANSWERS]
    return [f"{question.title} {why_not_open(question)}" for question in settled]


def refusal(problem: Mapping[str, Any]) -> MCPError:
    """Return the error for a problem. Programs repeat a request after an internal error."""
    code = types.INTERNAL_ERROR if problem.get("status", 400) >= 500 else types.INVALID_PARAMS
    return MCPError(code=code, message=str(problem["detail"]), data=dict(problem))


def _named(caller: Caller, name: str) -> Task:
    """Return the task with this name. Raises MCPError if it is not one of this token."""
    token = caller.principal.token
    try:
        task_id, token_id = json.loads(decrypt(name, Purpose.MCP_TASKS))
    except CannotDecrypt:
        task_id = token_id = None
    if task_id is None or token is None or token_id != token.pk:
        raise MCPError(code=types.INVALID_PARAMS, message="There is no such task for this token.")
    return _task(caller, task_id)


def _task(caller: Caller, task_id: int) -> Task:
    try:
        return run(caller, lambda: permissions.task_or_404(caller.principal, task_id))
    except Failed as error:
        raise MCPError(code=types.INVALID_PARAMS, message="This task does not exist any more.") from error


def _state(caller: Caller, task: Task) -> dict[str, Any]:
    token = caller.principal.token
    moves = task.transitions.order_by("-at").values_list("at", flat=True)
    changed_at = moves.first() or task.created_at
    quiet = (timezone.now() - changed_at).total_seconds()
    status, message = _status(caller, task)
    lasts = changed_at - task.created_at + _LASTS
    return {
        "taskId": encrypt(json.dumps([task.pk, token.pk if token else None]), Purpose.MCP_TASKS),
        "status": status,
        "statusMessage": message,
        "createdAt": task.created_at.isoformat(),
        "lastUpdatedAt": changed_at.isoformat(),
        "ttlMs": int(lasts.total_seconds() * 1000),
        "pollIntervalMs": int(min(max(quiet / 10, _SHORTEST), _LONGEST) * 1000),
    }


def _status(caller: Caller, task: Task) -> tuple[str, str]:
    phase = task.shown_phase
    message = task.failure if phase == Phase.FAILED else phase_sentence(task)
    if phase != Phase.WAITING_FOR_INPUT:
        return _STATUS.get(phase, "working"), message
    token = caller.principal.token
    may_answer = token is not None and Scope.ANSWER in token.scopes
    if not may_answer or not permissions.may_act(caller.principal, task.project):
        return "working", f"{message} Others answer it."
    return "input_required", f"{message} It stays open until somebody answers, here or at {page_url(task)}"
