"""Frozen value types that packages exchange, independent of Django."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = dict[str, "Json"]

#: Where the plan of a task stands in its workspace.
PLAN_FILE = "PLAN.md"

#: What the sandbox of a step can reach: the machine's network (`full`), only the agent's model (`model`), or
#: the model without tools that fetch from the internet at the provider (`none`).
Network = Literal["none", "model", "full"]
#: From the least to the most.
NETWORKS: tuple[Network, ...] = ("none", "model", "full")

#: `call` is any other tool call, made only after its approval.
AskWay = Literal["AskUserQuestion", "command", "call", "ExitPlanMode"]
AskKind = Literal["clarification", "approval", "plan"]

#: What a human is asked about a plan, a command, and any other tool call. The call stands below it.
REVIEW_PLAN = "Review the plan"
#: What the card shows if an agent presents a plan without any text.
NO_PLAN = "(The agent wrote no plan.)"
ALLOW_COMMAND = "Allow this command?"
ALLOW_CALL = "Allow this call?"


def least_network(*networks: Network) -> Network:
    """Return the most restricted of the networks."""
    return min(networks, key=NETWORKS.index)


@dataclass(frozen=True)
class Option:
    """One choice in a question."""

    label: str
    description: str = ""
    preview: str = ""


@dataclass(frozen=True)
class AskItem:
    """One question with its choices; without choices, only free text."""

    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False


@dataclass(frozen=True)
class Evidence:
    """One piece of information for deciding about a call or a plan."""

    #: `rule`: the pattern of `askBefore` because of which a human is asked.
    kind: Literal["command", "file", "diff", "text", "markdown", "rule"]
    title: str
    text: str


@dataclass(frozen=True)
class Ask:
    """One tool call by which the agent asks a human: 1 to 4 items, answered together.

    `tool_use_id` is the call that gets the answer as its result. An approval, or a plan to review, has one
    item and the evidence to decide by. `about_goal`: the agent says that it is about the goal of the task.
    """

    tool_use_id: str
    way: AskWay
    items: tuple[AskItem, ...]
    tool_input: JsonObject = field(default_factory=dict)
    kind: AskKind = "clarification"
    evidence: tuple[Evidence, ...] = ()
    about_goal: bool = False


@dataclass(frozen=True)
class KnownDecision:
    """A decision of the project as agents read it.

    `where` is where it holds; empty: everywhere. `question` is what it answers, if it was asked. `doubt` is
    why an agent said that it does not fit, if no human has looked at that since. `kept` says that an agent of
    the reader's task said so, and who kept the decision since. `replaces` is the label of the decision in
    whose place it holds. `exception_to` is the label of the one to which it is an exception, and `exceptions`
    are those to this one, with where they hold.
    """

    number: int
    statement: str
    reason: str = ""
    decided_by: str = ""
    day: str = ""
    where: str = ""
    question: str = ""
    doubt: str = ""
    kept: str = ""
    replaces: str = ""
    exception_to: str = ""
    exceptions: str = ""

    @property
    def label(self) -> str:
        """The citation, such as D-17."""
        return f"D-{self.number}"


@dataclass(frozen=True)
class Usage:
    """Billed usage of the model: token counts and US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cost_usd + other.cost_usd,
        )

    @property
    def read_tokens(self) -> int:
        """All tokens that the model read, including cached ones, which are charged differently."""
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens

    @property
    def any(self) -> bool:
        return bool(self.read_tokens or self.output_tokens)


def main_model(by_model: Mapping[str, Usage]) -> str:
    """Return the model that cost most; empty if none was used."""
    if by_model:
        return max(by_model, key=lambda name: by_model[name].cost_usd)
    return ""
