"""What every page knows about the installation."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def installation(request: HttpRequest) -> dict[str, Any]:
    return {}
