"""Collecting what the agent replies to threads of a review while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.agent.reply_spool import SpooledReply, spooled_replies
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.spool_collector import SpoolCollector
from tasks_app.models import Run
from tasks_app.services.reviews.threads import AgentReply, store_agent_replies


def reply_collector(run: Run, lease: Lease) -> SpoolCollector[SpooledReply]:
    return SpoolCollector(run, lease, spooled_replies, _store)


def _store(run: Run, replies: Sequence[SpooledReply]) -> None:
    store_agent_replies(run, [AgentReply(reply.number, reply.text, reply.key) for reply in replies])
