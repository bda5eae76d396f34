"""Base classes and helpers of the JSON models."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from tasks_app.core.types import Usage
from tasks_app.services.usage.statistics import Metrics

#: A time, as ISO 8601 with microseconds and the offset, as in 2026-03-01T12:00:00.000001+00:00.
DateTime = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
#: Seconds, to milliseconds.
Seconds = Annotated[float, AfterValidator(lambda seconds: round(seconds, 3))]
#: An object without a fixed schema.
Json = dict[str, Any]


class Out(BaseModel):
    """Base class of everything that the portal returns.

    A model is made from a row: a field is the result of `resolve_FIELD(row)`; without such a method, the
    attribute of its name, or of its `validation_alias`, which may be a path such as `project.name` (a path
    ends at None). Rows in fields become models in the same way. Fields with a default are not read.
    """

    model_config = ConfigDict(frozen=True, validate_by_name=True, validate_by_alias=False)

    @classmethod
    def from_row(cls, row: Any, /, **more: Any) -> Self:
        """Make a model from a row. `more` has fields that are not read from it."""
        return cls.model_validate({**_read(cls, row, without=more), **more})

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, value: Any) -> Any:
        return value if isinstance(value, dict | Out) else _read(cls, value)


def _read(model: type[Out], row: Any, without: Container[str] = ()) -> dict[str, Any]:
    return {name: read(row) for name, read in _readers(model).items() if name not in without}


@cache
def _readers(model: type[Out]) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that read the fields from a row."""
    readers: dict[str, Callable[[Any], Any]] = {}
    for name, field in model.model_fields.items():
        if resolver := getattr(model, f"resolve_{name}", None):
            readers[name] = resolver
        elif field.is_required():
            readers[name] = partial(_attribute, str(field.validation_alias or name).split("."))
    return readers


def _attribute(path: Sequence[str], row: Any) -> Any:
    for name in path:
        row = None if row is None else getattr(row, name)
    return row


class UserOut(Out):
    username: str = Field(description="The name with which the user logs in.")
    name: str = Field(validation_alias="shown_name", description="The name that people see.")


class TokensOut(Out):
    """Counts of tokens, as the model charges them."""

    input: int = Field(
        validation_alias="input_tokens", description="Read, neither from the cache nor written to it."
    )
    output: int = Field(validation_alias="output_tokens", description="Written by the model.")
    cache_write: int = Field(
        validation_alias="cache_write_tokens", description="Read and written to the cache."
    )
    cache_read: int = Field(validation_alias="cache_read_tokens", description="Read from the cache.")


class HasUsage(Out):
    tokens: TokensOut = Field(description="Tokens in all.")
    cost_usd: Annotated[float, AfterValidator(lambda dollars: round(dollars, 6))] = Field(
        description="US dollars."
    )


class UsageOut(HasUsage):
    """Tokens and dollars."""

    @staticmethod
    def resolve_tokens(usage: Usage) -> Usage:
        return usage


class HasMetrics(HasUsage):
    """Usage and durations."""

    models: dict[str, UsageOut] = Field(description="The same by model.")
    seconds: Seconds | None = Field(
        description="From the start to the end, or until now, without the time from an end to a resume; null "
        "before the start."
    )
    working_seconds: Seconds | None = Field(description="The same without pauses.")
    paused_seconds: Seconds = Field(
        description="Waiting for people, for usage limits, and then for a worker."
    )


class HasTimes(Out):
    """Creator and times."""

    created_by: UserOut | None = Field(description="Who created it; null if nobody is known.")
    created_at: DateTime = Field(description="When it was created.")
    started_at: DateTime | None = Field(description="When work on it began.")
    ended_at: DateTime | None = Field(description="When it ended.")


def metrics_fields(metrics: Metrics) -> dict[str, Any]:
    """Return the fields of HasMetrics."""
    return {
        **dict(UsageOut.from_row(metrics.usage)),
        "models": metrics.by_model,
        "seconds": metrics.duration.total,
        "working_seconds": metrics.duration.working,
        "paused_seconds": metrics.duration.paused,
    }
