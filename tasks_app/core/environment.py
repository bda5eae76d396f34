"""The installation's settings. Only this module reads environment variables."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks_app.core.environment_values import (
    WORKER_TOKEN_PREFIX,
    Bind,
    BindAddress,
    DatabaseUrl,
    GitFilters,
    IssuerUrl,
    Labels,
    ListedToolchains,
    LongSecret,
    MailServerUrl,
    Networks,
    PublicUrl,
    ReadableFolders,
    RedisUrl,
    Sender,
    Size,
    SubmoduleOrigins,
    TracesUrl,
    WebUrl,
    WorkerTokenText,
    web_url,
)
from tasks_app.core.errors import BadSetting
from tasks_app.core.files import stored_secret_key, stored_url

#: The checkout, or the folder in which the packages are installed.
BASE_DIR = Path(__file__).resolve().parents[2]


def in_checkout() -> bool:
    """Return whether the code runs from a checkout, not from an installed package."""
    return (BASE_DIR / "manage.py").is_file()


def shipped_folder(name: str) -> Path:
    """Return a folder that ships with the portal: at the top of a checkout, in `tasks_app` when installed."""
    if in_checkout():
        return BASE_DIR / name
    return BASE_DIR / "tasks_app" / name


def default_data_dir(source: Mapping[str, str]) -> Path:
    """Return `data/` in a checkout, and the user's data folder for an installed package.

    The XDG Base Directory Specification says to ignore a relative path in its variables.
    """
    if in_checkout():
        return BASE_DIR / "data"
    data_home = Path(source.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = Path("~/.local/share")
    return data_home / "cat-herder"


_THIS_MACHINE: Networks = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def _default_agent_memory() -> int:
    """Return 4 GiB, or half of the machine's memory if that is less."""
    return min(4 * 1024**3, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


class Environment(BaseModel):
    """Every variable that the portal reads, with its default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    data_dir: Path = Field(alias="CATHERDER_DATA_DIR")
    bind: BindAddress = Field(Bind(host="127.0.0.1", port=8000), alias="CATHERDER_BIND")
    url: PublicUrl | None = Field(None, alias="CATHERDER_URL")
    proxy: Networks | None = Field(None, alias="CATHERDER_PROXY")
    local_sandboxes: Literal["refuse", "allow"] = Field("refuse", alias="CATHERDER_LOCAL_SANDBOXES")
    tokens_from_workers: Literal["refuse", "allow"] = Field("refuse", alias="CATHERDER_TOKENS_FROM_WORKERS")
    connections: int = Field(4_000, alias="CATHERDER_CONNECTIONS", ge=50, le=60_000)
    connections_of_one: int = Field(256, alias="CATHERDER_CONNECTIONS_PER_ADDRESS", ge=10, le=60_000)
    sockets_of_one: int = Field(100, alias="CATHERDER_SOCKETS_PER_USER", ge=5, le=10_000)
    admin_user: str = Field("admin", alias="CATHERDER_ADMIN_USER", min_length=1, max_length=150)
    admin_password: str | None = Field(None, alias="CATHERDER_ADMIN_PASSWORD")
    user: str | None = Field(None, alias="CATHERDER_USER", description="Who acts in terminal commands.")
    sandbox: Literal["require", "auto", "off"] = Field("auto", alias="CATHERDER_SANDBOX")
    network: Literal["none", "model", "full"] = Field("full", alias="CATHERDER_NETWORK")
    git_filters: GitFilters = Field(
        (), alias="CATHERDER_GIT_FILTERS", description="Git filters that may run when work is recorded."
    )
    toolchains: ListedToolchains = Field(
        (),
        alias="CATHERDER_TOOLCHAINS",
        description="Toolchains that projects may ask for, with their folders.",
    )
    readable: ReadableFolders = Field(
        (), alias="CATHERDER_READABLE", description="Folders that projects may ask to read."
    )
    submodules: SubmoduleOrigins = Field(
        (),
        alias="CATHERDER_SUBMODULES",
        description="From where submodules may be fetched, besides the host of a project's source.",
    )
    secret_key: LongSecret | None = Field(None, alias="CATHERDER_SECRET_KEY")
    threshold: int = Field(0, alias="CATHERDER_INTERACTION_THRESHOLD", ge=0, le=5)
    answer_limit: int = Field(200_000, alias="CATHERDER_ANSWER_LIMIT", ge=1_000, le=5_000_000)
    added_tasks: int = Field(
        20,
        alias="CATHERDER_ADDED_TASKS",
        ge=0,
        le=1_000,
        description="Most tasks that agents may add to one sequence.",
    )
    undo_seconds: int = Field(5, alias="CATHERDER_UNDO_SECONDS", ge=0, le=60)
    api_rate: int = Field(600, alias="CATHERDER_API_RATE", ge=0, le=1_000_000)
    metrics_token: LongSecret | None = Field(
        None, alias="CATHERDER_METRICS_TOKEN", description="What a monitoring system shows for `/metrics`."
    )
    log_format: Literal["text", "json"] = Field("text", alias="CATHERDER_LOG_FORMAT")
    otlp_endpoint: WebUrl | None = Field(
        None, alias="OTEL_EXPORTER_OTLP_ENDPOINT", description="Where spans are sent; none without it."
    )
    otlp_traces_endpoint: TracesUrl | None = Field(None, alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    otlp_protocol: str = Field("http/protobuf", alias="OTEL_EXPORTER_OTLP_PROTOCOL")
    otel_disabled: bool = Field(False, alias="OTEL_SDK_DISABLED")
    agent_spans: Literal["yes", "no"] = Field(
        "no", alias="CATHERDER_AGENT_SPANS", description="Whether spans of Claude Code join those of its run."
    )
    prompt_cache: Literal["auto", "5m", "1h"] = Field("auto", alias="CATHERDER_PROMPT_CACHE")
    git_memory: int = Field(4096, alias="CATHERDER_GIT_MEMORY", ge=512, le=1_048_576)
    workers: int = Field(4, alias="CATHERDER_WORKERS", ge=1, le=64)
    worker_labels: Labels = Field(
        (),
        alias="CATHERDER_WORKER_LABELS",
        description="What this worker has, as steps ask for it in runsOn.",
    )
    tasks_per_person: int = Field(0, alias="CATHERDER_TASKS_PER_PERSON", ge=0, le=10_000)
    agent_memory: Size = Field(default_factory=_default_agent_memory, alias="CATHERDER_AGENT_MEMORY")
    agent_processes: int = Field(500, alias="CATHERDER_AGENT_PROCESSES", ge=0, le=100_000)
    agent_cpus: float = Field(0, alias="CATHERDER_AGENT_CPUS", ge=0, le=4_096, allow_inf_nan=False)
    agent_disk: Size = Field(20 * 1024**3, alias="CATHERDER_AGENT_DISK")
    agent_tmp: Size = Field(1024**3, alias="CATHERDER_AGENT_TMP")
    setup_caches: Size = Field(10 * 1024**3, alias="CATHERDER_SETUP_CACHES")
    compact_after_hours: int = Field(
        24,
        alias="CATHERDER_COMPACT_AFTER_HOURS",
        ge=0,
        le=87_600,
        description="When the log of an ended run is compressed; 0: never.",
    )
    keep_logs_days: int = Field(
        0,
        alias="CATHERDER_KEEP_LOGS_DAYS",
        ge=0,
        le=36_500,
        description="How long the logs of ended tasks are kept; 0: as long as their project.",
    )
    keep_workspaces_days: int = Field(
        0,
        alias="CATHERDER_KEEP_WORKSPACES_DAYS",
        ge=0,
        le=36_500,
        description="How long the workspaces of ended tasks are kept; 0: until somebody removes them.",
    )
    keep_free_disk: Size = Field(1024**3, alias="CATHERDER_KEEP_FREE_DISK")
    database_url: DatabaseUrl | None = Field(None, alias="DATABASE_URL")
    redis_url: RedisUrl | None = Field(None, alias="REDIS_URL")
    worker_token: WorkerTokenText | None = Field(
        None, alias="CATHERDER_WORKER_TOKEN", description="What a worker host shows to its portal."
    )
    anthropic_api_key: str | None = Field(None, alias="ANTHROPIC_API_KEY")
    anthropic_base_url: WebUrl | None = Field(None, alias="ANTHROPIC_BASE_URL")
    claude_oauth_token: str | None = Field(None, alias="CLAUDE_CODE_OAUTH_TOKEN")
    mail_server: MailServerUrl | None = Field(None, alias="CATHERDER_EMAIL_URL")
    email_from: Sender | None = Field(None, alias="CATHERDER_EMAIL_FROM")
    webhook_allow: Networks = Field((), alias="CATHERDER_WEBHOOK_ALLOW")
    oidc_issuer: IssuerUrl | None = Field(None, alias="CATHERDER_OIDC_ISSUER")
    oidc_client_id: str | None = Field(None, alias="CATHERDER_OIDC_CLIENT_ID")
    oidc_client_secret: str | None = Field(None, alias="CATHERDER_OIDC_CLIENT_SECRET")
    oidc_name: str = Field("single sign-on", alias="CATHERDER_OIDC_NAME", max_length=40)
    github_client_id: str | None = Field(None, alias="CATHERDER_GITHUB_CLIENT_ID")
    github_client_secret: str | None = Field(None, alias="CATHERDER_GITHUB_CLIENT_SECRET")
    github_url: WebUrl | None = Field(None, alias="CATHERDER_GITHUB_URL")
    sso_signup: Literal["yes", "no"] = Field("no", alias="CATHERDER_SSO_SIGNUP")
    session_idle_hours: int = Field(
        168,
        alias="CATHERDER_SESSION_IDLE_HOURS",
        ge=0,
        le=8_760,
        description="After how long without use a login ends; 0: only after two weeks.",
    )
    second_factor: Literal["optional", "required"] = Field("optional", alias="CATHERDER_SECOND_FACTOR")

    @property
    def proxies(self) -> Networks:
        """Networks of trusted proxies. The portal has no TLS itself, so https needs a proxy."""
        if self.proxy is not None:
            return self.proxy
        if self.url and self.url.startswith("https://"):
            return _THIS_MACHINE
        return ()

    @property
    def address(self) -> str:
        """The public URL of the portal, without a slash at the end."""
        if self.url:
            return self.url
        if "bind" in self.model_fields_set and self.bind.port:
            return self.bind.address
        with suppress(ValueError):
            return web_url(stored_url(self.data_dir))
        return self.bind.address

    @property
    def traces_endpoint(self) -> str:
        """The URL to which spans are sent; "" if none are made."""
        if self.otel_disabled:
            return ""
        if self.otlp_endpoint and not self.otlp_traces_endpoint:
            return f"{self.otlp_endpoint}/v1/traces"
        return self.otlp_traces_endpoint or ""

    @property
    def takes_agent_spans(self) -> bool:
        """Whether agents' programs may send spans of their own, which are then sent to the endpoint."""
        return self.agent_spans == "yes" and bool(self.traces_endpoint)

    @property
    def worker_name(self) -> str:
        """The name of this worker host; "" on the portal's own host."""
        token = self.worker_token or ""
        return token.removeprefix(WORKER_TOKEN_PREFIX).partition(".")[0]

    @property
    def rehearsal(self) -> bool:
        """Whether the agent uses the scripted Messages API, because there is no key and no login."""
        return not (self.anthropic_api_key or self.claude_oauth_token)


#: Variables that must be set together.
_GROUPS = (
    ("CATHERDER_EMAIL_URL", "CATHERDER_EMAIL_FROM"),
    ("CATHERDER_OIDC_ISSUER", "CATHERDER_OIDC_CLIENT_ID", "CATHERDER_OIDC_CLIENT_SECRET"),
    ("CATHERDER_GITHUB_CLIENT_ID", "CATHERDER_GITHUB_CLIENT_SECRET"),
)


def load(source: Mapping[str, str]) -> Environment:
    """Parse the settings; empty values count as unset. Raises BadSetting with all errors."""
    given = {name: value for name, value in source.items() if value.strip()}
    given.setdefault("CATHERDER_DATA_DIR", str(default_data_dir(given)))
    errors = []
    for names in _GROUPS:
        present = [name for name in names if name in given]
        missing = [name for name in names if present and name not in given]
        errors += [f"{name}: is needed as well, because {present[0]} is set" for name in missing]
    if "CATHERDER_WORKER_TOKEN" in given:  # everything of the portal is elsewhere
        missing = [name for name in ("CATHERDER_URL", "DATABASE_URL") if name not in given]
        errors += [f"{name}: is needed as well, because CATHERDER_WORKER_TOKEN is set" for name in missing]
    try:
        environment = Environment.model_validate(given)
    except ValidationError as error:
        raise BadSetting("\n".join([*(_format_error(fault) for fault in error.errors()), *errors])) from None
    if environment.traces_endpoint and environment.otlp_protocol != "http/protobuf":
        errors.append(
            "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf, for spans are sent so and not by gRPC"
        )
    if environment.agent_spans == "yes" and not (environment.traces_endpoint or environment.otel_disabled):
        errors.append("OTEL_EXPORTER_OTLP_ENDPOINT: is needed as well, because CATHERDER_AGENT_SPANS is yes")
    if errors:
        raise BadSetting("\n".join(errors))
    return environment.model_copy(update={"data_dir": _full_path(environment.data_dir)})


def _full_path(data_dir: Path) -> Path:
    try:
        return data_dir.expanduser().resolve()
    except RuntimeError as error:  # a service's user may have no home directory
        raise BadSetting(f"CATHERDER_DATA_DIR: {data_dir} cannot be found ({error})") from None


def misspelt_variables(source: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable whose name is similar to one of ours; it is ignored."""
    known = {field.alias for field in Environment.model_fields.values() if field.alias}
    for name in sorted(name for name in source if name.startswith("CATHERDER_") and name not in known):
        if meant := get_close_matches(name, known, n=1, cutoff=0.85):
            yield f"{name} is not a variable of Cat Herder; did you mean {meant[0]}?"


def _format_error(fault: Any) -> str:
    name, message = fault["loc"][0], fault["msg"].removeprefix("Value error, ")
    if any(word in name for word in ("PASSWORD", "KEY", "TOKEN", "URL", "ENDPOINT", "SECRET")):
        return f"{name}: {message}"
    return f"{name}: {message} (got {fault['input']!r})"


def secret_key(environment: Environment) -> str:
    """Return the configured secret key, or that of the data directory."""
    return environment.secret_key or stored_secret_key(environment.data_dir)


def queue_secret(environment: Environment) -> str:
    """Return the key that signs jobs. Worker hosts get it, and so it is not the secret key itself."""
    key = secret_key(environment).encode()
    return hmac.digest(key, b"cat-herder queue", "sha256").hex()
