"""The port behind which an agent works: what it is given, what it reports, how it ends.

`tasks_app.agents.claude` is the real one, `tasks_app.agents.fake` the quick one for tests; the same
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

from tasks_app.agents.shelf import Shelf
from tasks_app.errors import BadInput
from tasks_app.types import Ask, Usage


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

    @property
    def is_answer(self) -> bool:
        """Whether it hands in an answer, rather than a verdict on a call."""
        return self.allow and self.for_input is None


@dataclass(frozen=True)
class Places:
    """The folders of one run. `answers` and `run` are read-only to the agent."""

    workspace: Path
    home: Path
    answers: Path
    run: Path
    lock: Path


@dataclass(frozen=True)
class RunOrder:
    """One agent process: a new session with a prompt, or an old one taken up again.

    With `resume` and no prompt the session goes on at the tool call it was deferred at, for which
    `decisions` (by tool_use_id) holds what to do. `cost_before` is what the session had cost so far:
    the agent reports totals. `allow_write` are the globs that the step may write (None: anywhere),
    `allowed_tools` the permissions it has (None: every tool of the agent). `max_cost_usd` is what this
    run may cost. `timeout` in seconds. `ask_before` are patterns of tool calls that a human must approve
    first. With `planning` the agent may only look, until a human approves its plan.
    """

    session_id: str
    places: Places
    prompt: str | None
    resume: bool = False
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    may_ask: bool = True
    ask_before: tuple[str, ...] = ()
    planning: bool = False
    step: str = ""
    allow_write: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    model: str = ""
    cost_before: float = 0.0
    max_turns: int | None = None
    max_cost_usd: float | None = None
    timeout: float = 3600.0


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


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    `asks` are the questions that nobody has answered yet, in the order asked; `deferred` is the
    tool_use_id at which the session waits (none: it must be told by a prompt). A run that asked and has
    no asks made several calls at once, of which one waits and none was put to a human. `delivered` are
    the calls whose decision the agent was seen to get.
    """

    ending: Ending
    asks: tuple[Ask, ...] = ()
    deferred: str = ""
    delivered: frozenset[str] = frozenset()
    error: str = ""
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    exit_code: int | None = None
    resets_at: datetime | None = None


class Stop(Exception):
    """Raised by a recorder to end the run now; the message says why.

    The agent sets `partial` to what is known of the run so far before it lets the error pass.
    """

    partial: RunResult | None = None


class Recorder(Shelf, Protocol):
    """Where a run reports to. Every method is called in the thread that called `Agent.run`."""

    def record(self, events: Sequence[AgentEvent]) -> None:
        """Store what happened. May raise Stop."""

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
