"""Times, tokens and dollars in the words of people, and terminal colours as HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from tasks_app.core.amounts import dollars
from tasks_app.core.asked_items import parts_of_question
from tasks_app.core.text import strip_controls
from tasks_app.models import Question, QuestionState

#: The states of a question as pages name them: the button that dismisses a question says “Skip”.
STATE_LABELS: dict[str, str] = {
    **dict(QuestionState.choices), QuestionState.DISMISSED: "skipped", QuestionState.UNANSWERED: "no answer",
}  # fmt: skip


def ago(at: datetime, *, now: datetime | None = None, seconds: bool = False) -> str:
    """Format the age of a time: `just now`, `5 min ago`, `3 h ago`, `2 d ago`, then the date.

    `seconds`: the first minute is counted, as in `12 s ago`.
    """
    age = ((now or timezone.now()) - at).total_seconds()
    if seconds and age < 60:
        return f"{max(0, int(age))} s ago"
    if age < 45:
        return "just now"
    for size, name, below in ((60, "min", 3600), (3600, "h", 86_400), (86_400, "d", 14 * 86_400)):
        if age < below:
            return f"{max(1, int(age // size))} {name} ago"
    return f"{timezone.localtime(at):%Y-%m-%d}"


def exact(at: datetime) -> str:
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z}"


def moment(at: datetime) -> str:
    """Format a time as `14:03` if it is today, else with the date."""
    local = timezone.localtime(at)
    today = timezone.localdate() == local.date()
    return f"{local:%H:%M}" if today else f"{local:%Y-%m-%d %H:%M}"


def outcome(question: Question) -> str:
    """Return the outcome of a question, such as `Answered` or `Skipped`; empty while it is open."""
    return "Skipped" if question.is_dismissed else question.outcome


def headline(question: str) -> str:
    """Return the sentence of a question that asks, for lists; one “…” says that there is more."""
    parts = parts_of_question(question)
    if parts.before:
        return f"… {parts.asked}"
    return f"{parts.asked} …" if parts.after else parts.asked


def without_title(body: str, title: str) -> str:
    """Return the text of a task without the heading from which its title was taken, if that is first."""
    first, _, rest = body.lstrip().partition("\n")
    return rest.lstrip() if first.startswith("#") and first.strip("# \r") == title else body


def count(number: int) -> str:
    """Format a count: `940`, `12.3k`, `1.2M`, `3.5B`."""
    for size, name in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + name
    return str(number)


def amount_of_dollars(amount: float) -> str:
    """Format dollars for a chart's axis: `$0`, `$0.0002`, `$1.50`, `$250`, `$12.5k`."""
    if amount >= 10_000:
        return f"${count(round(amount))}"
    if amount >= 100 or amount == 0 or amount == round(amount):
        return dollars(round(amount)).removesuffix(".00")
    if amount >= 0.01:
        return dollars(amount)
    return f"${amount:.{min(9, 1 - math.floor(math.log10(amount)))}f}".rstrip("0")


# Render terminal output: colours become CSS classes, other control sequences are removed.


_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_STYLES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline"}
_ENDS = {"22": {"bold", "dim"}, "23": {"italic"}, "24": {"underline"}, "39": set(_COLOURS)}

_SGR = re.compile(r"\x1b\[([0-9;]*)m")


def render_ansi(text: str) -> SafeString:
    """Escape the text, with a span for each style."""
    spans = (_span(part, styles) for part, styles in _stretches(text))
    return mark_safe("".join(spans))  # noqa: S308 (every part is escaped in _span)


def _stretches(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    styles: frozenset[str] = frozenset()
    end = 0
    for match in _SGR.finditer(text):
        yield text[end : match.start()], styles
        styles = _after(styles, match[1])
        end = match.end()
    yield text[end:], styles


def _after(styles: frozenset[str], codes: str) -> frozenset[str]:
    """Return the styles after the codes of one sequence; unknown codes are ignored."""
    now = set(styles)
    parts = iter(codes.split(";"))
    for code in parts:
        if code in ("", "0"):
            now.clear()
        elif code in ("38", "48"):
            _skip_colour_arguments(parts)
        elif code in _STYLES:
            now.add(_STYLES[code])
        elif code in _ENDS:
            now -= _ENDS[code]
        elif len(code) == 2 and code[0] in "39" and code[1] in "01234567":
            now -= set(_COLOURS)
            now.add(_COLOURS[int(code[1])])
    return frozenset(now)


def _skip_colour_arguments(parts: Iterator[str]) -> None:
    """Skip the arguments of a colour out of 256 (5;N) or 16 million (2;R;G;B)."""
    for _ in range({"5": 1, "2": 3}.get(next(parts, ""), 0)):
        next(parts, "")


def _span(part: str, styles: frozenset[str]) -> str:
    shown = escape(strip_controls(part))
    if not styles or not shown:
        return shown
    classes = " ".join(f"ansi-{style}" for style in sorted(styles))
    return f'<span class="{classes}">{shown}</span>'
