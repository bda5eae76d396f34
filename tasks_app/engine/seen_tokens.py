"""Revoking API tokens that an agent has seen (A2)."""

from __future__ import annotations

from tasks_app.engine.lease import Lease
from tasks_app.history.events.blocks import append_one
from tasks_app.models import EventKind, Run
from tasks_app.services.accounts import has_secret, revoke_seen_tokens


def revoke_tokens_in(said: str, run: Run, lease: Lease) -> None:
    """Revoke each token that stands in a text of the run's agent, and note it in the run.

    Must be called before the text is stored: a worker that dies then sees it again.
    """
    if has_secret(said):
        with lease.locked():
            for sentence in revoke_seen_tokens(said, run.step.task):
                append_one(run, EventKind.NOTE, {"text": sentence})
