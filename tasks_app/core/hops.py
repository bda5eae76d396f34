"""What happens between a question and its card, and between the answer and the agent, for traces (O3).

These are the moments that no row has: a process sees one of them and notes it. Those that rows have are read
when a span is sent (`engine/traces/hops.py`).
"""

from enum import StrEnum


class HopName(StrEnum):
    """The name of a moment; of a run up to `AGENT_EXITED`, of a wait for answers from there on."""

    SPAWNED = "spawned"  # the program that makes the sandbox, bubblewrap, was executed
    SANDBOXED = "sandboxed"  # inside the sandbox, just before the agent's program is executed
    GATE = "gate"  # the gate has deferred the call that asks
    AGENT_EXITED = "agent exited"  # the agent's process was seen to have ended
    NOTICE = "notice"  # a web process has read that there is a question
    SOCKET = "socket"  # it has sent that to a first page
    CARD_FETCHED = "card fetched"  # a first response has the question's card
    CARD_PAINTED = "card painted"  # a first browser says that it has painted the card
    POSTED = "posted"  # the request with the answer has arrived
    WOKEN = "woken"  # a worker was woken for the task, and will claim it
    LAID_OUT = "workspace laid out"  # the workspace is as the next run needs it
