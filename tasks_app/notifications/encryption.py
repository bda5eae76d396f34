"""Encryption of the URLs and secrets of targets, with a key derived from the installation's secret key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import digest

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from tasks_app.core.errors import CatHerderError


class CannotDecrypt(CatHerderError):
    """A stored value cannot be decrypted any more."""


def encrypt(text: str) -> str:
    return _fernet().encrypt(text.encode()).decode()


def decrypt(text: str) -> str:
    """Decrypt a text. Raises CannotDecrypt if it was encrypted with another key."""
    try:
        return _fernet().decrypt(text.encode()).decode()
    except InvalidToken:
        raise CannotDecrypt(
            "The URL cannot be decrypted, because the installation's secret key has changed. Enter it again."
        ) from None


def _fernet() -> Fernet:
    return Fernet(urlsafe_b64encode(digest(settings.SECRET_KEY.encode(), b"cat-herder targets", sha256)))
