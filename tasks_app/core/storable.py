"""Make agents' texts storable: databases accept no NUL, lone surrogates, or NaN in JSON."""

from __future__ import annotations

import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Return a JSON value with U+FFFD for unstorable characters and text for NaN and infinity."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def storable_text(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def bounded(value: Any, limit: int) -> Any:
    """Return a JSON value with every text truncated to about `limit` characters, with a notice."""
    if isinstance(value, str):
        return _truncate(value, limit)
    if isinstance(value, dict):
        return {key: bounded(inner, limit) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(inner, limit) for inner in value]
    return value


def _truncate(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    omitted = len(text) - 2 * half
    notice = f"[… {omitted:,} characters are left out here; the raw log has them …]"
    return f"{text[:half]}\n{notice}\n{text[-half:]}"
