"""Encryption of secrets in the database, with keys derived from the installation's secret key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from enum import Enum
from hashlib import sha256
from hmac import digest

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from tasks_app.core.errors import CatHerderError


class Purpose(Enum):
    """What a secret is for; each purpose has a key of its own. The value is part of that key."""

    TARGETS = b"cat-herder targets"
    CALENDARS = b"cat-herder calendars"
    PUBLISHING = b"cat-herder publishing"
    PUSH = b"cat-herder push"
    FORGE_WEBHOOKS = b"cat-herder forge webhooks"
    LIVE = b"cat-herder live"
    MCP_TASKS = b"cat-herder mcp tasks"


class CannotDecrypt(CatHerderError):
    """A stored secret cannot be decrypted any more."""


def encrypt(text: str, purpose: Purpose = Purpose.TARGETS) -> str:
    return _fernet(purpose).encrypt(text.encode()).decode()


def decrypt(text: str, purpose: Purpose = Purpose.TARGETS) -> str:
    """Decrypt a text. Raises CannotDecrypt if it was encrypted with another key."""
    try:
        return _fernet(purpose).decrypt(text.encode()).decode()
    except InvalidToken:
        raise CannotDecrypt(
            "What is stored cannot be decrypted, because the installation's secret key has changed. Enter it "
            "again."
        ) from None


def _fernet(purpose: Purpose) -> Fernet:
    return Fernet(urlsafe_b64encode(digest(settings.SECRET_KEY.encode(), purpose.value, sha256)))
