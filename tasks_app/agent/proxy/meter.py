"""What one run may use of the model, and what it has used: counted where its requests pass."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tasks_app.agent.proxy.prices import at_most, usage_of
from tasks_app.agent.proxy.request_reader import RequestReader
from tasks_app.agent.proxy.response_reader import ResponseReader
from tasks_app.agent.resets import reset_time
from tasks_app.core.types import Usage

#: The words for a model that Claude Code turns into one of these families.
FAMILIES = ("fable", "haiku", "opus", "sonnet")
#: Claude Code uses a small model for requests of its own, such as titles.
SMALL = "haiku"
#: What leaves the choice to Claude Code.
UNNAMED = ("", "best", "default", "inherit")
_EXTENSION = re.compile(r"\[.*\]$")
_DATE = re.compile(r"-([0-9]{8}|latest)$")


class Refused(Exception):
    """A request that is not sent on. `kind` is a type of error of the Messages API."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class RunLimits:
    """What a run may use. `model` is as the step names it, empty for any.

    `max_cost_usd` is what is left for the run, None for no limit. Without `reaches_out` requests that make
    the API itself fetch something are refused.
    """

    model: str = ""
    max_cost_usd: float | None = None
    reaches_out: bool = True

    @property
    def families(self) -> tuple[str, ...]:
        """The families that the step's own word stands for; none for the name of one model."""
        named = _EXTENSION.sub("", self.model.lower())
        if named == "opusplan":
            return ("opus", "sonnet")
        return (named,) if named in FAMILIES else ()

    def allows(self, model: str) -> bool:
        if self.model.lower() in UNNAMED or _plain(model) == _plain(self.model):
            return True
        parts = model.lower().split("-")
        return any(family in parts for family in (*self.families, SMALL))


def _plain(model: str) -> str:
    return _DATE.sub("", _EXTENSION.sub("", model.lower()))


@dataclass
class Exchange:
    """One request under way, as the meter counts it."""

    model: str
    body_bytes: int
    reserved: float
    response: ResponseReader | None = None
    #: Whether the model may have worked on it, so that it counts although no response came.
    sent: bool = False

    @property
    def usage(self) -> Usage:
        """What it has used so far, by the response, or estimated where that was cut."""
        if self.response is None:
            estimate = {"input_tokens": self.body_bytes // 4} if self.sent else {}
            return usage_of(self.model, estimate)
        said = dict(self.response.usage or {"input_tokens": self.body_bytes // 4})
        if not self.response.complete:
            output = said.get("output_tokens")
            said["output_tokens"] = max(output if type(output) is int else 0, self.response.received_tokens)
        return usage_of(self.model, said)


@dataclass
class RunMeter:
    """Counts and limits of one run. Its methods may be called from any thread."""

    limits: RunLimits = field(default_factory=RunLimits)
    resets_at: datetime | None = None
    refused_models: set[str] = field(default_factory=set)
    _by_model: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    _under_way: dict[int, Exchange] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def by_model(self) -> dict[str, Usage]:
        """What was used so far, requests under way included."""
        with self._lock:
            return self._counted()

    @property
    def usage(self) -> Usage:
        return sum(self.by_model.values(), Usage())

    @property
    def model(self) -> str:
        """The model that most of the dollars went to; empty if none was used."""
        counted = self.by_model
        return max(counted, key=lambda name: counted[name].cost_usd) if counted else ""

    @property
    def used_up(self) -> bool:
        """Whether the run has cost what it may."""
        limit = self.limits.max_cost_usd
        return limit is not None and self.usage.cost_usd >= limit

    def admit(self, request: RequestReader) -> Exchange | None:
        """Begin to count a request, None if it must wait until others have ended.

        Several requests at once cannot spend the same dollars: each but the first must fit beside what
        the others may come to. Raises Refused.
        """
        self._check(request)
        may_cost = at_most(request.model, body_bytes=request.size, max_tokens=request.max_tokens)
        with self._lock:
            limit = self.limits.max_cost_usd
            if limit is not None:
                spent = sum(self._counted().values(), Usage()).cost_usd
                if spent >= limit:
                    raise Refused(402, "billing_error", _used_up(limit))
                held = sum(one.reserved for one in self._under_way.values())
                if held and spent + held + may_cost > limit:
                    return None
            exchange = Exchange(request.model, request.size, may_cost, sent=True)
            self._under_way[id(exchange)] = exchange
            return exchange

    def settle(self, exchange: Exchange) -> None:
        """A request has ended: what it used counts for good. Settled already: nothing happens."""
        with self._lock:
            if self._under_way.pop(id(exchange), None) is None:
                return
            usage = exchange.usage
            if usage != Usage():
                self._by_model[exchange.model] += usage

    def note_limit(self, headers: Mapping[str, str]) -> None:
        """Keep when the limit resets that a 429 tells of."""
        self.resets_at = reset_time(headers, now=datetime.now(UTC))

    def _check(self, request: RequestReader) -> None:
        for model in (request.model, *sorted(request.more_models)):
            if not self.limits.allows(model):
                self.refused_models.add(model[:100])
                raise Refused(
                    403,
                    "permission_error",
                    f"This step may use the model {self.limits.model} and the small {SMALL} models, but the"
                    f" request names {model[:100] or 'none'}. `model` in cat-herder.yaml sets it.",
                )
        if request.reaches_out and not self.limits.reaches_out:
            named = ", ".join(sorted(request.reaches_out))
            raise Refused(
                403,
                "permission_error",
                f"This step has no network (network: none), so it may not use {named[:200]}.",
            )

    def _counted(self) -> dict[str, Usage]:
        counted = defaultdict(Usage, self._by_model)
        for exchange in self._under_way.values():
            if (usage := exchange.usage) != Usage():
                counted[exchange.model] += usage
        return dict(counted)


def _used_up(limit: float) -> str:
    return f"This run has cost the ${limit:.2f} that were left for it (limits.maxCostUsd)."
