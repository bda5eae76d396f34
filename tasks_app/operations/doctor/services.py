"""Checks of database, queue, Redis, workers, web server, model, e-mail and sources."""

from __future__ import annotations

import http.client
import os
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address

from django.conf import settings
from django.core.mail import get_connection
from django.db import DatabaseError, connection
from django.utils import timezone
from redis import Redis
from redis.exceptions import RedisError

from tasks_app.core.amounts import counted
from tasks_app.core.environment import misspelt_variables
from tasks_app.core.errors import CatHerderError
from tasks_app.git import authorities, inspect_source
from tasks_app.git.source import is_url
from tasks_app.models import Project, WorkerBeat
from tasks_app.models.database_errors import explain
from tasks_app.operations.doctor import Finding, ok, problem, warning
from tasks_app.operations.health import (
    IS_SNAPSHOT,
    LEAVE_SNAPSHOT,
    SNAPSHOT,
    applied_migrations,
    needed_migrations,
)
from tasks_app.operations.open_services import check_open_services

#: Timeout of each request.
TIMEOUT_SECONDS = 5.0
#: Tolerated difference between the clocks of the machine and the database.
MAX_CLOCK_DIFFERENCE = 5.0
#: Older ones are not supported by Django.
OLDEST_POSTGRES = 14


def database() -> Iterator[Finding]:
    """Check that the database is reachable, migrated and undamaged."""
    try:
        connection.ensure_connection()
        applied: frozenset[tuple[str, str]] = frozenset()
        if "django_migrations" in connection.introspection.table_names():
            applied = applied_migrations()
        lacking = needed_migrations() - applied
        if SNAPSHOT in applied:
            yield problem("database", IS_SNAPSHOT, LEAVE_SNAPSHOT)
        elif lacking:
            text = f"{counted(len(lacking), 'migration')} not applied" if applied else "it has no tables yet"
            yield problem("database", text, "Start the portal: cat-herder up")
        elif applied - needed_migrations():
            yield problem("database", "a newer version of Cat Herder has used it", "Install that version.")
        else:
            yield _sqlite() if connection.vendor == "sqlite" else _postgres()
            yield _database_clock()
    except DatabaseError as error:
        yield problem("database", explain(error), "Nothing works without it.")


def _sqlite() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check(1)")
        (said,) = cursor.fetchone()
    if said != "ok":
        return problem(
            "database", f"SQLite's file is damaged: {said}", "Stop the portal and restore a backup."
        )
    return ok("database", f"SQLite, sound, {connection.settings_dict['NAME']}")


def _postgres() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        version = int(cursor.fetchone()[0]) // 10_000
    if version < OLDEST_POSTGRES:
        return problem("database", f"PostgreSQL {version} is too old", f"Use {OLDEST_POSTGRES} or newer.")
    return ok("database", f"PostgreSQL {version}")


def _database_clock() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_TIMESTAMP")
        told = cursor.fetchone()[0]
    at = told if isinstance(told, datetime) else datetime.fromisoformat(f"{told}+00:00")
    off = abs((timezone.now() - at).total_seconds())
    if off > MAX_CLOCK_DIFFERENCE:
        return warning(
            "clock",
            f"this machine and the database differ by {off:,.0f} s",
            "Let both follow a time server, or times on the pages will be wrong.",
        )
    return ok("clock", "as the database's")


def queue() -> Iterator[Finding]:
    """Show the length of the queue; lost messages are sent again by the sweeper."""
    waiting = settings.HUEY.pending_count()
    yield ok("queue", f"{counted(waiting, 'message')} waiting" if waiting else "empty")


def redis() -> Iterator[Finding]:
    url = settings.ENVIRONMENT.redis_url
    if not url:
        return
    try:
        with Redis.from_url(
            url, socket_connect_timeout=TIMEOUT_SECONDS, socket_timeout=TIMEOUT_SECONDS
        ) as there:
            version = there.info("server").get("redis_version", "")
    except (RedisError, ValueError) as error:
        reason = " ".join(str(error).split())
        yield problem("Redis", f"it cannot be used: {reason}", "Start it, or correct REDIS_URL.")
        return
    yield ok("Redis", version)


def open_services() -> Iterator[Finding]:
    """Check for services without a password, through which agents could escape the sandbox."""
    for sentence in check_open_services():
        yield warning("open services", sentence)


def workers() -> Iterator[Finding]:
    try:
        alive = list(WorkerBeat.objects.alive())
    except DatabaseError:
        return  # reported by the check of the database
    if not alive:
        yield warning(
            "worker", "none runs: tasks wait", "Start the portal with cat-herder up, or cat-herder worker."
        )
        return
    busy, slots = sum(one.busy for one in alive), sum(one.slots for one in alive)
    yield ok("worker", f"{len(alive)} alive, {busy} of {slots} agents at work")
    for worker in alive:
        if worker.problem:
            reason = f"{worker} takes no tasks: {worker.problem}"
            yield warning("worker", reason, "Mend that; it looks again.")
        # What protects its machine from its agents; `doctor` there says how to mend it.
        if worker.unsandboxed:
            yield warning(
                "worker", f"{worker} has no sandbox: {worker.unsandboxed}", "Set CATHERDER_SANDBOX=require."
            )
        unheld = [
            f"{row.value} of {row.name.lower()}"
            for row in worker.enforced_limits
            if row.is_set and not row.by
        ]
        if unheld:
            reason = f"on {worker} nothing holds agents to {', '.join(unheld)}"
            yield warning("worker", reason, "doctor on that machine says what to do.")
    if len(versions := {one.version for one in alive}) > 1:
        yield warning(
            "worker", f"they have different versions: {', '.join(sorted(versions))}", "Restart them."
        )


