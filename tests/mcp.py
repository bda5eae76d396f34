"""A program that speaks the Model Context Protocol with the portal, in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
import jsonschema
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tasks_app.mcp_server import application, server
from tasks_app.mcp_server.server import PROBLEM
from tasks_app.models import Project, Scope, User
from tasks_app.services.accounts import make_token
from tests.people import acting

MODERN, LEGACY = "2026-07-28", ("2025-11-25", "2025-06-18")
TASKS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
_META = "io.modelcontextprotocol/"
T = TypeVar("T")


async def _nothing_else(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"passed on: {scope['path']}")


def in_the_same_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on the rows of the test, which other threads do not see."""

    async def in_thread(call: Callable[[], T]) -> T:
        return await sync_to_async(call, thread_sensitive=True)()

    monkeypatch.setattr(application, "in_thread", in_thread)
    monkeypatch.setattr(server, "in_thread", in_thread)


class Program:
    """Holds a token of that person with these scopes; all of them if none is named.

    `forms`: whether it announces that it shows forms; `extensions` are announced as well.
    """

    def __init__(
        self,
        user: User | None,
        *scopes: Scope,
        projects: list[Project] | None = None,
        name: str = "program",
        forms: bool = False,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if user:
            made = make_token(name, scopes or tuple(Scope), by=acting(user), projects=projects)
            self.token = made.token
            self.headers["Authorization"] = f"Bearer {made.secret}"
        self.title = "Claude Code"
        self.capabilities: dict[str, Any] = {"extensions": extensions or {}}
        if forms:
            self.capabilities["elicitation"] = {"form": {}}

    def post(self, body: Any, *, method: str = "POST", **headers: str) -> httpx2.Response:
        """`body`: a text as it is, anything else as JSON. Headers are named with `_` for `-`."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, str | bytes) else json.dumps(body)

        async def send() -> httpx2.Response:
            async with _client({**self.headers, **more}) as client:
                return await client.request(method, "/mcp", content=content)

        return async_to_sync(send)()

    def response(self, method: str, params: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        """Send a request of the newest protocol."""
        meta = {
            f"{_META}protocolVersion": MODERN,
            f"{_META}clientInfo": {"name": "claude-code", "title": self.title, "version": "2"},
            f"{_META}clientCapabilities": self.capabilities,
        }
        params = {**(params or {}), "_meta": meta}
        routing = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if name := params.get("name") or params.get("uri") or params.get("taskId"):
            routing["Mcp-Name"] = str(name)
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(request, **routing, **headers)

    def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request of the newest protocol; its result."""
        answer: dict[str, Any] = self.response(method, params).json()
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; its values."""
        result = self.send("tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), result
        # As clients do, which refuse the result otherwise.
        schemas = {one["name"]: one["outputSchema"] for one in self.send("tools/list")["tools"]}
        jsonschema.validate(result["structuredContent"], schemas[tool])
        return result["structuredContent"]

    def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that refuses; the problem, as the API has it."""
        result = self.send("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"], result
        assert "structuredContent" not in result  # it would have to be what the tool's schema says
        problem: dict[str, Any] = result["_meta"][PROBLEM]
        return problem

    def converse(self, talk: Callable[[Client], Awaitable[T]], mode: str, **options: Any) -> T:
        """Let the package's own client talk."""

        async def connected() -> T:
            async with _client(self.headers) as http:
                transport = streamable_http_client("http://localhost/mcp", http_client=http)
                async with Client(transport, mode=mode, **options) as client:
                    return await talk(client)

        return async_to_sync(connected)()


def _client(headers: dict[str, str]) -> httpx2.AsyncClient:
    portal: Any = application.McpServer(_nothing_else)
    transport = httpx2.ASGITransport(portal)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)
