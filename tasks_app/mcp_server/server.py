"""The messages of the Model Context Protocol, for all of its versions that the package `mcp` speaks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tasks_app.asgi_layers.body_limits import Message, Send
from tasks_app.core.text import strip_controls
from tasks_app.core.version import version
from tasks_app.mcp_server import resources, tasks
from tasks_app.mcp_server.application import CALLER, MAX_BODY, Caller, in_thread
from tasks_app.mcp_server.operations import Failed, run
from tasks_app.mcp_server.tools import TOOLS, Tool, shortened

#: It logs each start and end, which here are those of a request.
logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)

_INSTRUCTIONS = (
    "Cat Herder runs coding agents on tasks in git repositories and lets them ask people. Tasks and "
    "questions have numbers. What an agent asks is for the user: show it to them and pass on their words; do "
    "not answer by yourself."
)
Context = ServerRequestContext[Any, Any]
_T = TypeVar("_T")


async def serve(scope: Message, receive: Any, send: Send) -> None:
    """Answer one message. Nothing is kept for the next one, so the manager lives as long as the request."""
    manager = StreamableHTTPSessionManager(
        _server, json_response=True, stateless=True, max_request_body_size=MAX_BODY
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def caller_of(context: Context) -> Caller:
    """Return who sent the message, with the name that the program gives itself in it."""
    request: Any = context.request
    caller: Caller = request.scope[CALLER]
    if params := context.session.client_params:
        info = params.client_info
        name = strip_controls(info.title or info.name, one_line=True)
        caller = replace(caller, client=name[:100] or caller.client)
    return caller


async def _list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.only_reads,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.only_reads or tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


async def _call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"There is no tool “{params.name[:100]}”.")
    caller, arguments = caller_of(context), dict(params.arguments or {})
    follows = tool.name == "start_task" and _follows_tasks(context) and arguments.get("wait") is not False
    try:
        if tool.form and _shows_forms(context):
            asked = await in_thread(lambda: _by_form(tool, caller, arguments, params.input_responses or {}))
            if asked:
                return asked
        result = await in_thread(lambda: tool.call(caller, arguments))
        if follows:
            return await in_thread(lambda: tasks.created(caller, result["task"]))
    except Failed as error:
        return failure(error.problem)
    return success(result)


def _by_form(
    tool: Tool, caller: Caller, arguments: Mapping[str, Any], responses: types.InputResponses
) -> types.InputRequiredResult | types.CallToolResult | None:
    """Ask the person, or act on their reply; None if the arguments are enough. Raises Failed."""
    form = tool.form(caller, arguments) if tool.form else None
    if form is None:
        return None
    response = responses.get(form.key)
    if isinstance(response, types.ElicitResult):
        if response.action != "accept":
            return failure({"detail": f"The user did not answer. It stays open: {form.url}"})
        stored = form.store(caller, response.content or {})
        if stored is not None:
            return success(stored)
        return _by_form(tool, caller, arguments, {})
    return types.InputRequiredResult(input_requests={form.key: run(caller, form.request)})


# What the client says that it can do. Only the newest protocol says it with each request.


def _capabilities(context: Context) -> types.ClientCapabilities:
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return types.ClientCapabilities()
    return context.session.client_capabilities or types.ClientCapabilities()


def _shows_forms(context: Context) -> bool:
    """Return whether it shows forms; without details of its elicitation it does."""
    can = _capabilities(context).elicitation
    return can is not None and (can.form is not None or can.url is None)


def _follows_tasks(context: Context) -> bool:
    return tasks.EXTENSION in (_capabilities(context).extensions or {})


def _require_tasks(context: Context) -> Caller:
    if not _follows_tasks(context):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="Missing required client capability",
            data={"requiredCapabilities": {"extensions": {tasks.EXTENSION: {}}}},
        )
    return caller_of(context)


async def _get_task(context: Context, params: tasks.TaskParams) -> dict[str, Any]:
    caller = _require_tasks(context)
    return await in_thread(lambda: tasks.get(caller, params.task_id))


async def _update_task(context: Context, params: tasks.UpdateParams) -> dict[str, Any]:
    caller = _require_tasks(context)
    return await in_thread(lambda: tasks.update(caller, params.task_id, params.input_responses))


async def _cancel_task(context: Context, params: tasks.TaskParams) -> dict[str, Any]:
    caller = _require_tasks(context)
    return await in_thread(lambda: tasks.cancel(caller, params.task_id))


def success(result: Any) -> types.CallToolResult:
    """Return the result as text and as values, cut if it is long."""
    notes: list[str] = []
    values = shortened(result, notes)
    content: list[types.ContentBlock] = [_text(json.dumps(values, ensure_ascii=False))]
    if notes:
        content.append(_text("This result was cut. The portal’s page has the whole. " + "; ".join(notes)))
    return types.CallToolResult(content=content, structured_content=values)


#: Where an error has its problem, as the API's, in `_meta`.
PROBLEM = "cat-herder/problem"


def failure(problem: Mapping[str, Any]) -> types.CallToolResult:
    """Return an error in the words of the API, with the place of each fault; as values under `PROBLEM`.

    Not as structured content: that must be what the tool's schema says, and clients such as that of the
    TypeScript package refuse the whole result otherwise, also of an error.
    """
    lines = [str(problem["detail"])]
    lines += [f"{one['where']}: {one['message']}" for one in problem.get("errors", ())]
    return types.CallToolResult(
        content=[_text("\n".join(dict.fromkeys(lines)))], is_error=True, _meta={PROBLEM: dict(problem)}
    )


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


# Resources and the prompt.


async def _explained(act: Callable[[], _T]) -> _T:
    try:
        return await in_thread(act)
    except Failed as error:
        raise tasks.refusal(error.problem) from error


async def _list_resources(context: Context, params: Any) -> types.ListResourcesResult:
    caller = caller_of(context)
    return await _explained(lambda: resources.list_resources(caller))


async def _list_templates(context: Context, params: Any) -> types.ListResourceTemplatesResult:
    return resources.list_templates()


async def _read_resource(
    context: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    caller = caller_of(context)
    return await _explained(lambda: resources.read(caller, params.uri))


async def _list_prompts(context: Context, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[resources.HERD])


async def _get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != resources.HERD.name:
        raise MCPError(code=types.INVALID_PARAMS, message=f"There is no prompt “{params.name[:100]}”.")
    caller = caller_of(context)
    return await _explained(lambda: resources.herd(caller))


_server: Server[Any] = Server(
    "cat-herder",
    version=version(),
    title="Cat Herder",
    instructions=_INSTRUCTIONS,
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
    on_list_resources=_list_resources,
    on_list_resource_templates=_list_templates,
    on_read_resource=_read_resource,
    on_list_prompts=_list_prompts,
    on_get_prompt=_get_prompt,
)
_server.extensions[tasks.EXTENSION] = {}
_server.add_request_handler("tasks/get", tasks.TaskParams, _get_task)
_server.add_request_handler("tasks/update", tasks.UpdateParams, _update_task)
_server.add_request_handler("tasks/cancel", tasks.TaskParams, _cancel_task)
