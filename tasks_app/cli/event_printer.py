"""Print the setups and events of a task as they happen, and a progress line below them.

A setup may take minutes and has no events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db.models import Q
from django.utils import timezone

from tasks_app.agent.tools import without_hook_name
from tasks_app.cli.terminal import Screen
from tasks_app.core.amounts import duration_in_words
from tasks_app.history.events.lines import summarise
from tasks_app.history.events.reading import Events
from tasks_app.models import Channel, Event, EventKind, Setup, SetupCache, SetupOutcome, Task, through
from tasks_app.services.usage import statistics
from tasks_app.web.rendering import words
from tasks_app.web.rendering.log_entries import event_summary

#: In a pipe, which has no line that changes, a running setup is told of this often.
_SILENT_SECONDS = 30.0


class SetupPrinter:
    """Prints what is new of the task's setups; those that have ended before only with `from_start`."""

    def __init__(self, task: Task, screen: Screen, *, from_start: bool) -> None:
        self._task = task
        self._screen = screen
        #: The last setup that was printed completely, and what was printed of the next one.
        self._last = 0
        if not from_start:
            ended = task.setups.exclude(outcome="").order_by("-pk").values_list("pk", flat=True).first()
            self._last = ended or 0
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
            mark, style = ("✓", "green") if setup.outcome == SetupOutcome.DONE else ("✗", "red")
            words = f"{SetupOutcome(setup.outcome).label} ({duration_in_words(setup.seconds)})"
            self._say(mark, words, style=style)
            self._last, self._commands, self._waits = setup.pk, 0, False
            return ""
        seconds = duration_in_words((timezone.now() - setup.started_at).total_seconds())
        running = f"setup is running ({seconds})"
        if not self._screen.is_terminal and time.monotonic() - self._said_at >= _SILENT_SECONDS:
            self._say("·", f"is running ({seconds})", style="dim")
        if setup.current:
            return f"{running}: {_in_one_line(setup.current)}"
        return f"{running} …"

    def _say(self, mark: str, text: str, *, style: str) -> None:
        self._said_at = time.monotonic()
        self._screen.say_with_mark(mark, f"Setup: {text}", style=style)


def _in_one_line(command: str) -> str:
    return summarise("Bash", {"command": command})


_THOUGHT_LENGTH = 400
_ERROR_LINES = 6
_CHECK_LINES = 15
#: The totals are sums over many rows.
_PROGRESS_SECONDS = 1.0

_ASKED = (EventKind.QUESTION, EventKind.ANSWER)
_ASK_TOOL = "AskUserQuestion"

Payload = dict[str, Any]


