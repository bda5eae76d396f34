"""Make the adapter for a kind of forge. Its library, which takes a second, is imported when it is needed.

It stands apart from `services`, its only caller, because nothing above this package knows the adapters.
"""

from __future__ import annotations

from collections.abc import Iterable

from tasks_app.core.allowed_networks import Network
from tasks_app.forges.port import Forge, ForgeAddress, ForgeKind


def connect(address: ForgeAddress, token: str, *, listed: Iterable[Network] = ()) -> Forge:
    """Return the repository's forge. Nothing is sent yet."""
    if address.kind == ForgeKind.GITHUB:
        from tasks_app.forges.github import GitHub

        return GitHub(address, token, listed=listed)
    if address.kind == ForgeKind.GITLAB:
        from tasks_app.forges.gitlab import GitLab

        return GitLab(address, token, listed=listed)
    from tasks_app.forges.forgejo import Forgejo

    return Forgejo(address, token, listed=listed)
