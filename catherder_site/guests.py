"""Agents cannot use the portal: not even with the login of a person, which a browser may have given them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from catherder_site.bounds import Application, Message, Receive, Send
from tasks_app.jail.callers import caller_of, is_guest

#: Connections whose caller is remembered: they make many requests.
_REMEMBERED = 1_000
_WORDS = b"Agents cannot use the portal. An agent asks with AskUserQuestion or `cat-herder ask`.\n"


class NoGuests:
    """Refuses requests and sockets that come from a guest of this machine. See `tasks_app.jail.callers`."""

    def __init__(self, application: Application, *, folder: Path) -> None:
        self._application = application
        self._folder = folder
        self._known: OrderedDict[int, bool] = OrderedDict()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if await self._from_guest(scope):
            await _refuse(scope, send)
        else:
            await self._application(scope, receive, send)

    async def _from_guest(self, scope: Message) -> bool:
        client, server = scope.get("client"), scope.get("server")
        caller = caller_of(tuple(client), tuple(server)) if client and server and server[1] else None
        if caller is None:
            return False
        if caller.inode in self._known:
            return self._known[caller.inode]
        found = await asyncio.to_thread(is_guest, caller, folder=self._folder)
        if caller.inode:
            self._known[caller.inode] = found
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


async def _refuse(scope: Message, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4403})
        return
    length = str(len(_WORDS)).encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": _WORDS})