def web() -> Iterator[Finding]:
    """Check the portal at its public URL, including a proxy."""
    url = settings.ENVIRONMENT.address
    context = None
    if url.startswith("https:"):
        trusted = authorities.of_portal()
        if text := trusted.problem():
            yield problem("web server", text, "Correct it.")
            return
        context = trusted.tls_context()
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=TIMEOUT_SECONDS, context=context) as response:  # noqa: S310 - http(s)
            whole = response.read(100) == b"ok\n"
            ignored_proxy = response.headers.get("X-Ignored-Proxy")
    except urllib.error.HTTPError as error:
        yield problem("web server", f"{url} answers {error.code}", "Is it the portal that is there?")
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            hint = "Give the proxy a certificate that is valid, or name its authority's in SSL_CERT_FILE."
            yield problem("web server", f"{url}: {reason}", hint)
        else:
            yield warning("web server", f"{url} does not answer: {reason}", "Start it with cat-herder up.")
        return
    if not whole:
        yield problem("web server", f"something else answers at {url}", "Correct CATHERDER_URL or the proxy.")
    elif ignored_proxy:
        reason = f"the proxy at {ignored_proxy} is not trusted: all its clients count as one"
        yield warning("web server", reason, f"Set CATHERDER_PROXY={ignored_proxy}.")
    else:
        yield ok("web server", f"answers at {url}")


def exposure() -> Iterator[Finding]:
    """Check for logins without TLS, and for a proxy that is not trusted."""
    environment = settings.ENVIRONMENT
    bound = environment.bind.host
    https = (environment.url or "").startswith("https://")
    if not https and not _is_loopback(bound):
        yield warning(
            "https", f"the portal listens on {bound} without https: passwords cross the network in the clear",
            "Put a proxy with TLS in front and set CATHERDER_URL=https://…",
        )  # fmt: skip
    elif https and not environment.proxies:
        yield warning(
            "https", "CATHERDER_URL is https, but no proxy is trusted", "Set CATHERDER_PROXY to its network."
        )
    else:
        yield ok("https", environment.url or "not needed on this machine alone")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def variables() -> Iterator[Finding]:
    for sentence in misspelt_variables(os.environ):
        yield warning("settings", sentence, "It is not read.")


def model() -> Iterator[Finding]:
    environment = settings.ENVIRONMENT
    if environment.rehearsal:
        yield warning(
            "model", "rehearsal: there is no key, so a script plays the model",
            "Set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN for the real one.",
        )  # fmt: skip
    elif environment.anthropic_api_key:
        yield ok("model", "an API key, which stays in the worker")
    else:
        yield warning(
            "model", "the token of a subscription: agents hold it themselves",
            "A team that shares one should read the provider's terms; an API key stays in the worker.",
        )  # fmt: skip


def mail() -> Iterator[Finding]:
    """Check that the mail server accepts the login; send nothing."""
    if not settings.SENDS_EMAIL:
        yield ok("e-mail", "not configured")
        return
    server = get_connection()
    try:
        server.open()
        yield ok("e-mail", f"{settings.EMAIL_HOST} takes the login")
    except (OSError, smtplib.SMTPException) as error:
        reason = " ".join(str(error).split())
        yield problem(
            "e-mail", f"{settings.EMAIL_HOST} cannot be used: {reason}", "Correct CATHERDER_EMAIL_URL."
        )
    finally:
        server.close()


def traces() -> Iterator[Finding]:
    """Check that the endpoint for traces takes spans; send none."""
    if not settings.ENVIRONMENT.traces_endpoint:
        return
    from tasks_app.engine.traces.otlp import (  # only with an endpoint: see there
        endpoint_problem,
        shown_endpoint,
    )

    if reason := endpoint_problem(TIMEOUT_SECONDS):
        yield warning(
            "traces", f"{shown_endpoint()} takes no spans: {reason}",
            "Correct OTEL_EXPORTER_OTLP_ENDPOINT or its headers. Tasks are worked on all the same.",
        )  # fmt: skip
    else:
        takes = f"{shown_endpoint()} takes spans"
        if settings.ENVIRONMENT.takes_agent_spans:
            takes += ", also those of Claude Code"
        yield ok("traces", takes)


def sources(*, remote: bool = False) -> Iterator[Finding]:
    """Check the sources of projects; remote ones only with `remote`."""
    try:
        projects = list(Project.objects.all())
    except DatabaseError:
        return
    looked = [project for project in projects if remote or not is_url(project.source)]
    for project in looked:
        try:
            inspect_source(project.source, seconds=TIMEOUT_SECONDS)
        except CatHerderError as error:
            yield warning("source", f"{project.name}: {error}", "Correct it in the project's settings.")
    said = f"{len(looked)} looked at"
    if left := len(projects) - len(looked):
        said += f", {left} behind a network: --sources"
    if projects:
        yield ok("sources", said)


CHECKS = (database, queue, redis, open_services, workers, web, exposure, variables, model, mail, traces)
