"""Chat services, through apprise in a child process (see `chat_child`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from tasks_app.core.errors import BadInput
from tasks_app.notifications.allowed_networks import Network
from tasks_app.notifications.errors import NotSent
from tasks_app.notifications.message import Message
from tasks_app.notifications.plain_text import inert, one_line

#: apprise's own time-outs are shorter; this one ends a service that drips.
SECONDS = 40.0


def check(address: str) -> None:
    """Raises BadInput for what is no address of a service that may be used."""
    answer = _ask({"address": address, "check": True, "listed": []})
    if "fault" in answer:
        raise BadInput(answer["fault"])


def shown(address: str) -> str:
    """What people see of an address: the service, the host if there is one, and how it ends."""
    parts = urlsplit(address)
    host = parts.hostname if parts.hostname and "." in parts.hostname else ""
    return one_line(f"{parts.scheme}://{host}…{address.rstrip('/')[-3:]}", 200)


def send(address: str, message: Message, *, listed: Iterable[Network]) -> int | None:
    """The status that was answered, if there was one. Raises NotSent."""
    title, body = words(message)
    networks = [str(network) for network in listed]
    answer = _ask({"address": address, "title": title, "body": body, "listed": networks})
    if "fault" in answer:
        raise NotSent(answer["fault"], permanent=True)
    if answer["ok"]:
        status: int | None = answer["status"]
        return status
    if answer["refused"]:
        raise NotSent(f"Its address is {answer['refused']}, inside a network.", permanent=True)
    status = answer["status"]
    raise NotSent(
        f"The service answered {status}." if status else "The service could not be reached.", status=status
    )


def words(message: Message) -> tuple[str, str]:
    """Title and body. The one link in it is ours."""
    parts = [inert(message.headline)]
    if message.failure:
        parts.append(inert(one_line(message.failure, 400)))
    return inert(message.place) or "Cat Herder", "\n".join([*parts, message.url])


def _ask(order: dict[str, Any]) -> dict[str, Any]:
    """Raises NotSent if the child takes too long or breaks."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tasks_app.notifications.chat_child"],
            input=json.dumps(order),
            env=kept,
            cwd=settings.BASE_DIR,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NotSent(f"No answer within {SECONDS:.0f} seconds.") from None
    except (subprocess.CalledProcessError, ValueError):
        raise NotSent("The message could not be handed over.") from None
    return answer
