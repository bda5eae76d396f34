"""What each operation declares beside its success: the problems it may end with."""

from __future__ import annotations

from typing import Any

from tasks_app.api.schemas.base import Problem

#: Any operation may end with these.
ALWAYS = (401, 403, 429)


def responses(success: Any, *problems: int, status: int = 200, **special: Any) -> dict[int, Any]:
    """Schemas by status: that of the success, and problems. `s409=…` for a problem that says more."""
    kinds: dict[int, Any] = dict.fromkeys(sorted({*problems, *ALWAYS, 400}), Problem)
    return {status: success, **kinds, **{int(name[1:]): schema for name, schema in special.items()}}
