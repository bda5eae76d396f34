"""The result of a run, from its stream, its ask spool and its order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tasks_app.agent.approvals import approval_of
from tasks_app.agent.gate.patterns import needs_approval
from tasks_app.agent.port import BUDGET_SPENT, CallPermission, Ending, RunOrder, RunResult
from tasks_app.agent.proxy import RunMeter
from tasks_app.agent.spools import spooled_asks
from tasks_app.agent.stream import Stream
from tasks_app.core.text import storable_text
from tasks_app.core.types import Ask
from tasks_app.sandbox import UNCHANGED, Placement, killed_by

#: Exit codes of a program that found no session to resume. It could be started, and was not killed.
_EXIT_WITHOUT_SESSION = (0, 1)


def open_asks(
    stream: Stream,
    decided: Collection[str],
    *,
    may_ask: bool,
    ask_before: Sequence[str],
    workspace: Path,
    home: Path,
    placement: Placement = UNCHANGED,
    allow_write: Sequence[str] | None = None,
) -> tuple[Ask, ...]:
    """Return what a human must answer or decide now, in the order asked.

    The agent sees the workspace under the path that `placement` says, so its calls name that path.

    A call that needs an approval is asked about only if it is the only waiting one. The session has dropped
    the others, and what was called first must not be decided last.
    """
    asks = (*stream.open_asks(decided), *spooled_asks(home)) if may_ask else ()
    call = stream.waiting_call
    if asks or call is None or stream.deferred in decided or stream.dropped_calls:
        return asks
    planned = stream.calls.get(stream.deferred, {}).get("plan")
    text = planned if isinstance(planned, str) else ""
    inside, rule = placement.inside(workspace), None
    try:
        for folder in (inside, workspace):  # only the host's path shows which files and links exist
            rule = rule or needs_approval(ask_before, *call, workspace=str(folder), cwd=str(folder))
    except ValueError:  # too long or too deep to be judged, and so a person decides
        rule = None
    return (
        approval_of(
            stream.deferred,
            *call,
            workspace=inside,
            home=home,
            on_host=workspace,
            planned=text,
            rule=rule or "",
            allow_write=allow_write,
        ),
    )


def _was_delivered(stream: Stream, call: str, permission: CallPermission) -> bool:
    """Return whether the agent received the permission.

    An approved call that failed was made all the same; a call that the gate could not judge was not made.
    """
    succeeded = stream.results.get(call)
    if permission.for_input is not None:
        return succeeded is not None and call not in stream.unjudged
    return succeeded is permission.allow


def run_result(
    stream: Stream,
    order: RunOrder,
    *,
    problem: str,
    exit_code: int | None,
    meter: RunMeter | None = None,
    placement: Placement = UNCHANGED,
) -> RunResult:
    """Return the run's result. `problem` is what went wrong outside the stream, "" if nothing did.

    The usage is what `meter` counted, because processes in the sandbox can write to the stream. The meter
    also knows when a limit resets if the stream does not tell.
    """
    asks = open_asks(
        stream,
        order.permissions,
        may_ask=order.may_ask,
        ask_before=order.ask_before,
        workspace=order.paths.workspace,
        home=order.paths.home,
        placement=placement,
        allow_write=order.allow_write,
    )
    undelivered = frozenset(meter.unanswered if meter else ())
    delivered = frozenset(
        call
        for call, permission in order.permissions.items()
        if call not in undelivered and _was_delivered(stream, call, permission)
    )
    ending, error = stream.ending(asks, problem=problem)
    could_be_killed = ending in (Ending.FAILED, Ending.LIMIT) and not stream.failed
    if could_be_killed and (name := killed_by(exit_code)):
        ending, error = Ending.KILLED, f"The agent's process was ended from outside by {name}."
    if ending is Ending.FAILED and meter is not None and meter.over_budget:
        ending, error = Ending.BUDGET, BUDGET_SPENT
    if ending is Ending.ASKED and not asks and stream.deferred in order.permissions:
        ending, error = Ending.FAILED, "The gate did not find what a human had decided."
    if ending is Ending.FINISHED and delivered != set(order.permissions):
        # With a broken gate the agent goes on without its answer and ends as if all were well.
        ending, error = Ending.FAILED, "The human's answer did not reach the agent."
    if meter is not None and ending is Ending.FINISHED and delivered and meter.awaited:
        undelivered = frozenset(meter.awaited)  # it has asked its model in a way that the proxy does not know
    if undelivered:
        ending, error = Ending.UNDELIVERED, "A human's answer was not in what the model read next."
    if order.resume and ending is Ending.FAILED and stream.is_silent and exit_code in _EXIT_WITHOUT_SESSION:
        ending = Ending.LOST
    streamed = stream.usage(cost_before=order.cost_before)
    resets_at = stream.rejected_until or (meter.resets_at if meter else None)
    return RunResult(
        ending=ending,
        asks=asks,
        deferred=stream.deferred,
        delivered=delivered - undelivered,
        undelivered=undelivered,
        error=storable_text(error),
        text=stream.text,
        usage=streamed if meter is None else meter.usage,
        by_model={} if meter is None else meter.by_model,
        metered=meter is not None,
        reported_cost_usd=streamed.cost_usd if meter and stream.result and not meter.free else None,
        model=(meter and meter.model) or stream.model,
        exit_code=exit_code,
        out_of_turns=stream.out_of_turns,
        reached_cost_limit=stream.reached_cost_limit or (meter is not None and meter.used_up),
        needed_usd=meter.needed_usd if meter is not None and ending is Ending.BUDGET else None,
        resets_at=resets_at if ending is Ending.LIMIT else None,
    )
