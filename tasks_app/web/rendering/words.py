"""Times and tokens in the words of people, and dollars on the axis of a chart."""

from __future__ import annotations

import math
from datetime import datetime

from django.utils import timezone

from tasks_app.core.asked_items import parts_of_question
from tasks_app.core.dollars import dollars
from tasks_app.models import Question, QuestionState

#: The states of a question as pages name them: the button that dismisses a question says “Skip”.
STATE_LABELS: dict[str, str] = {**dict(QuestionState.choices), QuestionState.DISMISSED: "skipped"}


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
    """Return the sentence of a question that asks, for lists; “… ” says that something stands before it."""
    parts = parts_of_question(question)
    return f"… {parts.asked}" if parts.before else parts.asked


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
