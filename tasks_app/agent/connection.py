"""How an agent reaches its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.proxy import RunMeter
from tasks_app.agent.proxy.server import RUN_HEADER


@dataclass(frozen=True)
class Connection:
    """How the agent reaches its model. Empty values are left out of its environment.

    `socket` leads to the model for runs without a network. `run_token` identifies the run to the API key
    proxy if the CLI holds the credentials itself. `meter` counts what the run uses; if it is None, the CLI's
    own numbers count.
    """

    api_key: str = ""
    oauth_token: str = ""
    run_token: str = ""
    base_url: str = ""
    socket: Path | None = None
    meter: RunMeter | None = None

    def env(self) -> dict[str, str]:
        named = {
            "ANTHROPIC_API_KEY": self.api_key,
            "CLAUDE_CODE_OAUTH_TOKEN": self.oauth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_CUSTOM_HEADERS": f"{RUN_HEADER}: {self.run_token}" if self.run_token else "",
        }
        return {name: value for name, value in named.items() if value}
