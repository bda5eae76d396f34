"""Refuse agents: they cannot use the portal, not even with a user's session."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from catherder_site.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.sandbox.peer_identity import Peer, find_peer_socket, identify

#: Number of connections whose peer is remembered: they make many requests.
_REMEMBERED = 1_000
_REFUSALS = {
    Peer.AGENT: "Agents cannot use the portal. An agent asks with AskUserQuestion or `cat-herder ask`.\n",
    Peer.SANDBOXED: (
        "This program runs in a sandbox or container on the portal's own machine, where agents run too, so "
        "the portal does not answer it. If it is your browser or your reverse proxy, start the portal with "
        "CATHERDER_LOCAL_SANDBOXES=allow.\n"
    ),
}


class RefuseSandboxedPeers:
    """Refuse requests and sockets that come from a sandboxed process of this machine.

    It examines the connection itself, so it must precede everything that trusts a proxy's headers.
    `allow_others` accepts processes in other sandboxes than those of this portal. See
    `tasks_app.sandbox.peer_identity`.
    """

    def __init__(self, application: Application, *, folder: Path, allow_others: bool = False) -> None:
        self._application = application
        self._folder = folder
        self._refused = {Peer.AGENT} if allow_others else {Peer.AGENT, Peer.SANDBOXED}
        self._known: OrderedDict[int, Peer] = OrderedDict()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        peer = await self._identify(scope)
        if peer in self._refused:
            await _refuse(scope, send, _REFUSALS[peer].encode())
        else:
            await self._application(scope, receive, send)

    async def _identify(self, scope: Message) -> Peer:
        client, server = scope.get("client"), scope.get("server")
        if not (client and server and server[1]):
            return Peer.OTHER
        peer_socket = find_peer_socket(tuple(client), tuple(server))
        if peer_socket is None:
            return Peer.OTHER
        if peer_socket.inode in self._known:
            return self._known[peer_socket.inode]
        peer = await asyncio.to_thread(identify, peer_socket, folder=self._folder)
        if peer_socket.inode:
            self._known[peer_socket.inode] = peer
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return peer


async def _refuse(scope: Message, send: Send, words: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4403})
        return
    length = str(len(words)).encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": words})
