"""The limits of one run, and its usage so far, counted from its requests and responses."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial

from tasks_app.agent.notices import MISSING_ANSWER
from tasks_app.agent.port import DollarsLeft
from tasks_app.agent.proxy.prices import has_price, highest_cost, likely_cost, usage_of
from tasks_app.agent.proxy.readers import RequestReader, ResponseReader
from tasks_app.core.amounts import dollars
from tasks_app.core.types import Usage, main_model

#: Names of model families. Claude Code chooses the model of the family.
FAMILIES = ("fable", "haiku", "opus", "sonnet")
#: The family that Claude Code uses for its own requests, such as titles.
SMALL = "haiku"
#: The same session says a little more when it goes on: that a request was refused, and why.
LATER = 1.1
#: Values that leave the choice to Claude Code.
UNNAMED = ("", "best", "default", "inherit")
_EXTENSION = re.compile(r"\[.*\]$")
#: `claude-haiku-4-5`, `claude-3-5-haiku`, also as cloud providers write it.
_FAMILY_OF_MODEL = re.compile(
    r"([a-z]+[./])*claude-([0-9]+[-.])*(?P<family>[a-z]+)([-.][0-9]+)*(@[0-9]+|-v[0-9]+(:[0-9]+)?)?"
)
_DATE = re.compile(r"-([0-9]{8}|latest)$")


class Refused(Exception):
    """The request is not sent on. `kind` is an error type of the Messages API."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class RunLimits:
    """Limits of a run. `model` is the step's setting, "" for any model.

    `max_cost_usd` is what is left for the run, None for no limit. Without `reaches_out` requests that make
    the API itself fetch something are refused.
    """

    model: str = ""
    max_cost_usd: float | None = None
    reaches_out: bool = True

    @property
    def families(self) -> tuple[str, ...]:
        """The families that the step's setting stands for; none if it names one model."""
        name = _EXTENSION.sub("", self.model.lower())
        if name == "opusplan":
            return ("opus", "sonnet")
        return (name,) if name in FAMILIES else ()

    def allows(self, model: str) -> bool:
        if self.model.lower() in UNNAMED or _base_name(model) == _base_name(self.model):
            return True
        named = _FAMILY_OF_MODEL.fullmatch(_base_name(model))
        return named is not None and named["family"] in (*self.families, SMALL)


def _base_name(model: str) -> str:
    return _DATE.sub("", _EXTENSION.sub("", model.lower()))


