"""The version of the portal."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the version of the installed package; empty in a checkout that was not installed."""
    try:
        return metadata.version("cat-herder")
    except metadata.PackageNotFoundError:
        return ""
