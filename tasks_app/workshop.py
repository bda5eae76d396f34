"""Where the parts are put together: which agent, which jail, which model behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from django.conf import settings

from tasks_app.agents.claude import ClaudeAgent, Connection
from tasks_app.agents.keykeeper import KeyKeeper
from tasks_app.engine.heartbeat import process_name
from tasks_app.engine.shop import Shop
from tasks_app.engine.stopping import StopSignal
from tasks_app.jail import Jail, SandboxMode, detect
from tasks_app.rehearsal.server import RehearsalServer

_starting = threading.Lock()


@cache
def jail() -> Jail:
    """How guests are run on this machine; found out once. Raises SandboxUnavailable."""
    return detect(SandboxMode(settings.ENVIRONMENT.sandbox), hidden=[Path(settings.DATA_DIR)])


@cache
def _rehearsal() -> RehearsalServer:
    server = RehearsalServer()
    server.start()
    return server


@cache
def _key_keeper() -> KeyKeeper:
    environment = settings.ENVIRONMENT
    keeper = KeyKeeper(
        api_key=environment.anthropic_api_key or "", upstream=environment.anthropic_base_url or ""
    )
    keeper.start()
    return keeper


@contextmanager
def connect() -> Iterator[Connection]:
    """A run's way to its model: the rehearsal's script without key or login, else the real one.

    An API key stays with the key keeper. The token of a login does not: the CLI must hold it itself.
    """
    environment = settings.ENVIRONMENT
    if environment.rehearsal:
        with _starting:
            url = _rehearsal().url
        yield Connection(api_key="rehearsal", base_url=url)
    elif environment.anthropic_api_key:
        with _starting:
            keeper = _key_keeper()
        with keeper.lend() as lent:
            yield Connection(api_key=lent, base_url=keeper.url, resets_at=partial(keeper.resets_at, lent))
    else:
        yield Connection(
            oauth_token=environment.claude_oauth_token or "", base_url=environment.anthropic_base_url or ""
        )


def shop(stop_signal: StopSignal) -> Shop:
    """All that `advance` needs."""
    return Shop(agent=ClaudeAgent(jail=jail(), connect=connect), jail=jail(), stop_signal=stop_signal)


def owner() -> str:
    """Names this worker in leases."""
    return f"{process_name()}:{threading.current_thread().name}"
