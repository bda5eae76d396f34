"""Making what an agent says storable: databases take no NUL, no lone surrogate, and no NaN in JSON."""

from __future__ import annotations

import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any) -> Any:
    """The same JSON value with U+FFFD in place of what no text can hold, and words for what is no number."""
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
    """The same JSON value with every text cut to about `limit` characters; what is left out is said."""
    if isinstance(value, str):
        return _bounded_text(value, limit)
    if isinstance(value, dict):
        return {key: bounded(inner, limit) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(inner, limit) for inner in value]
    return value


def _bounded_text(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    notice = f"[… {left_out:,} characters are left out here; the raw log has them …]"
    return f"{text[:half]}\n{notice}\n{text[-half:]}"
