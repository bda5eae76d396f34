"""The installation's settings: read from environment variables, once, here, and refused loudly."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import dj_database_url
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

BASE_DIR = Path(__file__).resolve().parent.parent


class BadSetting(Exception):
    """A variable has a value that cannot be used; the message names it."""


class Bind(BaseModel):
    host: str
    port: int = Field(ge=0, le=65535)


def _bind(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:8000")
    return Bind(host=host.strip("[]"), port=int(port))


def _database(value: str) -> str:
    if urlsplit(value).scheme not in {"postgres", "postgresql", "sqlite"}:
        raise ValueError("must be a postgresql:// or sqlite:// address")
    try:
        dj_database_url.parse(value)
    except Exception as error:
        raise ValueError(f"is not a database address ({error})") from error
    return value


def _redis(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must be a redis:// address")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"is not a Redis address ({error})") from error
    return value


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    return value.rstrip("/")


def _secret(value: str) -> str:
    if len(value) < 32:
        raise ValueError("must have at least 32 characters")
    return value


WebAddress = Annotated[str, BeforeValidator(_web_address)]


class Environment(BaseModel):
    """Every variable that the portal reads, with its default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    data_dir: Path = Field(BASE_DIR / "data", alias="CATHERDER_DATA_DIR")
    bind: Annotated[Bind, BeforeValidator(_bind)] = Field(
        Bind(host="127.0.0.1", port=8000), alias="CATHERDER_BIND"
    )
    url: WebAddress | None = Field(None, alias="CATHERDER_URL")
    admin_user: str = Field("admin", alias="CATHERDER_ADMIN_USER", min_length=1, max_length=150)
    admin_password: str | None = Field(None, alias="CATHERDER_ADMIN_PASSWORD")
    user: str | None = Field(None, alias="CATHERDER_USER", description="Who acts in terminal commands.")
    sandbox: Literal["require", "auto", "off"] = Field("auto", alias="CATHERDER_SANDBOX")
    secret_key: Annotated[str, BeforeValidator(_secret)] | None = Field(None, alias="CATHERDER_SECRET_KEY")
    threshold: int = Field(0, alias="CATHERDER_INTERACTION_THRESHOLD", ge=0, le=5)
    answer_limit: int = Field(200_000, alias="CATHERDER_ANSWER_LIMIT", ge=1_000, le=5_000_000)
    workers: int = Field(4, alias="CATHERDER_WORKERS", ge=1, le=64)
    database_url: Annotated[str, BeforeValidator(_database)] | None = Field(None, alias="DATABASE_URL")
    redis_url: Annotated[str, BeforeValidator(_redis)] | None = Field(None, alias="REDIS_URL")
    anthropic_api_key: str | None = Field(None, alias="ANTHROPIC_API_KEY")
    anthropic_base_url: WebAddress | None = Field(None, alias="ANTHROPIC_BASE_URL")
    claude_oauth_token: str | None = Field(None, alias="CLAUDE_CODE_OAUTH_TOKEN")

    @property
    def rehearsal(self) -> bool:
        """Without a key or a login the agent talks to the scripted Messages API."""
        return not (self.anthropic_api_key or self.claude_oauth_token)


def load(source: Mapping[str, str]) -> Environment:
    """The settings in `source`; empty values count as not set. Raises BadSetting for all faults at once."""
    given = {name: value for name, value in source.items() if value.strip()}
    try:
        environment = Environment.model_validate(given)
    except ValidationError as error:
        raise BadSetting("\n".join(_fault(fault) for fault in error.errors())) from None
    return environment.model_copy(update={"data_dir": environment.data_dir.expanduser().resolve()})


def _fault(fault: Any) -> str:
    name = fault["loc"][0]
    message = fault["msg"].removeprefix("Value error, ")
    shown = (
        ""
        if "PASSWORD" in name or "KEY" in name or "TOKEN" in name or "URL" in name
        else f" (got {fault['input']!r})"
    )
    return f"{name}: {message}{shown}"


def prepare_data_dir(path: Path) -> Path:
    """Make the data directory, readable by nobody else. Raises BadSetting if it cannot be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadSetting(f"CATHERDER_DATA_DIR: {path} cannot be written ({error.strerror})") from error
    return path


def secret_key(environment: Environment) -> str:
    """The configured secret key, else the one in the data directory, made at the first start."""
    if environment.secret_key:
        return environment.secret_key
    path = environment.data_dir / "secret_key"
    if not path.exists():
        _make_secret(path)
    return path.read_text().strip()


def _make_secret(path: Path) -> None:
    """Write a key and give it its name when it is whole: another process may be starting as well."""
    descriptor, unnamed = tempfile.mkstemp(dir=path.parent, prefix=".secret_key-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(unnamed)
    finally:
        Path(unnamed).unlink()
