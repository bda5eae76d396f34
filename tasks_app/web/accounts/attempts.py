"""Limits of login attempts: their cache, slots for hashing passwords, and known browsers.

The cache of attempts: a Redis that does not respond, or contains what others wrote, must neither lock
everybody out nor allow guessing passwords.

A good hash takes half a second of a processor, and anybody may cause one. All of a process are made one after
the other, by a thread that gets processor time only when requests do not need it. The queue is short. So that
few strangers cannot fill it, an address has one place, and the last place is for browsers in which somebody
has logged in before. A login that does not fit in is answered with 429, and does not count as a failed one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, ip_address
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core import signing
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tasks_app.models import User

_COOKIE = "known_browser"


def remember_browser(response: HttpResponse, user: User) -> None:
    response.set_cookie(
        _COOKIE,
        signing.dumps(user.pk, salt=_COOKIE),
        max_age=timedelta(days=365),
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )


def user_of_browser(request: HttpRequest) -> int | None:
    """Return the id of the user who has logged in in this browser before."""
    try:
        known: int = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_COOKIE)
    except signing.BadSignature:
        return None
    return known


logger = logging.getLogger(__name__)

#: Seconds until a Redis that does not respond counts as unavailable: a user waits for the login page.
TIMEOUT_SECONDS = 1.0
#: With Django's default of 300, a stranger could evict the count of one name by trying enough others.
IN_MEMORY: dict[str, Any] = {"MAX_ENTRIES": 200_000}


class SignedJsonSerializer:
    """Replaces Django's pickle: others who can write to Redis must not run code in the portal."""

    def dumps(self, value: Any) -> str:
        return signing.dumps(value, salt="counts")

    def loads(self, data: bytes) -> Any:
        """Raises BadSignature if the portal did not write it."""
        return signing.loads(data.decode(errors="replace"), salt="counts")


def _or_in_memory(name: str) -> Callable[..., Any]:
    def operation(self: RedisOrMemoryCache, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(RedisCache, name)(self, *args, **kwargs)
        except (RedisError, OSError, signing.BadSignature) as error:
            logger.warning("Redis is unavailable, so login attempts are counted in memory: %s", error)
            return getattr(self.in_memory, name)(*args, **kwargs)

    return operation


class RedisOrMemoryCache(RedisCache):
    """Django's Redis cache, with a fallback in the memory of this process."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        bounds = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
        options = {"serializer": SignedJsonSerializer, "retry": Retry(NoBackoff(), 0), **bounds}
        super().__init__(server, {**params, "OPTIONS": options})
        self.in_memory = LocMemCache("while Redis is unavailable", {"OPTIONS": IN_MEMORY})

    add = _or_in_memory("add")
    get = _or_in_memory("get")
    set = _or_in_memory("set")
    touch = _or_in_memory("touch")
    delete = _or_in_memory("delete")
    get_many = _or_in_memory("get_many")
    has_key = _or_in_memory("has_key")
    incr = BaseCache.incr  # Redis itself cannot increment a signed value
    set_many = _or_in_memory("set_many")
    delete_many = _or_in_memory("delete_many")
    clear = _or_in_memory("clear")


#: Hashes that wait for the thread or are being made. The last one waits for about two seconds.
MOST_WAITING = 4
#: How many of these places only known browsers get.
FOR_KNOWN_BROWSERS = 1
#: Niceness of the thread (0 is that of requests, 19 the least important).
NICENESS = 15
RETRY_AFTER_SECONDS = 5


class HashingBusy(Exception):
    """Too many passwords are being checked at the moment."""


@dataclass(frozen=True)
class _Requester:
    """The requester of a hash: a user in a known browser, or an IP network; "" without a request."""

    name: str
    is_known: bool


_COMMAND = _Requester("", is_known=True)
_requester: ContextVar[_Requester] = ContextVar("requester", default=_COMMAND)
_changing = threading.Lock()
_waiting: list[_Requester] = []


@contextmanager
def _place() -> Iterator[None]:
    """Keep a place in the queue. Raises HashingBusy if the requester cannot get one."""
    requester = _requester.get()
    with _changing:
        places = MOST_WAITING
        if not requester.is_known:
            places -= FOR_KNOWN_BROWSERS
        if len(_waiting) >= places or (requester.name and requester in _waiting):
            raise HashingBusy
        _waiting.append(requester)
    try:
        yield
    finally:
        with _changing:
            _waiting.remove(requester)


def _stand_back() -> None:
    """Lower the priority of this thread alone; Linux has one for each thread."""
    with suppress(OSError):  # some sandboxes forbid it
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_thread = ThreadPoolExecutor(1, thread_name_prefix="password-hashing", initializer=_stand_back)


class QueuedHasher(PBKDF2PasswordHasher):
    """Django's default hasher, with the same hashes. Raises HashingBusy if the queue is full."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with _place():
            return _thread.submit(super().encode, password, salt, iterations).result()


class HashingBusyResponse(MiddlewareMixin):
    """Answers 429 to a request whose password could not be checked now."""

    def process_request(self, request: HttpRequest) -> None:
        known = user_of_browser(request)
        name = f"user {known}"
        if known is None:
            name = _network(request.META.get("REMOTE_ADDR", ""))
        _requester.set(_Requester(name, is_known=known is not None))

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, HashingBusy):
            return None
        context: dict[str, Any] = {"busy": True}
        response = render(request, "429.html", context, status=429)
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return response


def _network(address: str) -> str:
    """Return the IP address; of IPv6 the network of 64 bits, which one machine can use as a whole."""
    with suppress(ValueError):
        if isinstance(parsed := ip_address(address), IPv6Address) and not parsed.ipv4_mapped:
            return parsed.exploded[:19]
    return address
