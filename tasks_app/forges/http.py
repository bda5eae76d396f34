"""HTTP to a forge: to checked IP addresses only, bounded, and conditional.

All adapters use this: it is an adapter of `requests`, which the clients of GitHub and GitLab are made of.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.connection import create_connection

from tasks_app.core.allowed_networks import IpAddressRefused, Network, is_allowed, resolve
from tasks_app.forges.port import ForgeError

#: Seconds for a connection, and between two pieces of an answer.
STEP_SECONDS = 10.0
#: Bytes of an answer that are read.
LONGEST_ANSWER = 8 * 2**20
_MOST_ANSWERS = 256
_LONGEST_KEPT = 256 * 2**10
_NOT_MODIFIED = 304
_RATE_LIMITED = 429


class AnswerTooLong(requests.RequestException):
    """The forge sent more than LONGEST_ANSWER."""


@dataclass(frozen=True)
class _Answer:
    etag: str
    content: bytes
    headers: Mapping[str, str]


class _Answers:
    """The last answers that had an ETag. One that is unchanged is not sent again, nor counted by GitHub."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _Answer] = OrderedDict()

    def get(self, key: bytes) -> _Answer | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: bytes, answer: _Answer) -> None:
        with self._lock:
            self._kept[key] = answer
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_ANSWERS:
                self._kept.popitem(last=False)


_answers = _Answers()


def session(listed: Iterable[Network]) -> requests.Session:
    """Return a session that reaches the internet and the listed networks, and sends no other credentials."""
    made = requests.Session()
    guard(made, listed)
    return made


def guard(made: requests.Session, listed: Iterable[Network]) -> None:
    """Let the session connect to allowed IP addresses only, without proxies and `.netrc`."""
    made.trust_env = False
    made.max_redirects = 0  # a redirect could take the token to another host
    for scheme in ("https://", "http://"):
        made.mount(scheme, GuardedAdapter(tuple(listed)))


class GuardedAdapter(HTTPAdapter):
    """Checks the IP address of each connection, bounds answers, and asks again only for what changed."""

    def __init__(self, listed: tuple[Network, ...]) -> None:
        self._listed = listed
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._listed)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["timeout"] = STEP_SECONDS
        key = _key(request) if request.method == "GET" else None
        kept = _answers.get(key) if key else None
        if kept:
            request.headers["If-None-Match"] = kept.etag
        response = super().send(request, *args, **{**kwargs, "stream": True})
        _read(response)
        if kept and response.status_code == _NOT_MODIFIED:
            return _unchanged(response, kept)
        etag = response.headers.get("ETag", "")
        if key and etag and response.ok and len(response.content) <= _LONGEST_KEPT:
            _answers.keep(key, _Answer(etag, response.content, dict(response.headers)))
        return response


def _key(request: requests.PreparedRequest) -> bytes:
    """Return what tells requests apart: the URL and everything that stands for the user."""
    told = [request.headers.get(name) or "" for name in ("Authorization", "PRIVATE-TOKEN", "Accept")]
    return sha256("\n".join([request.url or "", *map(str, told)]).encode()).digest()


def _read(response: requests.Response) -> None:
    content = bytearray()
    for piece in response.iter_content(64 * 2**10):
        content += piece
        if len(content) > LONGEST_ANSWER:
            response.close()
            raise AnswerTooLong(f"more than {LONGEST_ANSWER >> 20} MiB")
    response._content = bytes(content)


def _unchanged(response: requests.Response, kept: _Answer) -> requests.Response:
    response.status_code, response.reason = 200, "OK"
    response._content = kept.content
    response.headers = CaseInsensitiveDict({**kept.headers, **response.headers})
    return response


def _pools(listed: tuple[Network, ...]) -> dict[str, Any]:
    """Return the classes of connections, which resolve a name once and connect to what was checked."""

    def connect(connection: HTTPConnection) -> Any:
        port = connection.port or connection.default_port
        ip = resolve(connection.host, port, listed)
        if not isinstance(connection, HTTPSConnection) and is_allowed(ip_address(ip.partition("%")[0])):
            raise IpAddressRefused(f"{connection.host} is on the internet: tokens are sent over https only.")
        return create_connection((ip, port), STEP_SECONDS)

    class Plain(HTTPConnection):
        def _new_conn(self) -> Any:
            return connect(self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> Any:
            return connect(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def unreachable(name: str, error: Exception) -> ForgeError:
    """Return the error for a request that got no answer."""
    if isinstance(error, IpAddressRefused | AnswerTooLong):
        return ForgeError(f"{name} cannot be used: {error}")
    if isinstance(error, requests.exceptions.SSLError):
        return ForgeError(f"The certificate of {name} is not accepted.")
    if isinstance(error, requests.Timeout):
        return ForgeError(f"{name} did not answer within {STEP_SECONDS:.0f} seconds.")
    return ForgeError(f"{name} cannot be reached ({type(error).__name__}).")


def refused(name: str, status: int, said: str, headers: Mapping[str, str], *, now: float) -> ForgeError:
    """Return the error for an answer that is not a success, with what the user can do."""
    said = " ".join(said.split())[:500]
    wait = _seconds_to_wait(status, CaseInsensitiveDict(headers), now=now)
    if wait is not None:
        return ForgeError(
            f"The rate limit of {name} is reached. It can be used again in {max(1, round(wait / 60))} min.",
            retry_after=wait,
        )
    if status == 401:
        return ForgeError(f"{name} does not accept the project’s token. It may have expired; store another.")
    if status == 403:
        return ForgeError(f"{name} does not let the project’s token do this: {said or 'no reason given'}")
    if status == 404:
        return ForgeError(f"{name} has no such repository or pull request, or the token may not see it.")
    return ForgeError(f"{name} answered {status}: {said or 'no reason given'}")


def _seconds_to_wait(status: int, headers: Mapping[str, str], *, now: float) -> float | None:
    if status not in (403, _RATE_LIMITED):
        return None
    after = headers.get("Retry-After", "")
    if after.isdigit():
        return float(after)
    for prefix in ("X-RateLimit", "RateLimit"):
        reset = headers.get(f"{prefix}-Reset", "")
        if headers.get(f"{prefix}-Remaining") == "0" and reset.isdigit():
            return max(0.0, float(reset) - now)
    return 60.0 if status == _RATE_LIMITED else None
