"""What operations declare: the problems they may end with, and answers that are no objects."""

from __future__ import annotations

from typing import Any

from tasks_app.api.schemas.base import Problem

#: Any operation may end with these.
ALWAYS = (401, 403, 429)


#: Under this an operation says what it sends, until `app.document` puts it in its place.
CONTENT = "x-content"
_TEXT = {"type": "string"}
_ROWS = {"type": "array", "items": {"type": "object"}}


def sends(*kinds: str) -> dict[str, Any]:
    """For `openapi_extra`: the answer is of one of these media types, and of any length."""
    return {CONTENT: {kind: {"schema": _ROWS if kind.endswith("json") else _TEXT} for kind in kinds}}


def responses(success: Any, *problems: int, status: int = 200, **special: Any) -> dict[int, Any]:
    """Schemas by status: that of the success, and problems. `s409=…` for a problem that says more."""
    kinds: dict[int, Any] = dict.fromkeys(sorted({*problems, *ALWAYS, 400}), Problem)
    return {status: success, **kinds, **{int(name[1:]): schema for name, schema in special.items()}}
