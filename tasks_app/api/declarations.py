"""Declarations of operations for the OpenAPI document: their problems, and responses that are not JSON."""

from __future__ import annotations

from typing import Any

from tasks_app.api.base import Problem

#: Problems that every operation may return.
ALWAYS = (401, 403, 429)


#: The key under which an operation declares its media types, until `app.document` moves them.
CONTENT = "x-content"
_TEXT = {"type": "string"}
_ROWS = {"type": "array", "items": {"type": "object"}}


def sends(*kinds: str) -> dict[str, Any]:
    """Return `openapi_extra` for a streamed response in one of these media types."""
    return {CONTENT: {kind: {"schema": _ROWS if kind.endswith("json") else _TEXT} for kind in kinds}}


def responses(success: Any, *problems: int, status: int = 200, **special: Any) -> dict[int, Any]:
    """Return schemas by status: of the success, and of problems. `s409=…` sets another schema for one."""
    kinds: dict[int, Any] = dict.fromkeys(sorted({*problems, *ALWAYS, 400}), Problem)
    return {status: success, **kinds, **{int(name[1:]): schema for name, schema in special.items()}}
