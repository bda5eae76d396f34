"""Reasons why an exchange of files with the portal fails, and whether it would fail again (M1)."""

from __future__ import annotations

import re

from tasks_app.core.errors import TemporaryFault, WorkspaceError
from tasks_app.git.lfs import TOO_LARGE

#: Statuses that depend on what was sent alone, so that it would be refused again. For requests of git 400 is
#: none of them: the portal also answers so if its git ended early, for example for want of memory.
FINAL_STATUSES = frozenset({413, 414, 415, 422})
#: How git names the status of a response.
_STATUS = re.compile(r"(?:\bHTTP |returned error: )(\d{3})\b")
#: What the portal's git and its hooks say of a push whose objects they will never take.
_NOT_TAKEN = re.compile(r"^remote: (.*(?:fsck error|is not part of this push).*?)\s*$", re.M)


class TokenRefused(TemporaryFault):
    """The portal does not accept the worker's token."""


class ExchangeRefused(WorkspaceError):
    """The portal does not take what was sent, and would not take it again."""


def refusal(error: Exception) -> ExchangeRefused | None:
    """Return why the exchange would fail again, or None if another attempt may succeed."""
    if isinstance(error, ExchangeRefused):
        return error
    message = str(error)
    status = next((int(one) for one in _STATUS.findall(message) if int(one) in FINAL_STATUSES), 0)
    if status == 413 or TOO_LARGE in message:
        return ExchangeRefused(
            "The portal does not take what was recorded, because it is too large: it takes at most 2 GB at"
            " once, and a reverse proxy in front of it may take less. Have .gitignore name large files that"
            " are no part of the result."
        )
    if found := _NOT_TAKEN.search(message):
        return ExchangeRefused(f"The portal does not take what was recorded: {found[1]}.")
    if status:
        return ExchangeRefused(f"The portal refuses to exchange files (HTTP {status}).")
    return None
