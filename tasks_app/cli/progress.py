"""The line at the bottom of a terminal: where a task is, for how long, and what it just did."""

from __future__ import annotations

import time

from tasks_app.cli.event_printer import News
from tasks_app.cli.screen import Screen
from tasks_app.core.durations import duration_in_words
from tasks_app.history import statistics
from tasks_app.models import Task
from tasks_app.web.rendering import words

#: The figures are sums over rows; the eye does not ask for them more often.
_SECONDS = 1.0


class Progress:
    """`plan (1 of 2) · 3 min 20 s · 12.3k tokens · $ make test`, anew every second. Nothing in a pipe.

    Tokens are those of the runs that have ended: only then an agent tells what it used.
    """

    def __init__(self, task: Task, screen: Screen, news: News) -> None:
        self._task = task
        self._screen = screen
        self._news = news
        self._shown_at = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if self._screen.is_terminal and now - self._shown_at >= _SECONDS:
            self._shown_at = now
            self._screen.stand(self._line())

    def _line(self) -> str:
        figures = statistics.of_task(self._task)
        tokens = figures.usage.read_tokens + figures.usage.output_tokens
        parts = (
            self._news.step or self._task.phase_facts.label,
            duration_in_words(figures.duration.working),
            f"{words.count(tokens)} tokens" if tokens else "",
            self._news.last_action,
        )
        return "  " + " · ".join(part for part in parts if part)