@dataclass
class Exchange:
    """One open request, as the meter counts it."""

    model: str
    body_bytes: int
    reserved: float
    response: ResponseReader | None = None
    free: bool = False
    #: Whether the model may have worked on it, so that it counts even without a response.
    sent: bool = False

    @property
    def model_used(self) -> str:
        """The model that answered: the API itself may take another one than the request names.

        A gateway's name for it that has no price is ignored.
        """
        answered = self.response.model if self.response else ""
        is_other = has_price(answered) and _base_name(answered) != _base_name(self.model)
        return answered if is_other else self.model

    @property
    def usage(self) -> Usage:
        """Usage so far according to the response, estimated if the response was cut."""
        counted = self._counted
        return replace(counted, cost_usd=0.0) if self.free else counted

    @property
    def _counted(self) -> Usage:
        if self.response is None:
            estimate = {"input_tokens": self.body_bytes // 4} if self.sent else {}
            return usage_of(self.model, estimate)
        usage = dict(self.response.usage or {"input_tokens": self.body_bytes // 4})
        if not self.response.complete:
            output = usage.get("output_tokens")
            usage["output_tokens"] = max(output if type(output) is int else 0, self.response.received_tokens)
        return usage_of(self.model_used, usage)


@dataclass
class RunMeter:
    """Counts and limits of one run. Its methods may be called from any thread."""

    limits: RunLimits = field(default_factory=RunLimits)
    #: Whether a script plays the model, which costs nothing.
    free: bool = False
    resets_at: datetime | None = None
    refused_models: set[str] = field(default_factory=set)
    #: Dollars that the budgets of the month, and the task's soft limit, allow for the whole run, None for no
    #: limit; they may change.
    budget_usd: float | None = None
    soft_limit_usd: float | None = None
    #: Whether a request was refused because one of these is spent.
    over_budget: bool = False
    #: The dollars that the last request needed, if it was refused because a budget of the month leaves less.
    needed_usd: float | None = None
    #: Names of the budgets of the month that the run spends from, and the meters of all runs of this process.
    budgets: frozenset[str] = frozenset()
    all_meters: Callable[[], Iterable[RunMeter]] = tuple
    #: What other runs with the same budgets had cost when `budget_usd` was read.
    _others_before: list[tuple[RunMeter, float]] = field(default_factory=list)
    #: The session of the run, and the calls whose results its first request must hold.
    session_id: str = ""
    awaited: set[str] = field(default_factory=set)
    #: Those whose results it did not hold.
    unanswered: set[str] = field(default_factory=set)
    _by_model: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    _open: dict[int, Exchange] = field(default_factory=dict)
    #: The last request of each model that was answered to its end. The next one repeats most of it.
    _last: dict[str, Exchange] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def by_model(self) -> dict[str, Usage]:
        """The usage so far by model, open requests included."""
        with self._lock:
            by_model = defaultdict(Usage, self._by_model)
            for exchange in self._open.values():
                if (usage := exchange.usage) != Usage():
                    by_model[exchange.model_used] += usage
            return dict(by_model)

    @property
    def usage(self) -> Usage:
        return sum(self.by_model.values(), Usage())

    @property
    def model(self) -> str:
        """The model that cost most; empty if none was used."""
        return main_model(self.by_model)

    @property
    def used_up(self) -> bool:
        """Whether the run has reached its cost limit."""
        limit = self.limits.max_cost_usd
        return limit is not None and self.usage.cost_usd >= limit

    def follow_budgets(self, left: DollarsLeft, *, used: float = 0.0) -> None:
        """Allow `used` dollars and those that the database says are left now.

        What other runs cost from now on is subtracted from what is left of the budgets.
        """
        self._others_before = [(other, other.usage.cost_usd) for other in self._others()]
        self.budget_usd = None if left.of_budgets is None else used + left.of_budgets
        self.soft_limit_usd = None if left.of_soft_limit is None else used + left.of_soft_limit

    def admit(self, request: RequestReader) -> Exchange | None:
        """Begin to count a request. Return None if it must wait until others have ended. Raises Refused.

        Several requests at once must not spend the same dollars, nor may other runs with the same
        budget: each except the first must fit into what the others leave over, even if they cost as much as
        they can. The first one is admitted while any dollars are left, of the budgets as many as it is likely
        to cost. It is cut at the run's limit (`check_run_limit`), but not at the soft limit or a budget: what
        has begun there would be paid for and lost. It is only called by the proxy's thread.
        """
        self._check_request(request)
        models = (request.model, *request.more_models)
        may_cost = max(
            highest_cost(model, body_bytes=request.size, max_tokens=request.max_tokens) for model in models
        )
        self.check_run_limit()
        self._check_budget()
        if self.soft_limit_usd is not None and self.usage.cost_usd >= self.soft_limit_usd:
            self.over_budget = True
            sentence = "The task's soft limit is reached. The task goes on once it may spend more."
            raise Refused(402, "billing_error", sentence)
        reserved = self.reserved
        for limit in (self.limits.max_cost_usd, self.soft_limit_usd):
            if limit is not None and reserved and self.usage.cost_usd + reserved + may_cost > limit:
                return None
        if self.budget_usd is not None:
            reserved += sum(other.reserved for other in self._others())
            if reserved and self._spent_of_budget() + reserved + may_cost > self.budget_usd:
                return None
            self._check_likely_cost(request, models)
        exchange = Exchange(
            request.model, request.size, 0.0 if self.free else may_cost, free=self.free, sent=True
        )
        with self._lock:
            self._open[id(exchange)] = exchange
        return exchange

    @property
    def reserved(self) -> float:
        """The dollars that open requests may cost beyond what they have used so far."""
        with self._lock:
            return sum(max(one.reserved - one.usage.cost_usd, 0) for one in self._open.values())

    def _others(self) -> list[RunMeter]:
        return [one for one in self.all_meters() if one is not self and one.budgets & self.budgets]

    def _spent_of_budget(self) -> float:
        """Return what the run has cost, and what others with the same budget have cost since it was read."""
        before = {id(other): cost for other, cost in self._others_before}
        others = {id(other): other for other in (*self._others(), *(one for one, _ in self._others_before))}
        grown = (max(other.usage.cost_usd - before.get(key, 0), 0) for key, other in others.items())
        return self.usage.cost_usd + sum(grown)

    def check_answers(
        self, request: RequestReader, *, session_id: str, by_subagent: bool, asks_model: bool = True
    ) -> None:
        """Refuse the agent's first request if it lacks the result of an answered call (R1).

        Requests of sub-agents, of other sessions, those that only count tokens, and those without tools of
        the agent, such as for titles, do not count. One that names no session counts if it holds such a call.
        """
        if not self.awaited or by_subagent or not asks_model or not request.offers_tools:
            return
        if not (session_id == self.session_id or (not session_id and request.made)):
            return
        self.unanswered = self.awaited - request.answered
        if self.unanswered:
            raise Refused(403, "permission_error", MISSING_ANSWER)
        self.awaited = set()

    def settle(self, exchange: Exchange) -> None:
        """Add the usage of a request that has ended. Does nothing if it was added already."""
        with self._lock:
            if self._open.pop(id(exchange), None) is None:
                return
            if exchange.response is not None and exchange.response.complete:
                self._last[exchange.model] = exchange
            usage = exchange.usage
            if usage != Usage():
                self._by_model[exchange.model_used] += usage

    def note_limit(self, headers: Mapping[str, str]) -> None:
        """Store when the limit resets, according to the headers of a 429."""
        self.resets_at = reset_time(headers, now=datetime.now(UTC))

    def _check_request(self, request: RequestReader) -> None:
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

    def _check_likely_cost(self, request: RequestReader, models: Iterable[str]) -> None:
        """Refuse a request for which a budget of the month leaves too little: it would be cut for nothing.

        What it needs is stored without what the provider has in its cache: until there is more to spend, the
        cache forgets it.
        """
        now, later = 0.0, 0.0
        for model in models:
            cost = partial(likely_cost, model, body_bytes=request.size, max_tokens=request.max_tokens)
            later = max(later, cost())
            if last := self._last.get(model):
                read = last.usage
                cached = read.input_tokens + read.cache_write_tokens + read.cache_read_tokens
                now = max(now, cost(cached_tokens=cached, cached_bytes=last.body_bytes))
            else:
                now = max(now, cost())
        self.needed_usd = None
        if self.budget_usd is not None and self._spent_of_budget() + now > self.budget_usd:
            self.over_budget, self.needed_usd = True, max(now, later) * LATER
            sentence = f"This request needs about {dollars(self.needed_usd)}, which a budget for this month"
            raise Refused(402, "billing_error", f"{sentence} does not leave. The task goes on once it does.")

    def check_run_limit(self) -> None:
        """Raise Refused if the run's limit is spent."""
        limit = self.limits.max_cost_usd
        if limit is not None and self.usage.cost_usd >= limit:
            sentence = (
                f"This run has cost the {dollars(limit)} that were left for it. Raise limits.maxCostUsd."
            )
            raise Refused(402, "billing_error", sentence)

    def _check_budget(self) -> None:
        if self.budget_usd is not None and self._spent_of_budget() >= self.budget_usd:
            self.over_budget = True
            sentence = "A budget for this month is spent. The task goes on once it may spend more."
            raise Refused(402, "billing_error", sentence)


#: Maximum wait for a limit, whatever the response says.
LONGEST = timedelta(days=30)
SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
RESET = re.compile(r"anthropic-ratelimit-.+-reset")


def reset_time(headers: Mapping[str, str], *, now: datetime) -> datetime | None:
    """Return the latest time that a 429 names, from `now` to `LONGEST` later, or None if it names no time.

    That is `retry-after`, or the reset of an allowance of which nothing remains. Other values are ignored.
    `now` is in UTC, and so is the result.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    found = [_parse_retry_after(lower.get("retry-after", ""), now)]
    for name, value in lower.items():
        if RESET.fullmatch(name) and lower.get(name.removesuffix("reset") + "remaining") == "0":
            with suppress(ValueError, OverflowError):
                found.append(_in_utc(datetime.fromisoformat(value)))
    times = [time for time in found if time is not None]
    return min(max(*times, now), now + LONGEST) if times else None


def _parse_retry_after(value: str, now: datetime) -> datetime | None:
    if SECONDS.fullmatch(value):
        return now + timedelta(seconds=min(float(value), LONGEST.total_seconds()))
    try:
        return _in_utc(parsedate_to_datetime(value))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _in_utc(time: datetime) -> datetime:
    if time.tzinfo:
        return time.astimezone(UTC)
    return time.replace(tzinfo=UTC)