class EventPrinter:
    """Prints the events of a task that are new since the last call; older ones only with `from_start`.

    Also what its setups do, which have no events. `step_prefix` is printed before each step's name.
    """

    def __init__(
        self, task: Task, screen: Screen, *, step_prefix: str = "", from_start: bool = False
    ) -> None:
        self._events = Events(Q(run__step__task=task), related="run__step")
        self._last = 0 if from_start else self._events.newest_id()
        self._step_prefix = step_prefix
        #: The last event in one line, and its step.
        self.last_action = ""
        self.step = ""
        #: Whether the last printed check failed.
        self.last_check_failed = False
        self._screen = screen
        self._run: int | None = None
        #: The calls of the run, each in one line, and the one that was printed last.
        self._calls: dict[str, str] = {}
        self._last_call = ""
        self._steps = task.steps.count()
        self._setups = SetupPrinter(task, screen, from_start=from_start)
        #: Numbers of the questions whose text, and of those whose answer, the person has already seen.
        self.asked: set[int] = set()
        self.answered: set[int] = set()

    def print_new(self) -> None:
        for event in self._events.all(after=self._last):
            self._print(event)
            self._last = event.pk
        if current := self._setups.print_new():
            self.step, self.last_action = current, ""

    def _print(self, event: Event) -> None:
        if event.run_id != self._run and event.kind != EventKind.ANSWER:  # its run is over
            self._run = event.run_id
            self._calls = {}
            self._setups.print_new()  # the one before this run has ended
            position = f"{event.run.step.position} of {self._steps}"
            name = f"{self._step_prefix}{event.run.step.name}"
            self.step = f"{name} ({position})"
            if event.run.number > 1:
                position += f", run {event.run.number} {event.run.reason_label}"
            self._screen.say()
            self._screen.say(f"{name} ({position})", style="bold")
        self.last_action = event_summary(event) or self.last_action
        if event.kind in _ASKED or event.payload.get("name") == _ASK_TOOL:  # it stands above in full
            self.last_action = ""
        if printer := self._PRINTERS.get(EventKind(event.kind)):
            printer(self, event.payload)

    def _text(self, payload: Payload) -> None:
        self._screen.say_markdown(_get(payload, "text").strip("\n"), indent=2)

    def _thinking(self, payload: Payload) -> None:
        thought = _get(payload, "text").strip()
        if len(thought) > _THOUGHT_LENGTH:
            thought = f"{thought[:_THOUGHT_LENGTH].rstrip()} …"
        self._screen.say(thought, indent=2, style="dim")

    def _tool_use(self, payload: Payload) -> None:
        name = _get(payload, "name")
        if name != _ASK_TOOL:  # the question itself follows
            given = payload.get("input")
            call = summarise(name, given if isinstance(given, dict) else {})
            self._last_call = _get(payload, "id")
            self._calls[self._last_call] = call
            self._screen.say_with_mark("›", call, style="cyan")

    def _tool_result(self, payload: Payload) -> None:
        refusal, failed = _get(payload, "turned_down"), payload.get("is_error")
        if not refusal and not failed:
            return
        made = _get(payload, "tool_use_id")
        if made != self._last_call and made in self._calls:  # of calls side by side, another one stands above
            self._screen.say(f"{self._calls[made]}:", indent=4, style="dim")
        if refusal:
            self._screen.say(refusal, indent=4, style="dim")
        else:
            text = _tail(without_hook_name(_get(payload, "text")), _ERROR_LINES)
            self._screen.say(text, indent=4, style="red", wrap=False)

    def _answer(self, payload: Payload) -> None:
        number = int(payload.get("number") or 0)
        if number not in self.asked:
            self._screen.say_with_mark("?", _get(payload, "question"), style="bold")
        if number not in self.answered:
            self._screen.say_with_mark("✓", answered_by(payload), style="green")

    def _check(self, payload: Payload) -> None:
        self.last_check_failed = not payload.get("passed")
        if payload.get("passed"):
            self._screen.say_with_mark("✓", f"check passed: {_get(payload, 'check')}", style="green")
            return
        problem = _get(payload, "problem") or f"check failed: {_get(payload, 'check')}"
        self._screen.say_with_mark("✗", problem, style="red")
        self._screen.say(_tail(_get(payload, "output"), _CHECK_LINES), indent=4, wrap=False)

    def _note(self, payload: Payload) -> None:
        self._screen.say_with_mark("·", _get(payload, "text"), style="dim")

    def _error(self, payload: Payload) -> None:
        self._screen.say_with_mark("✗", _get(payload, "text"), style="red")

    _PRINTERS: dict[EventKind, Callable[[EventPrinter, Payload], None]] = {
        EventKind.TEXT: _text,
        EventKind.THINKING: _thinking,
        EventKind.TOOL_USE: _tool_use,
        EventKind.TOOL_RESULT: _tool_result,
        EventKind.ANSWER: _answer,
        EventKind.CHECK: _check,
        EventKind.NOTE: _note,
        EventKind.ERROR: _error,
    }


class Progress:
    """A line like `plan (1 of 2) · 3 min 20 s · 12.3k tokens · $ make test`; nothing in a pipe.

    Only finished runs count as tokens: agents report them at the end.
    """

    def __init__(self, task: Task, screen: Screen, printer: EventPrinter) -> None:
        self._task = task
        self._screen = screen
        self._printer = printer
        self._shown_at = 0.0

    def refresh(self) -> None:
        now = time.monotonic()
        if not self._screen.is_terminal or now - self._shown_at < _PROGRESS_SECONDS:
            return
        self._shown_at = now
        totals = statistics.of_task(self._task)
        parts = [
            self._printer.step or self._task.phase_display.label,
            duration_in_words(totals.duration.working),
        ]
        if tokens := totals.usage.read_tokens + totals.usage.output_tokens:
            parts.append(f"{words.count(tokens)} tokens")
        parts.append(self._printer.last_action)
        self._screen.set_status("  " + " · ".join(filter(None, parts)))


def answered_by(payload: Payload) -> str:
    """Say who answered, where and what: `Answered by Ann in the web: Spread them`."""
    via = _get(payload, "via")
    if via == Channel.DECISION:
        return f"Answered by {_get(payload, 'by')}: {_get(payload, 'text')}"
    outcome = _get(payload, "outcome") or "Answered"
    said = f"{outcome} by {_get(payload, 'by') or 'somebody'}"
    if where := through(via, _get(payload, "program")):
        said += f" {where}"
    text = _get(payload, "text" if outcome == "Answered" else "notes")
    if via == Channel.RULE:
        text = f"which took {took}" if (took := _get(payload, "text")) else ""
    if text:
        said += f": {text}"
    return said


def _get(payload: Payload, key: str) -> str:
    return str(payload.get(key) or "")


def _tail(text: str, lines: int) -> str:
    kept = text.strip("\n").split("\n")
    cut = len(kept) - lines
    if cut > 0:
        kept = [f"… {cut} more lines …", *kept[-lines:]]
    return "\n".join(kept)
