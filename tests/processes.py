"""Processes that end with the one that started them, however that ends: an interrupt, a signal, SIGKILL."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any


def start_process(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process as `subprocess.Popen` does. The system ends it when the calling thread ends."""
    setpriv = shutil.which("setpriv")
    mark = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
    return subprocess.Popen([*mark, *command], **options)
