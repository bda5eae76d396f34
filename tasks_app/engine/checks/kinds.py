"""The checks that a step may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasks_app.config.repository_settings import CHECK_SECONDS


@dataclass(frozen=True)
class NoCheck:
    """Always passes."""


@dataclass(frozen=True)
class FileExists:
    """Passes if `path`, relative to the workspace, is a file or folder within it."""

    path: str


@dataclass(frozen=True)
class Shell:
    """A command line that must succeed, or with `expect="fail"` must run and fail.

    `timeout` is in seconds. A command that exceeds it fails the check either way, and so does one that the
    shell could not start (exit 126 or 127): a missing test runner is not a failing test.
    """

    command: str
    expect: Literal["pass", "fail"] = "pass"
    timeout: float = CHECK_SECONDS


Check = NoCheck | FileExists | Shell


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    `check` names it in one line for people, `output` is what the command printed, and `problem` says in a
    sentence why the check failed. `exit_code` is None if no command ran to its end. Of a check by the portal
    itself, `output` says what it found, and `order` tells the agent what to do; people are not shown that.
    """

    passed: bool
    check: str
    output: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    problem: str = ""
    order: str = ""
