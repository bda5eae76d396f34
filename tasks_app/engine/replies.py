"""Collecting what the agent replies to threads of a review while it runs."""

from __future__ import annotations

from tasks_app.agent.reply_spool import spooled_replies
from tasks_app.engine.lease import Lease
from tasks_app.models import Run, Task, paths
from tasks_app.services.threads import AgentReply, store_agent_replies


class ReplyCollector:
    """Stores the replies of one run as rows, each once, however often they are read."""

    def __init__(self, run: Run, lease: Lease) -> None:
        self._run = run
        self._lease = lease
        self._home = paths.home(run.step.task)
        self._seen: set[str] = set()

    def collect(self) -> None:
        """Store the replies that are new. Cheap if there are none: it lists one folder."""
        spooled = spooled_replies(self._home, known=self._seen)
        if spooled.replies:
            replies = [AgentReply(reply.number, reply.text, reply.key) for reply in spooled.replies]
            with self._lease.locked():
                store_agent_replies(self._run, replies)
        self._seen |= spooled.keys


def collect_earlier_replies(task: Task, lease: Lease) -> None:
    """Store the replies of the task's last run, whose worker may have died before it had read them."""
    last = Run.objects.filter(step__task=task).select_related("step__task").order_by("pk").last()
    if last is not None:
        ReplyCollector(last, lease).collect()
