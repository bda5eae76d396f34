"""What all tests share: a data directory of their own, and no key that a test could spend."""

from __future__ import annotations

import os
import tempfile

# Before Django reads its settings: nothing that a test writes may land in a real data directory.
_data = tempfile.TemporaryDirectory(prefix="catherder-tests-")
os.environ["CATHERDER_DATA_DIR"] = _data.name
for _name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "REDIS_URL"):
    os.environ.pop(_name, None)
