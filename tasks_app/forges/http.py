"""HTTP to a forge: to checked IP addresses only, bounded, and conditional.

All adapters use this: it is an adapter of `requests`, which the clients of GitHub and GitLab are made of.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, ClassVar

import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.connection import create_connection

from tasks_app.core.allowed_networks import IpAddressRefused, Network, is_allowed, resolve
from tasks_app.core.text import storable_text
from tasks_app.forges.port import ForgeError, RemotePullRequest

#: Seconds for a connection, and between two pieces of an answer.
STEP_SECONDS = 10.0
#: Seconds for a request as a whole, because a forge may answer very slowly.
TOTAL_SECONDS = 60.0
#: Bytes of an answer that are read.
LONGEST_ANSWER = 8 * 2**20
_MOST_ANSWERS = 256
_LONGEST_KEPT = 256 * 2**10
_NOT_MODIFIED = 304
_RATE_LIMITED = 429
#: Seconds that a forge can have the portal wait.
_LONGEST_WAIT = 24 * 3600.0


class AnswerTooLong(requests.RequestException):
    """The forge sent more than LONGEST_ANSWER."""


class AnswerTooSlow(requests.RequestException):
    """The forge had not sent its whole answer after TOTAL_SECONDS."""


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


def session(listed: Iterable[Network], *, seconds: float | None = None) -> requests.Session:
    """Return a session that reaches the internet and the listed networks, and sends no other credentials.

    `seconds` for each request as a whole; by default TOTAL_SECONDS.
    """
    made = requests.Session()
    guard(made, listed, seconds=seconds)
    return made


def guard(made: requests.Session, listed: Iterable[Network], *, seconds: float | None = None) -> None:
    """Let the session connect to allowed IP addresses only, without proxies and `.netrc`."""
    made.trust_env = False
    made.max_redirects = 0  # a redirect could take the token to another host
    for scheme in ("https://", "http://"):
        made.mount(scheme, GuardedAdapter(tuple(listed), seconds))


class _Sockets:
    """The open connections of a session, such that another thread can shut them down.

    They are duplicates: while TLS is agreed on, the connection's own socket belongs to the TLS library.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._ended: list[socket.socket] = []
        self._is_requesting = False
        self._time_is_over = threading.Event()

    def add(self, connected: socket.socket) -> socket.socket:
        """Note a connection, which is shut down at once if it opened too late."""
        with self._lock:
            self._open.add(duplicate := connected.dup())
        if self._time_is_over.is_set():
            self.shut_down()
        return duplicate

    def remove(self, duplicate: socket.socket) -> None:
        """Forget a connection that is closed, after the request: an answer may still be read from it."""
        with self._lock:
            self._ended.append(duplicate)
        if not self._is_requesting:
            self._close_ended()

    def _close_ended(self) -> None:
        with self._lock:
            self._open.difference_update(self._ended)
            while self._ended:
                self._ended.pop().close()

    def shut_down(self) -> None:
        with self._lock:
            for duplicate in self._open:
                with contextlib.suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Shut them down after the seconds, and raise AnswerTooSlow then, also if an answer seems whole."""
        expired = self._time_is_over = threading.Event()
        seconds = self._seconds or TOTAL_SECONDS

        def expire() -> None:
            expired.set()
            self.shut_down()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        self._is_requesting = True
        try:
            yield
        except (requests.RequestException, OSError):
            if not expired.is_set():
                raise
        finally:
            timer.cancel()
            self._is_requesting = False
            self._close_ended()
        if expired.is_set():
            raise AnswerTooSlow(f"it did not finish its answer within {seconds:.0f} seconds.")


class GuardedAdapter(HTTPAdapter):
    """Checks the IP address of each connection, bounds answers, and asks again only for what changed.

    For one thread at a time: what exceeds the time limit takes all connections of the session along.
    """

    def __init__(self, listed: tuple[Network, ...], seconds: float | None = None) -> None:
        self._listed = listed
        self._sockets = _Sockets(seconds)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._listed, self._sockets)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["timeout"] = STEP_SECONDS
        key, kept = b"", None
        if request.method == "GET":
            key = _cache_key(request)
            kept = _answers.get(key)
        if kept:
            request.headers["If-None-Match"] = kept.etag
        with self._sockets.limited():
            response = super().send(request, *args, **{**kwargs, "stream": True})
            content = bytearray()
            for piece in response.iter_content(64 * 2**10):
                content += piece
                if len(content) > LONGEST_ANSWER:
                    response.close()
                    raise AnswerTooLong(f"more than {LONGEST_ANSWER >> 20} MiB")
            response._content = bytes(content)
        if kept and response.status_code == _NOT_MODIFIED:
            response.status_code, response.reason = 200, "OK"
            response._content = kept.content
            response.headers = CaseInsensitiveDict({**kept.headers, **response.headers})
            return response
        etag = response.headers.get("ETag", "")
        if key and etag and response.ok and len(response.content) <= _LONGEST_KEPT:
            _answers.keep(key, _Answer(etag, response.content, dict(response.headers)))
        return response


def _cache_key(request: requests.PreparedRequest) -> bytes:
    """Return what tells requests apart: the URL and everything that stands for the user."""
    told = [request.headers.get(name) or "" for name in ("Authorization", "PRIVATE-TOKEN", "Accept")]
    return sha256("\n".join([request.url or "", *map(str, told)]).encode()).digest()


def _pools(listed: tuple[Network, ...], sockets: _Sockets) -> dict[str, Any]:
    """Return the classes of connections, which resolve a name once and connect to what was checked."""

    def connect(connection: HTTPConnection) -> socket.socket:
        port = connection.port or connection.default_port
        ip = resolve(connection.host, port, listed)
        if not isinstance(connection, HTTPSConnection) and is_allowed(ip_address(ip.partition("%")[0])):
            raise IpAddressRefused(f"{connection.host} is on the internet: tokens are sent over https only.")
        return create_connection((ip, port), STEP_SECONDS)

    class Plain(HTTPConnection):
        _duplicate: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            connected = connect(self)
            self._duplicate = sockets.add(connected)
            return connected

        def close(self) -> None:
            super().close()
            if self._duplicate:
                sockets.remove(self._duplicate)
                self._duplicate = None

    class Secure(Plain, HTTPSConnection):
        """The same with TLS."""

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def unreachable(name: str, error: Exception) -> ForgeError:
    """Return the error for a request that got no answer."""
    if isinstance(error, IpAddressRefused | AnswerTooLong | AnswerTooSlow):
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
    after = _seconds_after(headers.get("Retry-After", ""), now=now)
    if after is not None:
        return after
    for prefix in ("X-RateLimit", "RateLimit"):
        reset = _parse_seconds(headers.get(f"{prefix}-Reset", ""))
        if headers.get(f"{prefix}-Remaining") == "0" and reset is not None:
            return min(max(0.0, reset - now), _LONGEST_WAIT)
    if status == _RATE_LIMITED:
        return 60.0
    return None


def _seconds_after(value: str, *, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date; None if it has neither."""
    seconds = _parse_seconds(value)
    if seconds is None:
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        seconds = at.timestamp() - now
    return min(max(0.0, seconds), _LONGEST_WAIT)


