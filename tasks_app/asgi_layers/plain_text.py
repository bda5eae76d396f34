"""Answers without Django: a few lines of text."""

from __future__ import annotations

from collections.abc import Mapping

from tasks_app.asgi_layers.body_limits import Message, Send


async def answer(
    scope: Message, send: Send, status: int, body: bytes, more: Mapping[bytes, bytes] | None = None
) -> None:
    """Send a text in UTF-8 that nobody caches, with `more` headers; to HEAD without the text."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *(more or {}).items(),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def refuse_method(scope: Message, send: Send) -> None:
    await answer(scope, send, 405, b"Ask with GET or HEAD.\n", {b"allow": b"GET, HEAD"})
