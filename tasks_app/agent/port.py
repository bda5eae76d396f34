"""The port behind which an agent works: what it is given, what it reports, how it ends.

`tasks_app.agent.claude` is the real one, `tasks_app.agent.fake` the quick one for tests; the same
conformance suite runs on both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from tasks_app.agent.orphaned_processes import Claim
from tasks_app.agent.transcript_store import TranscriptStore
from tasks_app.core.errors import BadInput
from tasks_app.core.types import Ask, Network, Usage


@dataclass(frozen=True)
class Decision:
    """What the gate says when the agent's deferred tool call is looked at again.

    `allow` runs the tool with `updated_input` in place of what the agent wrote; `deny` tells it `reason`.
    An approval is `for_input` and no other. `context` is told beside the tool's own result.
    """

    allow: bool
    updated_input: Mapping[str, Any] | None = None
    reason: str = ""
    for_input: Mapping[str, Any] | None = None
    context: str = ""


@dataclass(frozen=True)
class Places:
    """The folders of one run. `answers` and `run` are read-only to the agent."""

    workspace: Path
    home: Path
    answers: Path
    run: Path
    lock: Path


@dataclass(frozen=True)
class HaltingTools:
    """Which of its tools for halting a session has: `AskUserQuestion`, and `ExitPlanMode`.

    Decided when the session begins and kept to its end, because tools that change make the model read
    everything anew: a provider's prompt cache matches from the first byte on, and tools come first.
    """

    ask: bool
    plan: bool


@dataclass(frozen=True)
class RunOrder:
    """One agent process: a new session with a prompt, or an old one taken up again.

    With `resume` and no prompt the session goes on at the tool call it was deferred at, for which
    `decisions` (by tool_use_id) holds what to do. `cost_before` is what the session had cost so far: the
    agent reports totals. `allow_write` are the globs that the step may write (None: anywhere),
    `allowed_tools` the permissions it has (None: every tool of the agent). `max_cost_usd` is what this
    run may cost. `network` is what its processes may reach. `timeout` in seconds. `ask_before` are
    patterns of tool calls that a human must approve first. With `planning` the agent may only look, until
    a human approves its plan. `halting` says which tools the session began with (None: it begins now).
    `claim` is the holder of the task for whom it runs.
    """

    session_id: str
    places: Places
    prompt: str | None
    resume: bool = False
    decisions: Mapping[str, Decision] = field(default_factory=dict)
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
    timeout: float = 3600.0
    network: Network = "full"
    claim: Claim = field(default_factory=Claim)

    @property
    def tools_for_halting(self) -> HaltingTools:
        return self.halting or HaltingTools(ask=self.may_ask, plan=self.planning)

    @property
    def asks_no_more(self) -> bool:
        """Whether the agent has a tool for asking, but there is nobody to ask any more."""
        return self.tools_for_halting.ask and not self.may_ask

    @property
    def may_wait(self) -> bool:
        """Whether the session may come to wait for a human."""
        return self.tools_for_halting.ask or self.tools_for_halting.plan or bool(self.ask_before)


@dataclass(frozen=True)
class AgentEvent:
    """One thing the agent did; `kind` is a value of `EventKind`, `raw` the message as it came."""

    kind: str
    payload: dict[str, Any]
    at: datetime
    raw: Any = None


class Ending(StrEnum):
    FINISHED = "finished"
    ASKED = "asked"
    FAILED = "failed"
    LIMIT = "limit"
    STOPPED = "stopped"
    LOST = "lost"  # the session that it was to go on in could not be taken up
    KILLED = "killed"  # by a signal from outside: the kernel without memory, or an operator


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    `asks` are the questions that nobody has answered yet, in the order asked; `deferred` is the
    tool_use_id at which the session waits (none: it must be told by a prompt). A run that asked and has
    no asks made several calls at once, of which one waits and none was put to a human. `delivered` are
    the calls whose decision the agent was seen to get. `usage` is what the API key proxy counted if
    `metered`, and then `reported_cost_usd` is what the agent itself says of this run; else it is the agent's.
    """

    ending: Ending
    asks: tuple[Ask, ...] = ()
    deferred: str = ""
    delivered: frozenset[str] = frozenset()
    error: str = ""
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    metered: bool = False
    reported_cost_usd: float | None = None
    model: str = ""
    exit_code: int | None = None
    resets_at: datetime | None = None


class Stop(Exception):
    """Raised by a recorder to end the run now; the message says why.

    The agent sets `partial` to what is known of the run so far before it lets the error pass.
    """

    partial: RunResult | None = None


class Recorder(TranscriptStore, Protocol):
    """Where a run reports to. Every method is called in the thread that called `Agent.run`."""

    def record(self, events: Sequence[AgentEvent]) -> None:
        """Store what happened. May raise Stop."""

    def record_usage(self, usage: Usage, model: str) -> None:
        """Store what was counted of the run so far, outside the agent, and the model it used most."""

    def tick(self) -> None:
        """Called about once a second while the run goes on. May raise Stop."""


class Agent(Protocol):
    """Something that can do a run. Blocks until its process has ended, whatever happens."""

    @property
    def name(self) -> str: ...

    @property
    def sandboxed(self) -> bool: ...

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult: ...


def require_session_id(session_id: str) -> None:
    """Raises BadInput for anything but a UUID: it becomes part of a command line and of a path."""
    try:
        valid = str(uuid.UUID(session_id)) == session_id
    except ValueError:
        valid = False
    if not valid:
        raise BadInput(f"{session_id!r} is not a session id", where="session")
