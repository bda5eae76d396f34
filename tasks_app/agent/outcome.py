"""What a run came to: its stream, its notes and its order, in one result."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tasks_app.agent.approvals import approval_of
from tasks_app.agent.ask_spool import spooled_asks
from tasks_app.agent.port import Decision, Ending, RunOrder, RunResult
from tasks_app.agent.proxy import RunMeter
from tasks_app.agent.stream import Stream
from tasks_app.core.storable import storable_text
from tasks_app.core.types import Ask
from tasks_app.sandbox import killed_by

#: Exit codes of a program that found nothing to go on with; it was not killed, and could be started.
_ENDS_BY_ITSELF = (0, 1)


def open_asks(
    stream: Stream, decided: Collection[str], *, may_ask: bool, workspace: Path, home: Path
) -> tuple[Ask, ...]:
    """What a human has to answer or decide now, in the order asked.

    Of calls that want an approval each is put alone: made beside others that wait as well it is not asked
    about, since the others have vanished from the session, and what was made first must not come last.
    """
    asks = (*stream.open_asks(decided), *spooled_asks(home)) if may_ask else ()
    call = stream.waiting_call
    if asks or call is None or stream.deferred in decided or stream.vanished:
        return asks
    planned = stream.calls.get(stream.deferred, {}).get("plan")
    text = planned if isinstance(planned, str) else ""
    return (approval_of(stream.deferred, *call, workspace=workspace, home=home, planned=text),)


def _delivered(stream: Stream, call: str, decision: Decision) -> bool:
    """An approved call that fails was made all the same; one that the gate could not judge was not."""
    good = stream.results.get(call)
    if decision.for_input is not None:
        return good is not None and call not in stream.unjudged
    return good is decision.allow


def run_result(
    stream: Stream,
    order: RunOrder,
    *,
    problem: str,
    exit_code: int | None,
    meter: RunMeter | None = None,
) -> RunResult:
    """`problem` is what went wrong outside the stream, empty if nothing did.

    What `meter` counted is taken for the run's usage: processes in the sandbox can write to the stream. It
    also knows when a limit resets of which the stream tells nothing.
    """
    asks = open_asks(
        stream,
        order.decisions,
        may_ask=order.may_ask,
        workspace=order.places.workspace,
        home=order.places.home,
    )
    delivered = frozenset(i for i, decision in order.decisions.items() if _delivered(stream, i, decision))
    ending, error = stream.ending(asks, problem=problem)
    if ending is Ending.FAILED and not stream.failed and (name := killed_by(exit_code)):
        ending, error = Ending.KILLED, f"The agent's process was ended from outside by {name}."
    if ending is Ending.ASKED and not asks and stream.deferred in order.decisions:
        ending, error = Ending.FAILED, "The gate did not find what a human had decided."
    if ending is Ending.FINISHED and delivered != set(order.decisions):
        # A gate that broke lets the agent go on without its answer, and end as if all were well.
        ending, error = Ending.FAILED, "The human's answer did not reach the agent."
    if order.resume and ending is Ending.FAILED and stream.is_silent and exit_code in _ENDS_BY_ITSELF:
        ending = Ending.LOST
    said = stream.usage(cost_before=order.cost_before)
    return RunResult(
        ending=ending,
        asks=asks,
        deferred=stream.deferred,
        delivered=delivered,
        error=storable_text(error),
        text=stream.text,
        usage=said if meter is None else meter.usage,
        metered=meter is not None,
        reported_cost_usd=said.cost_usd if meter is not None and stream.result else None,
        model=(meter and meter.model) or stream.model,
        exit_code=exit_code,
        resets_at=stream.rejected_until or (meter.resets_at if meter and ending is Ending.LIMIT else None),
    )
