"""The agent's program, Claude Code's CLI, and where it lies."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path


def bundled_cli() -> Path:
    """Return the CLI from the SDK's wheel or, if it has none, from PATH.

    The SDK is not imported: that takes half a second and 30 MB, and only runs need it.
    """
    sdk = find_spec("claude_agent_sdk")
    bundled = Path(sdk.origin if sdk and sdk.origin else "").parent / "_bundled" / "claude"
    return bundled if bundled.exists() else Path(shutil.which("claude") or bundled)
