"""Reading the JSON answers of forges, which may be anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tasks_app.core.storable import storable_text
from tasks_app.forges.port import ForgeError

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
    return storable_text(value) if isinstance(value, str) else ""


def login(user: object) -> str:
    """Return the name of a user; "" for null, as a forge sends it for a deleted account."""
    return text(user.get("login") or user.get("username")) if isinstance(user, dict) else ""


def web_url(value: object) -> str:
    """Return a link that pages may show; "" for anything but http and https."""
    url = text(value)
    return url if url.startswith(("https://", "http://")) else ""


def wanted_reviewers(names: tuple[str, ...]) -> Json:
    """Return what GitHub and Forgejo want to be told. A name with a slash is that of a team."""
    return {
        "reviewers": [name for name in names if "/" not in name],
        "team_reviewers": [name.partition("/")[2] for name in names if "/" in name],
    }
