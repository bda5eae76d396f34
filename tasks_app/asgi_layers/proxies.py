"""Determine the client behind reverse proxies, trusting only configured ones.

uvicorn would rewrite the address before any of our code runs, so it is started without its own support for
proxies, and this takes its place behind the check of the connection itself (`sandboxed_peers.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send

logger = logging.getLogger(__name__)

Address = IPv4Address | IPv6Address
Headers = list[tuple[bytes, bytes]]
#: Only a proxy may send these headers. They are removed from other requests: Django reads some itself.
_OF_PROXIES = frozenset(
    {
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-real-ip",
        b"forwarded",
    }
)
#: Number of addresses that are handed on: no request passes through more proxies.
_NEAREST = 10


class ForwardedClients:
    """Replace the client's IP address and the scheme by the headers of a trusted proxy.

    A list of addresses is read from its end, which the nearest proxy wrote, to the first address outside
    `networks`: everything before it was written by a client. It and the nearest are handed on as
    `forwarded` in the scope: a client at the address of a trusted proxy may have written what precedes.
    `proxy` is the address of the peer itself, `ignored_proxy` that of one that is not trusted and sent such a
    header.
    """

    _has_warned = False

    def __init__(self, application: Application, *, networks: Sequence[IPv4Network | IPv6Network]) -> None:
        self._application = application
        self._networks = networks

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._application(self._believed(scope), receive, send)

    def _believed(self, scope: Message) -> Message:
        headers: Headers = scope["headers"]
        peer = parsed_address((scope.get("client") or ("",))[0])
        if peer is None or not self.trusts(peer):
            kept = [one for one in headers if one[0].lower() not in _OF_PROXIES]
            if not _values(headers, b"x-forwarded-for"):
                return {**scope, "headers": kept}
            # Only of a proxy on this machine: strangers elsewhere can send its header, too.
            if peer and peer.is_loopback and not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "X-Forwarded-For from %s is ignored: all clients of this proxy count as one, and the"
                    " audit log has its address. If it is your reverse proxy, set CATHERDER_PROXY=%s.",
                    peer, peer,
                )  # fmt: skip
            return {**scope, "headers": kept, "ignored_proxy": str(peer or "")}
        told = {**scope, "scheme": _scheme(scope, _values(headers, b"x-forwarded-proto"))}
        read = self._up_to_stranger(_values(headers, b"x-forwarded-for"))
        if not read:
            return told
        asked_for = [str(address) for address in (read[-1], *read[:_NEAREST])]
        return {**told, "client": (asked_for[0], 0), "forwarded": asked_for, "proxy": str(peer)}

    def trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _up_to_stranger(self, values: Iterable[str]) -> list[Address]:
        """Return the IP addresses from the nearest to the first that is not a trusted proxy."""
        found: list[Address] = []
        for text in reversed(",".join(values).split(",")):
            address = parsed_address(text.strip())
            if address is None:  # nobody knows what came before it
                break
            found.append(address)
            if not self.trusts(address):
                break
        return found


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _scheme(scope: Message, told: Sequence[str]) -> str:
    scheme: str = told[-1].strip().lower() if told else ""
    if scheme not in {"http", "https", "ws", "wss"}:
        return str(scope.get("scheme", "http"))
    if scope["type"] == "websocket":
        return scheme.replace("http", "ws")
    return scheme


def parsed_address(text: str) -> Address | None:
    """Parse the IP address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    with suppress(ValueError):
        address = ip_address(text.partition("%")[0])
        if isinstance(address, IPv6Address):
            return address.ipv4_mapped or address
        return address
    return None
