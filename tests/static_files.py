"""The static files, looked up once in each process that runs tests.

Each test client makes the middleware anew, and that reads and stats about 190 files: half of the time that a
request from a test took. The files do not change while tests run.
"""

from __future__ import annotations

from typing import Any

from servestatic.middleware import ServeStaticMiddleware

_add_files = ServeStaticMiddleware.add_files_from_finders
_known: dict[str, dict[str, Any]] = {}


def add_known_files(middleware: ServeStaticMiddleware) -> None:
    """Do what `add_files_from_finders` does, which this replaces."""
    prefix = middleware.static_prefix
    if prefix not in _known or middleware.autorefresh:
        _add_files(middleware)
        _known[prefix] = dict(middleware.files)
    middleware.files.update(_known[prefix])
