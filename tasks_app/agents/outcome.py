"""What a run came to: its stream, its notes and its order, in one result."""

from __future__ import annotations

from datetime import datetime

from tasks_app.agents.notes import noted_asks
from tasks_app.agents.port import Ending, RunOrder, RunResult
from tasks_app.agents.stream import Stream
from tasks_app.storable import storable_text


def run_result(
    stream: Stream,
    order: RunOrder,
    *,
    problem: str,
    exit_code: int | None,
    resets_at: datetime | None = None,
) -> RunResult:
    """`problem` is what went wrong outside the stream, empty if nothing did.

    `resets_at` is the reset time that is known from elsewhere, for a limit of which the stream tells none.
    """
    asks = (*stream.open_asks(order.decisions), *noted_asks(order.places.home)) if order.may_ask else ()
    delivered = frozenset(
        i for i, decision in order.decisions.items() if stream.results.get(i) is decision.allow
    )
    ending, error = stream.ending(asks, problem=problem)
    if ending is Ending.FINISHED and delivered != set(order.decisions):
        # A gate that broke lets the agent go on without its answer, and end as if all were well.
        ending, error = Ending.FAILED, "The human's answer did not reach the agent."
    return RunResult(
        ending=ending,
        asks=asks,
        deferred=stream.deferred,
        delivered=delivered,
        error=storable_text(error),
        text=stream.text,
        usage=stream.usage(cost_before=order.cost_before),
        model=stream.model,
        exit_code=exit_code,
        resets_at=stream.rejected_until or (resets_at if ending is Ending.LIMIT else None),
    )
