"""Title and description of a pull request: what, why, the questions and who answered, checks, cost (V7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

from django.conf import settings
from django.urls import reverse

from tasks_app.core.durations import duration_in_words
from tasks_app.history.statistics import of_task
from tasks_app.models import Task
from tasks_app.services.results import closing_message, passed_checks

#: The portal's part of a description. What people write outside of it stays when the portal writes it anew.
BEGIN, END = "<!-- cat-herder: begin -->", "<!-- cat-herder: end -->"
_LONGEST_TITLE = 250
_LONGEST_PART = 15_000
#: GitHub takes 65,536 characters.
_LONGEST_BODY = 60_000
_MENTION = re.compile(r"(?<![\w`/])@(?=[\w-])")
_CLOSING_WORD = re.compile(r"\b(close[sd]?|fix(?:e[sd])?|resolve[sd]?)(:?\s+)(?=[\w./-]*#\d)", re.IGNORECASE)
_ZERO_WIDTH = "\N{ZERO WIDTH SPACE}"


def pull_request_title(task: Task) -> str:
    title = " ".join(task.title.split())
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"


def pull_request_body(task: Task) -> str:
    """Return the portal's part of the description, between its marks."""
    text = "\n\n".join(f"## {name}\n\n{part}" for name, part in _parts(task) if part)
    if len(text) > _LONGEST_BODY:
        text = f"{text[:_LONGEST_BODY].rstrip()}\n\n… (shortened)"
    return f"{BEGIN}\n{text}\n\n{_footer(task)}\n{END}"


def replace_own_part(body: str, own: str) -> str:
    """Return the description with the portal's part written anew; unchanged if somebody removed its marks."""
    before, begin, rest = body.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{own}{after}" if begin and end else body


def _parts(task: Task) -> Iterator[tuple[str, str]]:
    yield "What", harmless(closing_message([task]))[:_LONGEST_PART]
    yield "Why", task.body.strip().replace("<!--", "&lt;!--")[:_LONGEST_PART]
    yield "Questions", _questions(task)
    yield "Checks", "\n".join(f"- ✓ {_code(one.check)} ({one.step})" for one in passed_checks([task]))
    yield "Cost", _cost(task)


def _questions(task: Task) -> str:
    lines = []
    for question in task.questions.settled().select_related("answered_by").order_by("number"):
        who = question.answered_by.shown_name if question.answered_by else "nobody"
        lines.append(f"- **{_line(question.headline)}**  \n  {_line(question.answer_text) or '–'}")
        lines[-1] += f" ({_line(question.outcome.lower())} by {_line(who)})"
    return "\n".join(lines)[:_LONGEST_PART]


def _cost(task: Task) -> str:
    metrics = of_task(task)
    parts = [f"${metrics.usage.cost_usd:.2f}"] if metrics.usage.cost_usd else []
    if metrics.duration.working:
        parts.append(f"{duration_in_words(round(metrics.duration.working))} of work")
    return ", ".join(parts)


def _footer(task: Task) -> str:
    base = settings.ENVIRONMENT.url
    link = urljoin(str(base), reverse("task", args=[task.pk])) if base else ""
    named = f"[task {task.pk}]({link})" if link else f"task {task.pk}"
    return f"---\nMade by Cat Herder in {named}, pipeline {_code(task.pipeline)}."


def _line(text: str) -> str:
    return harmless(" ".join(text.split()))[:1000]


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def harmless(text: str) -> str:
    """Return an agent's or user's Markdown such that it neither mentions anybody nor closes issues.

    It cannot end the portal's part of a description either.
    """
    text = _MENTION.sub(f"@{_ZERO_WIDTH}", text.replace("<!--", "&lt;!--"))
    return _CLOSING_WORD.sub(rf"\1{_ZERO_WIDTH}\2", text).strip()
