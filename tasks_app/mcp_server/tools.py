"""The tools: what each is for, what it takes, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, TypeVar

from ninja.errors import ValidationError as InputError
from pydantic import Field, ValidationError

from tasks_app import permissions
from tasks_app.api.base import Flag, Input, Number
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.forms import Form, form_of_answer, form_of_decision, form_of_review
from tasks_app.mcp_server.operations import Operation, run, with_definitions
from tasks_app.models import Scope

#: Characters of a text, and entries of a list, that a result has. Models read results whole.
LONGEST_TEXT = 6_000
MOST_ENTRIES = 100
#: Characters of a log or a diff in one result, unless the caller wants fewer or more.
PART, LONGEST_PART = 10_000, 40_000
_ROWS = 10

_Input = TypeVar("_Input", bound=Input)


@dataclass(frozen=True)
class Tool:
    """A tool for programs. `run` does more than its operation.

    `form` returns what to ask the person instead, if the program shows forms; None if that is not needed.
    `more` are arguments and `adds` members of the result that the operation does not have; `result` is the
    operation whose result it returns instead.
    """

    name: str
    title: str
    about: str
    operation: Operation
    run: Callable[[Caller, dict[str, Any]], Any] | None = None
    form: Callable[[Caller, Mapping[str, Any]], Form | None] | None = None
    left_out: tuple[str, ...] = ()
    more: type[Input] | None = None
    result: Operation | None = None
    adds: Mapping[str, Any] = field(default_factory=dict)
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False

    @property
    def scope(self) -> Scope:
        return self.operation.scope

    @property
    def only_reads(self) -> bool:
        return self.operation.only_reads

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        schema = self.operation.arguments()
        for name in self.left_out:
            del schema["properties"][name]
        schema["required"] = [name for name in schema["required"] if name not in self.left_out]
        if self.more:
            more = self.more.model_json_schema(ref_template="#/components/schemas/{model}")
            schema["properties"] |= more["properties"]
        return with_definitions(schema)

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        return with_definitions((self.result or self.operation).result(), self.adds)

    def call(self, caller: Caller, arguments: dict[str, Any]) -> Any:
        """Return the result. Raises Failed."""
        if self.run:
            return self.run(caller, arguments)
        return self.operation.call(caller, arguments)


# Tools that do more than their operation.


class Rows(Input):
    limit: Annotated[int, Field(ge=1, le=MOST_ENTRIES)] = Field(
        _ROWS, description=f"Rows of this page, up to {MOST_ENTRIES}."
    )


class Part(Input):
    offset: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="The first character of this part. Left out: a log’s last part, a diff’s first.",
    )
    limit: Annotated[int, Field(ge=1, le=LONGEST_PART)] = Field(
        PART, description=f"Characters of this part, up to {LONGEST_PART:,}."
    )


class LogPart(Part):
    task_id: Number = Field(description="The task’s id.")
    position: Annotated[int, Field(ge=1, le=32767)] = Field(description="The step’s position, from 1.")
    kind: LogKind = Field(
        LogKind.OUTPUT, description="`output`, `reasoning`, or `raw`: the agent’s messages as they are."
    )


class Follow(Input):
    wait: Flag = Field(
        True,
        description="Follow the task in programs that can: questions come as forms, the result by itself.",
    )


#: What a part of a text has besides.
_PART_RESULT = {
    "offset": {"type": "integer", "description": "The first character of this part."},
    "next_offset": {
        "type": ["integer", "null"],
        "description": "The `offset` of the part after this one; null if this is the last.",
    },
}


def _rows(operation: str) -> Callable[[Caller, dict[str, Any]], Any]:
    """List fewer rows than scripts get, unless the caller says how many: models read results whole."""
    return lambda caller, given: Operation(operation).call(caller, {"limit": _ROWS, **given})


def _task(caller: Caller, given: dict[str, Any]) -> Any:
    found = Operation("get_task").call(caller, given)
    return {**found, "steps": Operation("list_steps").call(caller, given)["items"]}


def _log(caller: Caller, given: dict[str, Any]) -> Any:
    part = validated(caller, LogPart, given)

    def read() -> dict[str, Any]:
        step = permissions.step_or_404(caller.principal, part.task_id, part.position)
        return _cut_out(render_log(step, part.kind), part.offset, part.limit)

    return run(caller, read)


def _diff(caller: Caller, given: dict[str, Any]) -> Any:
    wanted = {name: given.pop(name) for name in Part.model_fields if name in given}
    part = validated(caller, Part, wanted)
    found = Operation("get_diff").call(caller, given)
    cut = _cut_out([found["diff"]], part.offset or 0, part.limit)
    return {**found, "diff": cut.pop("text"), **cut}


def _start(caller: Caller, given: dict[str, Any]) -> Any:
    wanted = {name: given.pop(name) for name in Follow.model_fields if name in given}
    validated(caller, Follow, wanted)
    made = Operation("create_task").call(caller, {**given, "start": True})
    return Operation("get_task").call(caller, {"task_id": made["task"]})


def _cut_out(pieces: Iterable[str], offset: int | None, limit: int) -> dict[str, Any]:
    """Return a part of a text that comes in pieces, of which only little is kept; without offset the end."""
    begin, text, more = 0, "", False
    for piece in pieces:
        text += piece
        surplus = len(text) - limit if offset is None else min(len(text), offset - begin)
        if surplus > 0:
            begin, text = begin + surplus, text[surplus:]
        if len(text) > limit:
            text, more = text[:limit], True
            break
    return {"text": text, "offset": begin, "next_offset": begin + limit if more else None}


def validated(caller: Caller, model: type[_Input], given: Any) -> _Input:
    """Return the input as the model. Raises Failed with the place of each fault."""

    def validate() -> _Input:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            faults = [{"loc": ("body", "given", *one["loc"]), "msg": one["msg"]} for one in error.errors()]
            raise InputError(faults) from error

    return run(caller, validate)


def shortened(value: Any, notes: list[str], where: str = "") -> Any:
    """Return a result without what makes it long; `notes` says of each place what is missing."""
    if isinstance(value, str) and len(value) > LONGEST_PART:
        notes.append(f"{where}: {len(value) - LONGEST_TEXT:,} more characters")
        return value[:LONGEST_TEXT] + " …"
    if isinstance(value, list):
        if len(value) > MOST_ENTRIES:
            notes.append(f"{where}: {len(value) - MOST_ENTRIES:,} more entries")
        return [
            shortened(one, notes, f"{where}.{n}".strip(".")) for n, one in enumerate(value[:MOST_ENTRIES])
        ]
    if isinstance(value, dict):
        return {name: shortened(one, notes, f"{where}.{name}".strip(".")) for name, one in value.items()}
    return value


_TOOLS = (
    Tool(
        name="projects",
        title="List projects",
        about="List the projects that the user may see.",
        operation=Operation("list_projects"),
        run=_rows("list_projects"),
        more=Rows,
    ),
    Tool(
        name="tasks",
        title="List tasks",
        about="List tasks, the newest first, with their phase and their open questions. For the next page, "
        "pass the `cursor` that stands in `next`.",
        operation=Operation("list_tasks"),
        run=_rows("list_tasks"),
        more=Rows,
    ),
    Tool(
        name="task",
        title="Show a task",
        about="Show a task: phase, open questions, steps with their runs and plans, what the agents said at "
        "the end, branch, pull request, tokens and dollars.",
        operation=Operation("get_task"),
        run=_task,
        adds={"steps": {"type": "array", "items": {"$ref": "#/components/schemas/StepOut"}}},
    ),
    Tool(
        name="log",
        title="Read a log",
        about="Read a part of the log of a step of a task: `output` has what the agent said, questions, "
        "answers and checks; `reasoning` the whole dialogue. `task` lists the steps by position. Read on "
        "with `next_offset`.",
        operation=Operation("get_log"),
        run=_log,
        more=LogPart,
        adds=_PART_RESULT,
    ),
    Tool(
        name="diff",
        title="Read a diff",
        about="Read what a task, or one of its steps, changed: the files, and a part of the unified diff. "
        "Read on with `next_offset`.",
        operation=Operation("get_diff"),
        run=_diff,
        more=Part,
        adds=_PART_RESULT,
    ),
    Tool(
        name="questions",
        title="List questions",
        about="List questions of agents; `state: open` lists those that wait for an answer, what blocks most "
        "first. `asked` says of whom a question is asked, `next_rung` what happens if nobody answers, and "
        "when. For the next page, pass the `cursor` that stands in `next`.",
        operation=Operation("list_questions"),
        run=_rows("list_questions"),
        more=Rows,
    ),
    Tool(
        name="question",
        title="Show a question",
        about="Show a question with what it is judged by, earlier answers to questions like it, and the "
        "decisions of the project that it concerns.",
        operation=Operation("get_question"),
    ),
    Tool(
        name="decisions",
        title="Search decisions",
        about="Search what was decided in a project, the newest first.",
        operation=Operation("list_decisions"),
        run=_rows("list_decisions"),
        more=Rows,
    ),
    Tool(
        name="reviews",
        title="List reviews",
        about="List the reviews of a task’s result, the oldest first, with their threads.",
        operation=Operation("list_reviews"),
    ),
    Tool(
        name="start_task",
        title="Start a task",
        about="Create a task from its text and start it. An agent then works on it in a clone of the "
        "project’s repository, and may ask.",
        operation=Operation("create_task"),
        run=_start,
        left_out=("start",),
        more=Follow,
        result=Operation("get_task"),
    ),
    Tool(
        name="answer",
        title="Answer a question",
        about="Pass on the user’s answer to a question of an agent: `answer`, or `answers` if it has several "
        "items. The first answer counts. What you write yourself is recorded as yours. Without an answer, "
        "the user gets a form, in programs that show forms.",
        operation=Operation("answer_question"),
        form=form_of_answer,
        idempotent=True,
    ),
    Tool(
        name="decide",
        title="Approve or refuse",
        about="Pass on what the user decides about a tool call or a plan of an agent. Most projects want the "
        "user’s own word for it: then the user gets a form, or this says where they decide.",
        operation=Operation("decide_question"),
        form=form_of_decision,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="cancel",
        title="Cancel a task",
        about="Cancel a task: its agent is stopped, open questions are withdrawn, and the branch stays.",
        operation=Operation("cancel_task"),
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="resume",
        title="Resume a task",
        about="Resume a task that failed, was interrupted or cancelled. `message` is read by its agent.",
        operation=Operation("resume_task"),
    ),
    Tool(
        name="review",
        title="Review a result",
        about="Pass on the user’s review of a task’s result: comment, request changes or approve it, with "
        "threads on lines, files or the whole. Most projects want the user’s own word for it: then the user "
        "gets a form, or this says where they review.",
        operation=Operation("create_review"),
        form=form_of_review,
    ),
    Tool(
        name="publish",
        title="Publish a result",
        about="Push the branch of a task that is done to the project’s repository, and open a pull request "
        "if `pull_request` is true.",
        operation=Operation("publish_task"),
        open_world=True,
    ),
)
#: The tools by name, always in the same order.
TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _TOOLS}
