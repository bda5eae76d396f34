"""Errors of delivery."""

from __future__ import annotations


class NotSent(Exception):
    """A delivery failed. The message is for people and has no secrets. `permanent`: do not retry."""

    def __init__(self, message: str, *, status: int | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.permanent = permanent
