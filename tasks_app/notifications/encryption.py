"""Addresses and secrets of targets, encrypted in the database with a key made from the installation's."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import digest

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from tasks_app.core.errors import CatHerderError


class CannotUnseal(CatHerderError):
    """What was sealed cannot be read any more."""


def seal(text: str) -> str:
    return _box().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Raises CannotUnseal if it was sealed with another key."""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise CannotUnseal(
            "The address cannot be read: the installation's secret key is another now. Enter it again."
        ) from None


def _box() -> Fernet:
    return Fernet(urlsafe_b64encode(digest(settings.SECRET_KEY.encode(), b"cat-herder targets", sha256)))
