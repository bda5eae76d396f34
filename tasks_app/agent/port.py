"""The port of an agent: its orders, what it reports, and how it ends.

`tasks_app.agent.claude` is the real agent, `tests.fake_agent` a quick one for tests. The same conformance
suite runs on both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from tasks_app.agent.leftover_processes import Claim
from tasks_app.agent.transcript_port import TranscriptStore
from tasks_app.core.errors import BadInput
from tasks_app.core.types import Ask, KnownDecision, Network, Usage


@dataclass(frozen=True)
class CallPermission:
    """The gate's answer when it sees a deferred tool call again.

    With `allow` the tool runs, with `updated_input` instead of the agent's input if given. Otherwise the
    agent is told `reason`. An approval applies to `for_input` only. `context` is added to the tool's result.
    """

    allow: bool
    updated_input: Mapping[str, Any] | None = None
    reason: str = ""
    for_input: Mapping[str, Any] | None = None
    context: str = ""


@dataclass(frozen=True)
class RunPaths:
    """The folders of one run, and the workspace's lock file.

    The agent can only read `answers`, `run` and `readable`.
    """

    workspace: Path
    home: Path
    answers: Path
    run: Path
    lock: Path
    readable: tuple[Path, ...] = ()


@dataclass(frozen=True)
class HaltingTools:
    """The tools for halting that a session has: `ask` for `AskUserQuestion`, `plan` for `ExitPlanMode`.

    They stay the same for the whole session. If tools change, the model must read everything again, because a
    provider's prompt cache matches from the first byte on, and tools come first.
    """

    ask: bool
    plan: bool


@dataclass(frozen=True)
class DollarsLeft:
    """What a run may still cost, None for no limit.

    Other runs spend what is left of the month's budgets, too; what is left of its soft limit only the task.
    """

    of_budgets: float | None = None
    of_soft_limit: float | None = None


@dataclass(frozen=True)
class RunOrder:
    """The order for one agent process: a new session with a prompt, or an earlier session to resume.

    With `resume` and no prompt the session continues at its deferred tool call, for which `permissions`
    (by tool_use_id) holds the permission. `answered` are further calls whose results are in the session,
    but may not have been read. `cost_before` is the session's cost so far: the agent reports totals.
    `allow_write` are the globs that the step may write (None: anywhere), `allowed_tools` its permissions
    (None: every tool of the agent). `max_cost_usd` limits this run, and so does `dollars_left` as of its
    beginning; `budgets` names the budgets of the month. `network` is what its processes may reach.
    `timeout` is in seconds. `ask_before` are patterns of tool calls that a human must approve first. With
    `planning` the agent may only read, until a human approves its plan. `halting` are the tools that the
    session began with (None: it begins now). `threads` are the numbers of the threads that it may reply
    to. `decisions` are the project's decisions that hold for the step; the agent can search them in its
    shell. `claim` is the claim of the lease for which it runs. `variables` are added to its environment.
    `traceparent` names the span of the run for traces that its processes make (W3C Trace Context).
    """

    session_id: str
    paths: RunPaths
    prompt: str | None
    resume: bool = False
    permissions: Mapping[str, CallPermission] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    may_ask: bool = True
    ask_before: tuple[str, ...] = ()
    planning: bool = False
    halting: HaltingTools | None = None
    step: str = ""
    allow_write: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    model: str = ""
    cost_before: float = 0.0
    max_turns: int | None = None
    max_cost_usd: float | None = None
    dollars_left: DollarsLeft = DollarsLeft()
    budgets: tuple[str, ...] = ()
    timeout: float = 3600.0
    network: Network = "full"
    threads: tuple[int, ...] = ()
    decisions: tuple[KnownDecision, ...] = ()
    claim: Claim = field(default_factory=Claim)
    variables: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""

    @property
    def tools_for_halting(self) -> HaltingTools:
        return self.halting or HaltingTools(ask=self.may_ask, plan=self.planning)

    @property
    def asks_no_more(self) -> bool:
        """Whether the agent has a tool for asking, but nobody can be asked any more."""
        return self.tools_for_halting.ask and not self.may_ask

    @property
    def may_wait(self) -> bool:
        """Whether the session may have to wait for a human."""
        return self.tools_for_halting.ask or self.tools_for_halting.plan or bool(self.ask_before)


@dataclass(frozen=True)
class AgentEvent:
    """One event of the agent; `kind` is a value of `EventKind`, `raw` the message as it was received."""

    kind: str
    payload: dict[str, Any]
    at: datetime
    raw: Any = None


#: The error of a run that ended with `Ending.BUDGET`.
BUDGET_SPENT = "The run stopped: what the task may cost for now is spent."


class Ending(StrEnum):
    FINISHED = "finished"
    ASKED = "asked"
    FAILED = "failed"
    LIMIT = "limit"
    BUDGET = "budget"  # a budget for the month or the soft limit was spent during the run
    STOPPED = "stopped"
    LOST = "lost"  # the session could not be resumed
    REFUSED = "refused"  # the model refused to go on
    TOO_LONG = "too_long"  # the session no longer fits into the model's context
    UNDELIVERED = "undelivered"  # the first request to the model lacked an answer
    KILLED = "killed"  # a signal from outside: the kernel ran out of memory, or an operator sent it


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    `asks` are the unanswered questions in the order asked. `deferred` is the tool_use_id at which the session
    waits ("": the session needs a prompt). A run that ended with ASKED but has no asks made several calls at
    once: one of them waits, and no human is asked. `delivered` are the calls whose permission the agent
    received, `undelivered` the answered calls whose results its model did not get. `by_model` divides `usage`
    among the models that were used, if that is known. If `metered`, `usage` is what the API key proxy counted
    and `reported_cost_usd` the cost that the agent reported; otherwise `usage` is what the agent reported.
    `out_of_turns`: it took all its turns, and `reached_cost_limit` that it cost all that `max_cost_usd`
    allowed. `needed_usd` are the dollars that a budget of the month
    must leave for its next request, if it left less. `exited_at` is when the process was seen to have ended,
    if it was.
    """

    ending: Ending
    asks: tuple[Ask, ...] = ()
    deferred: str = ""
    delivered: frozenset[str] = frozenset()
    undelivered: frozenset[str] = frozenset()
    error: str = ""
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    by_model: Mapping[str, Usage] = field(default_factory=dict)
    metered: bool = False
    reported_cost_usd: float | None = None
    model: str = ""
    exit_code: int | None = None
    resets_at: datetime | None = None
    out_of_turns: bool = False
    reached_cost_limit: bool = False
    needed_usd: float | None = None
    exited_at: datetime | None = None


