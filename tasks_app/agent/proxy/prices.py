"""Prices of the models' tokens from `prices.json`, and the cost of one response. Pure functions.

A model that is not in the table costs as much as the most expensive one, so that a cost limit is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks_app.core.types import Usage

TABLE = Path(__file__).parent / "prices.json"
MILLION = 1_000_000
#: No response can have used more tokens. Larger numbers are ignored.
MOST_TOKENS = 100_000_000
#: Tokens of an answer with a few sentences and a tool call.
SHORT_ANSWER = 500
#: What may follow a model's name in a request: a date, a cloud provider's version, an extension.
_SUFFIX = re.compile(r"(-[0-9]{8}|-latest)?(@.*|-v[0-9]+(:[0-9]+)?)?(\[.*\])?")
#: What may precede it: a cloud's region and maker, such as `us.anthropic.`, or the folder of a gateway.
_PROVIDER = re.compile(r"(?:(?!claude-)[a-z0-9_-]+[./])+(?=claude-)")


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens. `long_prompt` applies to prompts of more than `above` tokens."""

    input: float
    output: float
    cache_write_5m: float
    cache_write_1h: float
    cache_read: float
    above: int = 0
    long_prompt: Price | None = None

    def for_prompt(self, tokens: int) -> Price:
        if self.long_prompt and tokens > self.above:
            return self.long_prompt
        return self


@dataclass(frozen=True)
class _Table:
    models: Mapping[str, Price]
    highest: Price
    web_search: float
    fast_factor: float
    us_only_factor: float


def price_of(model: str) -> Price:
    """Return the price of a model by its name in a request; the highest price if the table lacks it."""
    return _known_price(model) or _price_table().highest


def has_price(model: str) -> bool:
    return _known_price(model) is not None


def _known_price(model: str) -> Price | None:
    table = _price_table()
    name = model.lower()
    if provider := _PROVIDER.match(name):
        name = name[provider.end() :]
    known = [key for key in table.models if name.startswith(key) and _SUFFIX.fullmatch(name[len(key) :])]
    return table.models[max(known, key=len)] if known else None


def usage_of(model: str, usage: Mapping[str, Any]) -> Usage:
    """Return the tokens and dollars of one response, from its `usage` object.

    The usage of an advisor, another model that worked on the request, is listed in `iterations`.
    """
    total = _usage_of_model(model, usage)
    iterations = usage.get("iterations")
    for one in iterations if isinstance(iterations, list) else []:
        if isinstance(one, dict) and str(one.get("type", "")).startswith("advisor"):
            total += _usage_of_model(str(one.get("model", "")), one)
    return total


def _usage_of_model(model: str, usage: Mapping[str, Any]) -> Usage:
    table = _price_table()
    read, write = (
        _token_count(usage, "cache_read_input_tokens"),
        _token_count(usage, "cache_creation_input_tokens"),
    )
    given, output = _token_count(usage, "input_tokens"), _token_count(usage, "output_tokens")
    price = price_of(model).for_prompt(given + read + write)
    one_hour = min(write, _token_count(_object(usage, "cache_creation"), "ephemeral_1h_input_tokens"))
    dollars = given * price.input + output * price.output + read * price.cache_read
    dollars += one_hour * price.cache_write_1h + (write - one_hour) * price.cache_write_5m
    dollars *= table.fast_factor if usage.get("speed") == "fast" else 1
    dollars *= table.us_only_factor if usage.get("inference_geo") == "us" else 1
    searches = _token_count(_object(usage, "server_tool_use"), "web_search_requests")
    return Usage(given, output, write, read, dollars / MILLION + searches * table.web_search)


def highest_cost(model: str, *, body_bytes: int, max_tokens: int) -> float:
    """Return the maximum cost of a request in dollars: all of it is cached, and `max_tokens` are returned."""
    price = price_of(model)
    price = price.long_prompt or price
    return (body_bytes / 4 * price.cache_write_1h + max_tokens * price.output) / MILLION


def likely_cost(
    model: str, *, body_bytes: int, max_tokens: int, cached_tokens: int = 0, cached_bytes: int = 0
) -> float:
    """Return what a request costs with a short answer. Of the body, `cached_bytes` are in the cache."""
    tokens = max(body_bytes - cached_bytes, 0) / 4
    price = price_of(model).for_prompt(round(tokens) + cached_tokens)
    prompt = tokens * price.cache_write_1h + cached_tokens * price.cache_read
    return (prompt + min(max_tokens, SHORT_ANSWER) * price.output) / MILLION


def _token_count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    return 0


def _object(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


@cache
def _price_table() -> _Table:
    content = json.loads(TABLE.read_text(encoding="utf-8"))
    models = {name: _parse_price(entry) for name, entry in content["models"].items()}
    highest = max(models.values(), key=lambda price: price.output)
    return _Table(models, highest, content["web_search"], content["fast_factor"], content["us_only_factor"])


def _parse_price(entry: Mapping[str, Any]) -> Price:
    plain = {name: value for name, value in entry.items() if name != "long_prompt"}
    if "long_prompt" not in entry:
        return Price(**plain)
    longer = dict(entry["long_prompt"])
    return Price(**plain, above=longer.pop("above_prompt_tokens"), long_prompt=Price(**longer))
