"""Refuse agents: they cannot use the portal, not even with a user's session or token."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.proxies import parsed_address
from tasks_app.sandbox.peer_identity import (
    PeerSocket,
    find_peer_socket,
    is_own_address,
    maybe_sandboxed,
    sandbox_is_active,
)

#: Number of connections whose peer is remembered: they make many requests.
_REMEMBERED = 1_000
#: Seconds for which it is remembered that a sandbox is active.
_ACTIVE_SECONDS = 1.0
_REFUSAL = (
    "Agents cannot use the portal. An agent asks with AskUserQuestion or `cat-herder ask`.\n\n"
    "If you are not an agent: this request comes from the portal's own machine, where sandboxes or "
    "containers run, and the portal cannot see that it does not come from one of them. The portal's "
    "documentation says why and what to do (Security, “Agents cannot use the portal”).\n"
).encode()
_TOKEN_REFUSAL = (
    "Agents cannot use the portal, whatever token they show.\n\n"
    "If you are not an agent: this request comes from the address of a machine where a worker of this "
    "portal runs agents, and the portal cannot see that it does not come from one of them. The portal's "
    "documentation says what to do (Security, “Agents cannot use the portal”).\n"
).encode()


class SandboxGuard:
    """Decides which requests from this machine are refused. See `tasks_app.sandbox.peer_identity`.

    `allow_others` accepts processes in sandboxes that are not this portal's.
    """

    def __init__(self, *, folder: Path, allow_others: bool = False) -> None:
        self._maybe_sandboxed = partial(maybe_sandboxed, folder=folder, allow_others=allow_others)
        self._sandbox_is_active = partial(sandbox_is_active, folder=folder, allow_others=allow_others)
        self._shown: OrderedDict[int, None] = OrderedDict()
        self._waiting: list[tuple[PeerSocket, asyncio.Future[bool]]] = []
        self._examining: asyncio.Future[None] | None = None
        self._active_until = 0.0
        self._look: asyncio.Task[bool] | None = None
        self._next_look: asyncio.Task[bool] | None = None

    async def refuses(self, scope: Message) -> bool:
        """Return whether the peer of the connection itself may be sandboxed, whatever its headers say."""
        client, server = scope.get("client"), scope.get("server")
        if not (client and server and server[1]):
            return False
        peer = find_peer_socket(tuple(client), tuple(server))
        if peer is None:
            return await self.refuses_address(client[0])
        if peer.inode and peer.cookie in self._shown:
            return False
        refused = await self._examine(peer)
        if not refused:
            self._shown[peer.cookie] = None
            while len(self._shown) > _REMEMBERED:
                self._shown.popitem(last=False)
        return refused

    async def refuses_address(self, address: str) -> bool:
        """Return whether a client at this address may be sandboxed, if nothing else is known of it."""
        if not is_own_address(address):
            return False
        if time.monotonic() >= self._active_until and await self._finds_sandbox():
            self._active_until = time.monotonic() + _ACTIVE_SECONDS
        return time.monotonic() < self._active_until

    async def _finds_sandbox(self) -> bool:
        """Look at the processes once for all waiting requests; a later request needs a new look."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_after(self._look))
        return await asyncio.shield(self._next_look)

    async def _look_after(self, earlier: asyncio.Task[bool] | None) -> bool:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        self._look, self._next_look = self._next_look, None
        return await asyncio.to_thread(self._sandbox_is_active)

    async def _examine(self, peer: PeerSocket) -> bool:
        """Look at the processes for all that wait at once, so that many connections do not take long."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((peer, future))
        if len(self._waiting) == 1:
            self._examining = asyncio.ensure_future(self._examine_waiting(after=self._examining))
        return await future

    async def _examine_waiting(self, *, after: asyncio.Future[None] | None) -> None:
        if after is not None and not after.done():
            await asyncio.wait([after])
        waiting, self._waiting = self._waiting, []
        try:
            refused = await asyncio.to_thread(self._maybe_sandboxed, {peer for peer, _ in waiting})
        except Exception as error:  # each of those that wait fails with it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        for peer, future in waiting:
            if not future.done():
                future.set_result(peer in refused)


class RefuseSandboxedPeers:
    """Refuse requests and sockets that may come from a sandboxed process of this machine.

    It examines the connection itself, so it must precede everything that trusts a proxy's headers.
    """

    def __init__(self, application: Application, guard: SandboxGuard) -> None:
        self._application = application
        self._guard = guard

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if await self._guard.refuses(scope):
            await _refuse(scope, send)
        else:
            await self._application(scope, receive, send)


class RefuseForwardedSandboxes:
    """Refuse what a trusted proxy passes on for a program of this machine while a sandbox is active.

    The proxy does not tell which of its connections it was. Where it appends to the client's header, a
    program of this machine chooses what stands before its own address. It must follow `ForwardedClients`.
    """

    def __init__(self, application: Application, guard: SandboxGuard) -> None:
        self._application = application
        self._guard = guard

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        for address in scope.get("forwarded", ()):
            if await self._guard.refuses_address(address):
                await _refuse(scope, send)
                return
        await self._application(scope, receive, send)


class RefuseTokensFromWorkers:
    """Refuse requests that show a token from the address of another machine where agents may work.

    That they come from outside of its sandboxes cannot be seen from here. Sessions are not refused: a browser
    gives agents no cookie for a host of another name. It must follow `ForwardedClients`. `find_addresses`
    returns the addresses of workers' machines.
    """

    def __init__(self, application: Application, find_addresses: Callable[[], Awaitable[set[str]]]) -> None:
        self._application = application
        self._find_addresses = find_addresses

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if any(name == b"authorization" for name, _ in scope["headers"]) and await self._refuses(scope):
            await _refuse(scope, send, _TOKEN_REFUSAL)
        else:
            await self._application(scope, receive, send)

    async def _refuses(self, scope: Message) -> bool:
        """Return whether it comes from a worker's address. Of this machine the `SandboxGuard` has decided."""
        told = {(scope.get("client") or ("",))[0], scope.get("proxy", ""), *scope.get("forwarded", ())}
        asking = {str(parsed_address(address)) for address in told if address and not is_own_address(address)}
        return bool(asking and asking & await self._find_addresses())


async def _refuse(scope: Message, send: Send, text: bytes = _REFUSAL) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4403})
        return
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": text})
