"""Print the commands of a task's setup as they run: a setup may take minutes and has no events."""

from __future__ import annotations

import time

from django.utils import timezone

from tasks_app.cli.terminal import Screen
from tasks_app.core.durations import duration_in_words
from tasks_app.history.events.lines import summarise
from tasks_app.models import Setup, SetupCache, SetupOutcome, Task

#: In a pipe, which has no line that changes, a running setup is told of this often.
_SILENT_SECONDS = 30.0


class SetupPrinter:
    """Prints what is new of the task's setups; those that have ended before only with `from_start`."""

    def __init__(self, task: Task, screen: Screen, *, from_start: bool) -> None:
        self._task = task
        self._screen = screen
        ended = task.setups.exclude(outcome="").order_by("-pk").values_list("pk", flat=True).first()
        #: The last setup that was printed completely, and what was printed of the next one.
        self._last = 0 if from_start else ended or 0
        self._commands = 0
        self._waits = False
        self._said_at = time.monotonic()

    def print_new(self) -> str:
        """Print what is new. Return that a setup is running, for how long and what; "" if none is."""
        current = ""
        if self._task.setup is not None:
            for setup in self._task.setups.filter(pk__gt=self._last).order_by("pk"):
                current = self._print(setup)
        return current

    def _print(self, setup: Setup) -> str:
        if setup.cache == SetupCache.WAITS and not self._waits:
            self._say("·", str(SetupCache.WAITS.label), style="dim")
            self._waits = True
        begun = [*(str(report["command"]) for report in setup.reports), *filter(None, [setup.current])]
        for command in begun[self._commands :]:
            self._say("·", _in_one_line(command), style="dim")
        self._commands = len(begun)
        if setup.outcome:
            self._print_end(setup)
            self._last, self._commands, self._waits = setup.pk, 0, False
            return ""
        seconds = duration_in_words((timezone.now() - setup.started_at).total_seconds())
        running = f"setup is running ({seconds})"
        if not self._screen.is_terminal and time.monotonic() - self._said_at >= _SILENT_SECONDS:
            self._say("·", f"is running ({seconds})", style="dim")
        return f"{running}: {_in_one_line(setup.current)}" if setup.current else f"{running} …"

    def _print_end(self, setup: Setup) -> None:
        mark, style = ("✓", "green") if setup.outcome == SetupOutcome.DONE else ("✗", "red")
        words = f"{SetupOutcome(setup.outcome).label} ({duration_in_words(setup.seconds)})"
        self._say(mark, words, style=style)

    def _say(self, mark: str, text: str, *, style: str) -> None:
        self._said_at = time.monotonic()
        self._screen.say_with_mark(mark, f"Setup: {text}", style=style)


def _in_one_line(command: str) -> str:
    return summarise("Bash", {"command": command})
