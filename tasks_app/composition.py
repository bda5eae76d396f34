"""Where the parts are put together: which agent, in which sandbox, with which model behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from django.conf import settings

from tasks_app.agent.claude import ClaudeAgent, Connection
from tasks_app.agent.port import RunOrder
from tasks_app.agent.proxy import ApiKeyProxy, RunLimits
from tasks_app.engine.heartbeat import process_name
from tasks_app.engine.stopping import StopSignal
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.operations import local_sandbox
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import FORWARDED_PORT, Sandbox, delegated_group, divided

_starting = threading.Lock()


@cache
def worker_sandbox() -> Sandbox:
    """The sandbox for those who run agents: with a cgroup for each, where this process has one to divide.

    Raises SandboxUnavailable.
    """
    found = local_sandbox.sandbox()
    return found.limited(found.limits, cgroup=divided(delegated_group()))


@cache
def _rehearsal() -> RehearsalServer:
    server = RehearsalServer()
    server.start()
    return server


@cache
def _proxy() -> ApiKeyProxy:
    """The way of this process's agents to the model. The rehearsal's script is behind it too."""
    environment = settings.ENVIRONMENT
    if environment.rehearsal:
        proxy = ApiKeyProxy(api_key="rehearsal", upstream=_rehearsal().url)
    else:
        proxy = ApiKeyProxy(
            api_key=environment.anthropic_api_key or "", upstream=environment.anthropic_base_url or ""
        )
    proxy.start()
    return proxy


@contextmanager
def connect(order: RunOrder) -> Iterator[Connection]:
    """A run's way to its model: through the API key proxy, which counts and limits what passes.

    An API key stays there. The token of a login does not: the CLI must hold it itself.
    """
    environment = settings.ENVIRONMENT
    limits = RunLimits(
        model=order.model, max_cost_usd=order.max_cost_usd, reaches_out=order.network != "none"
    )
    with _starting:
        proxy = _proxy()
    with proxy.run_token(limits) as (token, meter):
        connection = Connection(api_key=token, base_url=proxy.url, meter=meter)
        if not (environment.rehearsal or environment.anthropic_api_key):
            login = environment.claude_oauth_token or ""
            connection = replace(connection, api_key="", oauth_token=login, run_token=token)
        yield connection if order.network == "full" else _by_socket(connection, proxy)


def _by_socket(connection: Connection, proxy: ApiKeyProxy) -> Connection:
    """The same for a sandbox without a network: a port on its own loopback leads to the proxy's socket."""
    return replace(connection, base_url=f"http://127.0.0.1:{FORWARDED_PORT}", socket=proxy.socket_path)


def worker_context(stop_signal: StopSignal) -> WorkerContext:
    """All that `advance` needs."""
    agent = ClaudeAgent(
        sandbox=worker_sandbox(), connect=connect, prompt_cache=settings.ENVIRONMENT.prompt_cache
    )
    return WorkerContext(agent=agent, sandbox=worker_sandbox(), stop_signal=stop_signal)


def owner() -> str:
    """Names this worker in leases."""
    return f"{process_name()}:{threading.current_thread().name}"
