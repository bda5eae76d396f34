"""The agent's connection to its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.proxy import RunMeter
from tasks_app.agent.proxy.server import RUN_HEADER, TRACES

#: How long, in milliseconds, the CLI may take to send its last spans when it exits.
LAST_SPANS_MS = 1000


@dataclass(frozen=True)
class Connection:
    """The agent's connection to its model. Empty values are left out of its environment.

    `socket` leads to the model for runs without a network. `run_token` identifies the run to the API key
    proxy if the CLI holds the credentials itself. `meter` counts what the run uses; if it is None, the CLI's
    own numbers count. With `takes_spans`, the CLI sends the spans of its run to the API key proxy.
    """

    api_key: str = ""
    oauth_token: str = ""
    run_token: str = ""
    base_url: str = ""
    socket: Path | None = None
    meter: RunMeter | None = None
    takes_spans: bool = False

    def env(self) -> dict[str, str]:
        named = {
            "ANTHROPIC_API_KEY": self.api_key,
            "CLAUDE_CODE_OAUTH_TOKEN": self.oauth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_CUSTOM_HEADERS": f"{RUN_HEADER}: {self.run_token}" if self.run_token else "",
        }
        return {name: value for name, value in {**named, **self._spans_env()}.items() if value}

    def _spans_env(self) -> dict[str, str]:
        """Return what makes the CLI send spans. It keeps variables named OTEL_ from the agent's shell."""
        if not self.takes_spans:
            return {}
        return {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
            "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{self.base_url}{TRACES}",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"{RUN_HEADER}={self.run_token or self.api_key}",
            # Usually 2 s and 5 s: an exit must not wait that long for a proxy that does not answer.
            "CLAUDE_CODE_OTEL_SHUTDOWN_TIMEOUT_MS": str(LAST_SPANS_MS),
            "CLAUDE_CODE_OTEL_FLUSH_TIMEOUT_MS": str(LAST_SPANS_MS),
        }
