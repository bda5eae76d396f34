"""Where the parts are put together: which agent, which jail, which model behind it."""

from __future__ import annotations

import os
import socket
import threading
from functools import cache
from pathlib import Path

from django.conf import settings

from tasks_app.agents.claude import ClaudeAgent, Connection
from tasks_app.engine.steps import Shop
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


def connection() -> Connection:
    """The real model, or without a key or login the rehearsal's script, started at first need."""
    environment = settings.ENVIRONMENT
    if environment.rehearsal:
        with _starting:
            return Connection(api_key="rehearsal", base_url=_rehearsal().url)
    return Connection(
        api_key=environment.anthropic_api_key or "",
        oauth_token=environment.claude_oauth_token or "",
        base_url=environment.anthropic_base_url or "",
    )


def shop(stop_signal: StopSignal) -> Shop:
    """All that `advance` needs."""
    return Shop(agent=ClaudeAgent(jail=jail(), connection=connection), jail=jail(), stop_signal=stop_signal)


def owner() -> str:
    """Names this worker in leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.current_thread().name}"