class Stop(Exception):
    """Raised by a recorder to end the run now; the message says why.

    The agent sets `partial` to the result so far before it passes the error on.
    """

    partial: RunResult | None = None


class Recorder(TranscriptStore, Protocol):
    """Stores what a run reports. The thread that called `Agent.run` calls its methods."""

    def record(self, events: Sequence[AgentEvent]) -> None:
        """Store events. May raise Stop."""

    def record_usage(self, by_model: Mapping[str, Usage]) -> None:
        """Store the usage of each model that was counted outside the agent so far."""

    def asked(self, result: RunResult) -> None:
        """Store the questions of a run that ends now; `result` is what is known before its process is gone.

        Called at most once, when the session is stored with its deferred call, so that people need not wait
        for the process. `run` returns the whole result afterwards. May raise Stop.
        """

    def dollars_left(self) -> DollarsLeft:
        """Return the dollars that are left, beyond the recorded usage of all runs."""

    def tick(self) -> None:
        """Called about once a second during the run. May raise Stop."""


class Agent(Protocol):
    """An agent. `run` blocks until its process has ended, whatever happens."""

    @property
    def name(self) -> str: ...

    @property
    def sandboxed(self) -> bool: ...

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult: ...


def require_session_id(session_id: str) -> None:
    """Raise BadInput for anything but a UUID: it becomes part of a command line and of a path."""
    try:
        valid = str(uuid.UUID(session_id)) == session_id
    except ValueError:
        valid = False
    if not valid:
        raise BadInput(f"{session_id!r} is not a session id", where="session")
