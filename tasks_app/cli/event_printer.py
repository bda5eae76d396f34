"""What happens in a task's runs, printed as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Max

from tasks_app.cli.screen import Screen
from tasks_app.history.events.tools import summarise
from tasks_app.models import Channel, Event, EventKind, Reason, Run, Task
from tasks_app.web.rendering.entries import one_line

_THOUGHT = 400
_ERROR_LINES = 6
_CHECK_LINES = 15
_PAGE = 200

Payload = dict[str, Any]


class News:
    """Prints the events of a task that are newer than the last look.

    What was there before is told only `from_start`. `before` stands before the name of a step.
    """

    def __init__(self, task: Task, screen: Screen, *, before: str = "", from_start: bool = False) -> None:
        self._events = Event.objects.filter(run__step__task=task)
        self._last = 0 if from_start else self._events.aggregate(last=Max("pk"))["last"] or 0
        self._before = before
        #: What happened last, in one line, and in which step.
        self.last_action = ""
        self.step = ""
        self._screen = screen
        self._run: int | None = None
        self._steps = task.steps.count()
        #: Numbers of the questions that the person has seen, and of those whose answer they know.
        self.asked: set[int] = set()
        self.answered: set[int] = set()

    def look(self) -> None:
        """All events up to now."""
        rows = self._events.select_related("run__step").defer("raw").order_by("pk")
        while page := list(rows.filter(pk__gt=self._last)[:_PAGE]):
            for event in page:
                self._tell(event)
            self._last = page[-1].pk

    def _tell(self, event: Event) -> None:
        if event.run_id != self._run:
            self._run = event.run_id
            self._heading(event.run)
        self.last_action = one_line(event) or self.last_action
        if teller := self._TELLERS.get(EventKind(event.kind)):
            teller(self, event.payload)

    def _heading(self, run: Run) -> None:
        again = "" if run.number == 1 else f", run {run.number} {Reason(run.reason).label}"
        place = f"{run.step.position} of {self._steps}"
        self.step = f"{self._before}{run.step.name} ({place})"
        self._screen.say()
        self._screen.say(f"{self._before}{run.step.name} ({place}{again})", style="bold")

    def _text(self, payload: Payload) -> None:
        self._screen.say(_of(payload, "text").strip("\n"), indent=2)

    def _thinking(self, payload: Payload) -> None:
        thought = _of(payload, "text").strip()
        self._screen.say(_shortened(thought, _THOUGHT), indent=2, style="dim")

    def _tool_use(self, payload: Payload) -> None:
        name = _of(payload, "name")
        if name != "AskUserQuestion":  # the question follows, in full
            self._screen.say_with_mark("›", summarise(name, _input_of(payload)), style="cyan")

    def _tool_result(self, payload: Payload) -> None:
        if told := _of(payload, "turned_down"):
            self._screen.say(told, indent=4, style="dim")
        elif payload.get("is_error"):
            self._screen.say(_tail(_of(payload, "text"), _ERROR_LINES), indent=4, style="red", wrap=False)

    def _answer(self, payload: Payload) -> None:
        number = int(payload.get("number") or 0)
        if number not in self.asked:
            self._screen.say_with_mark("?", _of(payload, "question"), style="bold")
        if number not in self.answered:
            self._screen.say_with_mark("✓", answered_by(payload), style="green")

    def _check(self, payload: Payload) -> None:
        if payload.get("passed"):
            self._screen.say_with_mark("✓", f"check passed: {_of(payload, 'check')}", style="green")
            return
        problem = _of(payload, "problem") or f"check failed: {_of(payload, 'check')}"
        self._screen.say_with_mark("✗", problem, style="red")
        self._screen.say(_tail(_of(payload, "output"), _CHECK_LINES), indent=4, wrap=False)

    def _note(self, payload: Payload) -> None:
        self._screen.say_with_mark("·", _of(payload, "text"), style="dim")

    def _error(self, payload: Payload) -> None:
        self._screen.say_with_mark("✗", _of(payload, "text"), style="red")

    _TELLERS: dict[EventKind, Callable[[News, Payload], None]] = {
        EventKind.TEXT: _text,
        EventKind.THINKING: _thinking,
        EventKind.TOOL_USE: _tool_use,
        EventKind.TOOL_RESULT: _tool_result,
        EventKind.ANSWER: _answer,
        EventKind.CHECK: _check,
        EventKind.NOTE: _note,
        EventKind.ERROR: _error,
    }


def answered_by(payload: Payload) -> str:
    """`Answered by Ann in the web: Spread them`; `Approved by …`, `Dismissed by …` likewise."""
    via = _of(payload, "via")
    place = {Channel.API: "through the API"}.get(Channel(via), f"in the {via}") if via else ""
    outcome = _of(payload, "outcome") or "Answered"
    said = _of(payload, "text" if outcome == "Answered" else "notes")
    return f"{outcome} by {_of(payload, 'by') or 'somebody'} {place}" + (f": {said}" if said else "")


def _of(payload: Payload, key: str) -> str:
    return str(payload.get(key) or "")


def _input_of(payload: Payload) -> Payload:
    given = payload.get("input")
    return given if isinstance(given, dict) else {}


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip()} …"


def _tail(text: str, lines: int) -> str:
    kept = text.strip("\n").split("\n")
    cut = len(kept) - lines
    return "\n".join([f"… {cut} more lines …", *kept[-lines:]] if cut > 0 else kept)
