"""What a request for `/mcp` passes first: host, origin, size, token, scope, rate.

Each request stands alone, so that it does not matter which web server gets it, or when it was started. What
was checked is in the scope of the request as a `Caller`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host

from tasks_app.api.auth import accept_token, require_scope
from tasks_app.api.problems import Kind, Refused, problem
from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.requests import bearer_token
from tasks_app.core.text import strip_controls
from tasks_app.history.audit import ActionOrigin, acting_from
from tasks_app.models import Scope
from tasks_app.permissions import Principal

PATH = "/mcp"
#: The key of the `Caller` in the scope of a request.
CALLER = "cat_herder.caller"
#: Maximum bytes of a request: the text of a task, escaped.
MAX_BODY = 4_000_000
#: Threads that work on requests. What waits for one has no database connection yet.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="mcp")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Caller:
    """Who makes a request. `client` is how the program calls itself: it can write there what it likes."""

    principal: Principal
    ip_address: str
    client: str


async def in_thread(call: Callable[[], _T]) -> _T:
    """Return what `call` returns, which may use the database."""
    in_a_thread = database_sync_to_async(call, thread_sensitive=False, executor=_THREADS)
    result: _T = await in_a_thread()
    return result


class McpServer:
    """Serves `/mcp`, and passes on all else."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH:
            await self._application(scope, receive, send)
            return
        try:
            _require_usable(scope)
            body = await _whole_body(receive)
            caller = await in_thread(lambda: _accepted(scope, body))
        except Refused as error:
            response = problem(error.kind, error.detail, headers=error.headers)
            await _respond(response, send)
            return
        # Imported with the first request: it takes a second, which other portals need not wait.
        serve = await in_thread(_server)
        await serve({**scope, CALLER: caller}, _received(body), send)


def _server() -> Application:
    from tasks_app.mcp_server.server import serve

    return serve


def _require_usable(scope: Message) -> None:
    """Raise Refused for another method, for a foreign host, and for a page of another origin."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    domain, _ = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        raise Refused(Kind.BAD_INPUT, "This portal has another host name.")
    is_own = origin.partition("://")[2].lower() == host.lower() or origin in settings.CSRF_TRUSTED_ORIGINS
    if origin and not is_own:
        raise Refused(Kind.NOT_ALLOWED, "Pages of other origins cannot use this address.")
    if scope["method"] != "POST":
        detail = "Send messages with POST. This server opens no stream and has no sessions to end."
        raise Refused(Kind.METHOD_NOT_ALLOWED, detail, headers={"Allow": "POST"})


async def _whole_body(receive: Receive) -> bytes:
    """Return the body. Raise Refused if it is too long."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY:
            raise Refused(Kind.TOO_LONG, f"A message may have up to {MAX_BODY:,} bytes.")
        if not message.get("more_body"):
            return body


def _accepted(scope: Message, body: bytes) -> Caller:
    """Return who makes the request. Raise Refused unless their token allows what the message asks for."""
    ip_address = str((scope.get("client") or ("",))[0])[:60]
    secret = bearer_token(scope).decode("latin-1")
    if not secret:
        detail = "Send “Authorization: Bearer” with a token. Create one in the portal, at /me/tokens/."
        raise Refused(Kind.NOT_LOGGED_IN, detail, headers={"WWW-Authenticate": 'Bearer realm="Cat Herder"'})
    with acting_from(ActionOrigin(ip_address=ip_address)):
        principal = accept_token(HttpRequest(), secret)
    require_scope(principal, _needed_scope(body))
    return Caller(principal, ip_address, _client(scope))


def _needed_scope(body: bytes) -> Scope:
    """Return the scope that a message needs."""
    try:
        message = json.loads(body)
        method, name = message["method"], message["params"].get("name")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Scope.READ
    if method == "tools/call":
        from tasks_app.mcp_server.tools import TOOLS

        tool = TOOLS.get(str(name))
        return tool.scope if tool else Scope.READ
    return {"tasks/update": Scope.ANSWER, "tasks/cancel": Scope.WRITE}.get(str(method), Scope.READ)


def _client(scope: Message) -> str:
    """Return how the program calls itself in its header; the messages of newer ones say it better."""
    agent = str(dict(scope["headers"]).get(b"user-agent", b""), "latin-1")
    return strip_controls(agent.partition("/")[0], one_line=True)[:100] or "an MCP client"


def _received(body: bytes) -> Receive:
    """Return a channel that gives the body that was read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _respond(response: HttpResponse, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
