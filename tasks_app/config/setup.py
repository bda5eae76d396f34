"""The key `setup`: how a new workspace is made ready before the first agent works in it (M5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from tasks_app.config.faults import fault
from tasks_app.config.fields import FileModel, InsidePath, Seconds, ShellCommand, Text, as_list, check_path
from tasks_app.core.types import JsonObject, Network, least_network

#: The time limit of a command of the setup if the file names none.
SETUP_SECONDS = 1800
MOST_ENTRIES = 50


def _one_or_more(values: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MOST_ENTRIES:
        raise fault(f"must have from 1 to {MOST_ENTRIES} entries, not {len(values)}")
    return values


def _check_cached_path(text: str) -> str:
    """Return a path in the workspace, or after `~/` in the home of the setup."""
    return f"~/{check_path(text[2:])}" if text.startswith("~/") else check_path(text)


CachedPath = Annotated[Text, AfterValidator(_check_cached_path)]
T = TypeVar("T")
OneOrMore = Annotated[
    tuple[T, ...],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    AfterValidator(_one_or_more),
]


class CacheConfig(FileModel):
    """What a setup makes and other tasks begin with."""

    key: OneOrMore[InsidePath] = Field(
        description="Files on whose content it depends, such as package-lock.json."
    )
    paths: OneOrMore[CachedPath] = Field(
        description="Folders that it keeps: of the workspace, or after ~/ of the setup's home."
    )


class SetupConfig(FileModel):
    """Commands that make a new workspace ready, such as `npm ci`."""

    run: OneOrMore[ShellCommand] = Field(
        description="Command lines for the shell; they run in order, up to the first that fails."
    )
    timeout: Seconds = Field(
        default=SETUP_SECONDS, description='Time for each command: seconds, or "90s", "15m"; default: 30m.'
    )
    network: Literal["full", "none"] | None = Field(
        default=None, description="What the commands may reach: full or none; absent: as the file's network."
    )
    cache: CacheConfig | None = Field(
        default=None, description="What other tasks with the same lock files begin with."
    )

    def within(self, *, network: Network | None, limit: Network | None) -> SetupConfig:
        """Return the setup with the network that it gets: at most `limit`; `network` is that of the file."""
        allowed = least_network(self.network or network or "full", limit or "full")
        return self.model_copy(update={"network": "full" if allowed == "full" else "none"})


def _as_setup(value: object) -> object:
    return {"run": value} if isinstance(value, str | list) else value


Setup: TypeAlias = Annotated[
    SetupConfig | None,
    BeforeValidator(_as_setup, json_schema_input_type=str | list[str] | SetupConfig | None),
]


def setup_to_json(setup: SetupConfig | None) -> JsonObject | None:
    """Return the setup in the words of `cat-herder.yaml`, for the snapshot that a task keeps."""
    return setup.model_dump(mode="json", by_alias=True) if setup else None


def setup_from_json(snapshot: Mapping[str, object]) -> SetupConfig:
    """Return what `setup_to_json` wrote."""
    return SetupConfig.model_validate(snapshot, by_alias=True, by_name=False)
