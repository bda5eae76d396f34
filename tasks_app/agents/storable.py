"""Text that every database takes. PostgreSQL stores neither NUL nor half a surrogate pair."""

from __future__ import annotations

import json
import re
from typing import Any

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: What JSON in ASCII shows when there may be one; whole pairs show as well, so it is only a first look.
_SUSPECT = re.compile(r"\\u0000|\\ud[89a-f]")


def storable(text: str) -> str:
    """The text with U+FFFD in place of what cannot be stored."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def storable_json(value: Any) -> Any:
    """A JSON value with all its texts and keys made storable; the very same one if nothing is amiss."""
    return _cleaned(value) if _SUSPECT.search(json.dumps(value)) else value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {storable(str(key)): _cleaned(item) for key, item in value.items()}
    return value
