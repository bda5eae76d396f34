"""Bounds on one run or one task: turns, cost and time (SPEC P1, M8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field, Strict

from tasks_app.config import setting
from tasks_app.config.fields import FileModel, Seconds
from tasks_app.config.setting import Setting
from tasks_app.core.durations import duration_in_words

#: The time limits of a run and of a shell check if neither they nor the project name one.
STEP_SECONDS = 2 * 3600
CHECK_SECONDS = 600


def _time_limit(seconds: int) -> Callable[[object, object], str]:
    return lambda config, environment: f"{duration_in_words(seconds)} (default)"


class Limits(FileModel):
    """Bounds on one run or one task. Absent: no bound, except for STEP_SECONDS and CHECK_SECONDS."""

    max_turns: Annotated[
        Annotated[int, Strict(), Field(ge=1)] | None,
        Setting(kind=setting.COUNT, label="Turns", help="Maximum number of turns of one run."),
    ] = None
    max_cost_usd: Annotated[
        Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None,
        Setting(kind=setting.DOLLARS, label="Dollars", help="Maximum cost of one task."),
    ] = None
    soft_cost_usd: Annotated[
        Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)] | None,
        Setting(
            kind=setting.DOLLARS_OR_NONE,
            label="Dollars before it asks",
            help="Once a task has cost this, it stops and asks whether to go on. 0: it does not ask.",
            default=lambda config, environment: "none",
        ),
    ] = None
    step_timeout: Annotated[
        Seconds | None,
        Setting(
            kind=setting.DURATION,
            label="Time limit of a run",
            help="For steps that name none.",
            default=_time_limit(STEP_SECONDS),
        ),
    ] = None
    check_timeout: Annotated[
        Seconds | None,
        Setting(
            kind=setting.DURATION,
            label="Time limit of a check",
            help="For checks that name none.",
            default=_time_limit(CHECK_SECONDS),
        ),
    ] = None

    @property
    def asks_at_cost_usd(self) -> float | None:
        """Return the soft cost limit; None if there is none, or if the hard one is reached before it."""
        soft = self.soft_cost_usd
        return soft if soft and soft_limit_fault(soft, hard=self.max_cost_usd) is None else None


def soft_limit_fault(soft: float | None, *, hard: float | None) -> str | None:
    """Return why the soft cost limit cannot hold beside the hard one, as the rest of a sentence, or None."""
    if not soft or hard is None or soft < hard:
        return None
    return f"is {soft:g}, but must be less than {hard:g} (maxCostUsd), at which the task fails"
