"""Why something was not sent."""

from __future__ import annotations


class NotSent(Exception):
    """The message is for people and holds no secret. `permanent`: trying again would change nothing."""

    def __init__(self, message: str, *, status: int | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.permanent = permanent
