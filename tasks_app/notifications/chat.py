"""Send to chat services through apprise, in a child process (see `chat_child`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from tasks_app.core.allowed_networks import Network
from tasks_app.core.errors import BadInput
from tasks_app.notifications.message import Message, NotSent, neutralise_markup, one_line

#: apprise's own timeouts are shorter; this one ends connections that send very slowly.
TIMEOUT_SECONDS = 40.0


def check(url: str) -> None:
    """Raise BadInput unless this is the URL of a supported service."""
    answer = _run_child({"url": url, "check": True, "listed": []})
    if "fault" in answer:
        raise BadInput(answer["fault"])


def masked_url(url: str) -> str:
    """Return the part of a URL that people see: the service, the host if any, and the last characters."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if "." not in host:
        host = ""
    return one_line(f"{parts.scheme}://{host}…{url.rstrip('/')[-3:]}", 200)


def send(url: str, message: Message, *, listed: Iterable[Network]) -> int | None:
    """Send a message; return the HTTP status, if there was one. Raises NotSent."""
    title, body = format_message(message)
    networks = [str(network) for network in listed]
    answer = _run_child({"url": url, "title": title, "body": body, "listed": networks})
    if "fault" in answer:
        raise NotSent(answer["fault"], permanent=True)
    if answer["ok"]:
        status: int | None = answer["status"]
        return status
    if answer["refused"]:
        raise NotSent(f"Its IP address is {answer['refused']}, inside a network.", permanent=True)
    if status := answer["status"]:
        raise NotSent(f"The service answered {status}.", status=status)
    raise NotSent("The service could not be reached.")


def format_message(message: Message) -> tuple[str, str]:
    """Return title and body. The only link is to the portal."""
    parts = [neutralise_markup(message.headline)]
    if message.failure:
        parts.append(neutralise_markup(one_line(message.failure, 400)))
    return neutralise_markup(message.path) or "Cat Herder", "\n".join([*parts, message.url])


def _run_child(request: dict[str, Any]) -> dict[str, Any]:
    """Run the child process. Raises NotSent if it takes too long or fails."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tasks_app.notifications.chat_child"],
            input=json.dumps(request),
            env=environment,
            cwd=settings.BASE_DIR,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NotSent(f"No answer within {TIMEOUT_SECONDS:.0f} seconds.") from None
    except (subprocess.CalledProcessError, ValueError):
        raise NotSent("The message could not be passed to the chat service.") from None
    return answer
