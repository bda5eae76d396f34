"""The bytecode of the portal and of its tests, made before workers start.

In a new clone each of the workers would compile every module, at the same time as the others: 4.3 s of CPU
time for each of the five of `make test`.
"""

from __future__ import annotations

import compileall
import fcntl
import os
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)

TESTS = Path(__file__).parent
PORTAL = [TESTS.parent / name for name in ("tasks_app", "catherder_site")]


def compile_all(config: pytest.Config) -> None:
    """Compile what has changed. Of the rounds of `make test` the second waits, and then has nothing to do."""
    folder = os.open(TESTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        for package in PORTAL:
            compileall.compile_dir(package, quiet=2)
        for module in sorted(TESTS.rglob("*.py")):
            if module.name.startswith("test_") or module.name == "conftest.py":
                _rewrite(module, config)
            else:
                compileall.compile_file(module, quiet=2)
    finally:
        os.close(folder)


def _rewrite(module: Path, config: pytest.Config) -> None:
    """Do what pytest does when it imports a test module: rewrite its assertions and keep the result."""
    state = config.stash.get(assertstate_key, None)
    if state is None:  # --assert=plain
        return
    cache = get_cache_dir(module)
    kept = cache / (module.stem + PYC_TAIL)
    if _read_pyc(module, kept, state.trace) is None and try_makedirs(cache):
        status, code = _rewrite_test(module, config)
        _write_pyc(state, code, status, kept)
