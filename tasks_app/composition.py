"""Put the worker together: the agent, the sandbox and the connection to the model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from tasks_app.agent.connection import Connection
from tasks_app.agent.port import RunOrder
from tasks_app.agent.proxy import ApiKeyProxy, RunLimits
from tasks_app.core.trace_context import TraceContext
from tasks_app.engine.stopping import StopSignal
from tasks_app.engine.traces.agent_spans import WAITING
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.heartbeat import process_name
from tasks_app.models import paths
from tasks_app.operations import local_sandbox
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import FORWARDED_PORT, Sandbox, delegated_cgroup, prepare_cgroup

if TYPE_CHECKING:
    from tasks_app.agent.proxy.spans import RunSpans

_proxy_lock = threading.Lock()


@cache
def worker_sandbox() -> Sandbox:
    """Return the sandbox for running agents, with a cgroup for each run if this process may make them.

    Raises SandboxUnavailable.
    """
    sandbox = local_sandbox.sandbox()
    return sandbox.with_limits(sandbox.limits, cgroup=prepare_cgroup(delegated_cgroup()))


@cache
def _rehearsal() -> RehearsalServer:
    server = RehearsalServer()
    server.start()
    return server


@cache
def _proxy() -> ApiKeyProxy:
    """Return the started API key proxy of this process. In rehearsal it leads to the scripted API."""
    environment = settings.ENVIRONMENT
    if environment.rehearsal:
        proxy = ApiKeyProxy(api_key="rehearsal", upstream=_rehearsal().url, free=True)
    else:
        proxy = ApiKeyProxy(
            api_key=environment.anthropic_api_key or "", upstream=environment.anthropic_base_url or ""
        )
    proxy.start()
    return proxy


@contextmanager
def connect(order: RunOrder) -> Iterator[Connection]:
    """Connect a run to its model through the API key proxy, which counts and limits its requests.

    An API key stays in the proxy. The token of a login does not: the CLI must hold it itself.
    """
    environment = settings.ENVIRONMENT
    limits = RunLimits(
        model=order.model, max_cost_usd=order.max_cost_usd, reaches_out=order.network != "none"
    )
    with _proxy_lock:
        proxy = _proxy()
    spans = _spans_of(order)
    with proxy.run_token(limits, spans, order.budgets) as (token, meter):
        meter.follow_budgets(order.dollars_left)
        meter.session_id, meter.awaited = order.session_id, {*order.permissions, *order.answered}
        connection = Connection(api_key=token, base_url=proxy.url, meter=meter, takes_spans=spans is not None)
        if not (environment.rehearsal or environment.anthropic_api_key):
            login = environment.claude_oauth_token or ""
            connection = replace(connection, api_key="", oauth_token=login, run_token=token)
        if order.network != "full":
            # Without a network, a port on the sandbox's loopback interface leads to the proxy's socket.
            url = f"http://127.0.0.1:{FORWARDED_PORT}"
            connection = replace(connection, base_url=url, socket=proxy.socket_path)
        yield connection


def _spans_of(order: RunOrder) -> RunSpans | None:
    """Return what takes the spans of the agent's program; None if they are not wanted or it is not traced."""
    context = TraceContext.parse(order.traceparent)
    if context is None or not settings.ENVIRONMENT.takes_agent_spans:
        return None
    from tasks_app.agent.proxy.spans import RunSpans  # imported late: see there

    return RunSpans(context, WAITING.put)


def worker_context(stop_signal: StopSignal) -> WorkerContext:
    """Return everything that `advance` needs."""
    # Imported late: a worker without work does without the SDK, which takes half a second and 30 MB.
    from tasks_app.agent.claude import ClaudeAgent

    sandbox = worker_sandbox().placed(paths.placement())
    agent = ClaudeAgent(sandbox=sandbox, connect=connect, prompt_cache=settings.ENVIRONMENT.prompt_cache)
    return WorkerContext(agent=agent, sandbox=sandbox, stop_signal=stop_signal)


def owner() -> str:
    """Return the name of this worker in leases."""
    return f"{process_name()}:{threading.current_thread().name}"
