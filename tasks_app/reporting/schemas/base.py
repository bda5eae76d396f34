"""Base classes and helpers of the JSON models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from tasks_app.core.types import Usage
from tasks_app.history.statistics import Metrics
from tasks_app.models import User

#: A time, as ISO 8601 with microseconds and the offset, as in 2026-03-01T12:00:00.000001+00:00.
DateTime = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
#: An object without a fixed schema.
Json = dict[str, Any]


class Out(BaseModel):
    """Base class of everything that the portal returns."""

    model_config = ConfigDict(frozen=True)


class UserOut(Out):
    username: str = Field(description="The name with which the user logs in.")
    name: str = Field(description="The name that people see.")

    @classmethod
    def of(cls, user: User, **more: Any) -> Self:
        return cls(username=user.get_username(), name=user.shown_name, **more)


def user_or_none(user: User | None) -> UserOut | None:
    return UserOut.of(user) if user else None


class TokensOut(Out):
    """Counts of tokens, as the model charges them."""

    input: int = Field(description="Read, neither from the cache nor written to it.")
    output: int = Field(description="Written by the model.")
    cache_write: int = Field(description="Read and written to the cache.")
    cache_read: int = Field(description="Read from the cache.")


class HasUsage(Out):
    tokens: TokensOut = Field(description="Tokens in all.")
    cost_usd: float = Field(description="US dollars.")


class UsageOut(HasUsage):
    """Tokens and dollars."""

    @classmethod
    def of(cls, usage: Usage, **more: Any) -> Self:
        return cls(**usage_fields(usage), **more)


class HasMetrics(HasUsage):
    """Usage and durations."""

    models: dict[str, UsageOut] = Field(description="The same by model.")
    seconds: float | None = Field(
        description="From the start to the end, or until now; null before the start."
    )
    working_seconds: float | None = Field(description="The same without pauses.")
    paused_seconds: float = Field(description="Waiting for people and for usage limits.")


class HasTimes(Out):
    """Creator and times."""

    created_by: UserOut | None = Field(description="Who created it; null if nobody is known.")
    created_at: DateTime = Field(description="When it was created.")
    started_at: DateTime | None = Field(description="When work on it began.")
    ended_at: DateTime | None = Field(description="When it ended.")


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the fields of HasUsage. `input` excludes what was written to or read from the cache."""
    counts: Mapping[str, Any] = asdict(usage)
    tokens = {
        name.removesuffix("_tokens"): count for name, count in counts.items() if name.endswith("_tokens")
    }
    return {"tokens": TokensOut(**tokens), "cost_usd": round(usage.cost_usd, 6)}


def metrics_fields(metrics: Metrics) -> dict[str, Any]:
    """Return the fields of HasMetrics."""
    return {
        **usage_fields(metrics.usage),
        "models": {model: UsageOut.of(usage) for model, usage in metrics.by_model.items()},
        "seconds": rounded(metrics.duration.total),
        "working_seconds": rounded(metrics.duration.working),
        "paused_seconds": rounded(metrics.duration.paused),
    }


def rounded(seconds: float | None) -> float | None:
    """Round to milliseconds."""
    return None if seconds is None else round(seconds, 3)