def _parse_seconds(value: str) -> float | None:
    if value.isascii() and value.isdigit() and len(value) < 20:
        return float(value)
    return None


# Reading the JSON answers of forges, which may be anything.


Json = dict[str, Any]
#: Entries of a page, and pages of a list that are read.
PAGE = 100
MOST_PAGES = 10


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an answer of another form than the forge's documentation says into ForgeError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ForgeError(
            f"{name} sent an answer that cannot be read ({type(error).__name__}: {str(error)[:100]}). Is the "
            "address of its API right?"
        ) from error


def text(value: object) -> str:
    """Return text that can be stored; "" for null."""
    if not isinstance(value, str):
        return ""
    return storable_text(value)


def login(user: object) -> str:
    """Return the name of a user; "" for null, as a forge sends it for a deleted account."""
    if not isinstance(user, dict):
        return ""
    return text(user.get("login") or user.get("username"))


def web_url(value: object) -> str:
    """Return a link that pages may show; "" for anything but http and https."""
    url = text(value)
    if not url.startswith(("https://", "http://")):
        return ""
    return url


def wanted_reviewers(names: tuple[str, ...]) -> Json:
    """Return the body of a request for reviews at GitHub and Forgejo. A name with a slash is a team's."""
    return {
        "reviewers": [name for name in names if "/" not in name],
        "team_reviewers": [name.partition("/")[2] for name in names if "/" in name],
    }


# What the adapters have in common: requests whose errors are in words for people, and lists in pages.


class RestForge(ABC):
    """A forge with a REST API. An adapter says how a request is sent and how a pull request is read."""

    name: ClassVar[str]
    page_size: ClassVar[int] = PAGE
    #: The parameter that has the size of a page.
    size_parameter: ClassVar[str] = "per_page"

    @abstractmethod
    def _send(self, verb: str, path: str, query: Json | None, body: Json | None) -> Any:
        """Return the JSON of a successful answer. Raises what `_refused` made, or an error of `requests`."""

    @staticmethod
    @abstractmethod
    def _read_pull_request(raw: Json) -> RemotePullRequest: ...

    def _call(self, verb: str, path: str, body: Json | None = None, *, query: Json | None = None) -> Any:
        try:
            return self._send(verb, path, query, body)
        except (OSError, IpAddressRefused) as error:
            raise unreachable(self.name, error) from None

    def _refused(self, status: int, said: str, headers: Mapping[str, str]) -> ForgeError:
        return refused(self.name, status, said, headers, now=time.time())

    def _list(
        self, path: str, query: Json | None = None, *, of: Callable[[Any], list[Json]] = lambda answer: answer
    ) -> list[Json]:
        """Return the entries of up to MOST_PAGES pages; `of` returns the entries of one page."""
        found: list[Json] = []
        for page in range(1, MOST_PAGES + 1):
            sized = {**(query or {}), self.size_parameter: self.page_size, "page": page}
            answer = self._call("GET", path, query=sized)
            with readable(self.name):
                entries = of(answer)
                found += entries
            if len(entries) < self.page_size:
                break
        return found

    def _pull_request(self, raw: Json) -> RemotePullRequest:
        with readable(self.name):
            return self._read_pull_request(raw)
