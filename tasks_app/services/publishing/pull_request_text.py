"""Message of a squashed commit; title and description of a pull request, with questions and checks (V7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape
from textwrap import wrap
from urllib.parse import urljoin

from django.conf import settings
from django.urls import reverse

from tasks_app.core.amounts import dollars, duration_in_words
from tasks_app.core.text import shortened, strip_controls
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import Task
from tasks_app.prompting.escaping import head
from tasks_app.services.results import (
    StepAccount,
    StepCheck,
    account_after_review,
    accounts_of,
    answered_items,
    building_account_first,
    checks_of,
    later_than_checks,
    messages_to_agents,
    requested_changes,
)
from tasks_app.services.usage.statistics import of_task

#: The portal's part of a description. What people write outside of it stays when the portal writes it anew.
BEGIN, END = "<!-- cat-herder: begin -->", "<!-- cat-herder: end -->"
#: Characters of a title in git, as its tools show it in one line.
_LONGEST_TITLE = 72
#: Lines of a commit's text are wrapped there, but not code, tables, headings and quotations.
_LINE = 72
_KEPT_LINE = re.compile(r"(?: {4}|\t)(?!\s*[-*+\d])|\s*[|>#]")
_BEGINS_ITEM = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+)?")
_LONGEST_PART = 15_000
_LONGEST_FOLDED = 10_000
#: GitHub takes 65,536 characters.
_LONGEST_BODY = 60_000
_ZERO_WIDTH = "\N{ZERO WIDTH SPACE}"
#: `@`, `#` and `/`, written such that they are seen only after rendering.
_ENTITY = re.compile(r"&(?:#0*(?:35|47|64)|#x0*(?:23|2f|40)|num|sol|commat);", re.IGNORECASE)
#: Also inside of code, which need not end; not in an e-mail address.
_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=[\w-])")
_FOLDING_TAG = re.compile(r"<(?=/?\s*(?:details|summary)\b)", re.IGNORECASE)
#: GitLab obeys such a line, with the rights of the token. It ignores carriage returns.
_QUICK_ACTION = re.compile(r"^([^\S\n]*)/(?=\w)", re.MULTILINE)
#: The words of all forges, before an issue: its number, key or URL, in whatever markup.
_GAP = r"(?:[\W_]|<[^<>\n]{0,40}>){1,9}"
_CLOSING_WORD = re.compile(
    r"\b(clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|reopen(?:s|ed)?)"
    rf"(?={_GAP}(?:issues?{_GAP})?(?:[\w./-]{{0,200}}#\d|[a-z][a-z0-9_]{{1,20}}-\d|https?://\S{{1,300}}?/\d))",
    re.IGNORECASE,
)


def pull_request_title(task: Task) -> str:
    title = shortened(" ".join(task.title.split()), _LONGEST_TITLE)
    return harmless(title)  # squashed there, it is the message of a commit


def commit_message(task: Task) -> str:
    """Return the message of a squashed commit: the task's title, and what its agent says that it changed.

    A title that is cut stands whole in the text. Without the agent's words, or if another step changed the
    result since because of a review, the text is that of the task.
    """
    title = " ".join(task.title.split())
    subject = shortened(title, _LONGEST_TITLE)
    parts = [subject] if subject == title else [subject, title]
    accounts = building_account_first(accounts_of([task]))
    if accounts and account_after_review(accounts) is None:
        said = accounts[0].current or accounts[0].messages[-1]
        parts.append(strip_controls(head(said.text, limit=_LONGEST_PART)).strip())
    else:
        first, _, rest = task.body.strip().partition("\n")
        text = rest.strip() if first.lstrip("# ").strip() == task.title else task.body
        parts.append(head(text, limit=_LONGEST_PART))
    title, *body = without_closing_words("\n\n".join(parts)).split("\n")
    return "\n".join([title, *_wrapped(body)])


def _wrapped(lines: Sequence[str]) -> Iterator[str]:
    """Wrap long lines of prose; those of a list keep their indent. Words, such as URLs, stay whole."""
    in_code = False
    for line in lines:
        in_code ^= line.lstrip().startswith(("```", "~~~"))
        if in_code or len(line) <= _LINE or _KEPT_LINE.match(line):
            yield line
        else:
            begins = _BEGINS_ITEM.match(line)
            indent = " " * (begins.end() if begins else 0)
            yield from wrap(
                line, _LINE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )


def pull_request_body(task: Task) -> str:
    """Return the portal's part of the description, between its marks."""
    text = "\n\n".join(f"## {name}\n\n{part}" for name, part in _sections(task) if part)
    if len(text) > _LONGEST_BODY:
        text = f"{text[:_LONGEST_BODY].rstrip()}\n\n… (shortened)"
    return f"{BEGIN}\n{text}\n\n{_footer(task)}\n{END}"


def replace_own_part(body: str, own: str) -> str:
    """Return the description with the portal's part written anew; unchanged if somebody removed its marks."""
    before, begin, rest = body.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return f"{before}{own}{after}"
    return body


def _sections(task: Task) -> Iterator[tuple[str, str]]:
    yield "What", _what(task)
    yield "Why", harmless(task.body)[:_LONGEST_PART]
    yield "Questions", _question_lines(task)
    yield "Requested changes", _request_lines(task)
    checks = "\n".join(map(_check_line, checks_of([task])))
    yield "Checks", "\n\n".join(filter(None, [checks, harmless(later_than_checks(task))]))
    yield "Cost", _cost(task)


def _check_line(one: StepCheck) -> str:
    mark, failed = ("✓", "") if one.passed else ("✗", ", failed")
    return f"- {mark} {_as_code(one.check)} ({one.step}{failed})"


def _what(task: Task) -> str:
    """Return the agents' messages: of the step that built the result, and folded of the others."""
    accounts = building_account_first(accounts_of([task]))
    parts = [_said(one, limit=_LONGEST_PART) for one in accounts[:1]]
    for one in accounts[1:]:
        said = _said(one, limit=_LONGEST_FOLDED // (len(accounts) - 1))
        parts.append(
            f"<details><summary>{_one_line(one.title(accounts[0]))}</summary>\n\n{said}\n\n</details>"
        )
    return "\n\n".join(parts)


def _said(account: StepAccount, *, limit: int) -> str:
    """Return the messages of a step, the newest first, and the earlier ones folded.

    No tag or code fence in them reaches beyond them.
    """
    texts = []
    for message in filter(None, [account.current, *account.earlier]):
        text = _FOLDING_TAG.sub("&lt;", harmless(head(message.text, limit=limit // len(account.messages))))
        fence = ""  # of the code block that is open
        for marks, rest in re.findall(r"^ {0,3}(`{3,}|~{3,})(.*)$", text, re.MULTILINE):
            if not fence and not (marks[0] == "`" and "`" in rest):
                fence = marks
            elif marks.startswith(fence) and not rest.strip():
                fence = ""
        if fence:
            text += f"\n{fence}"
        if message is not account.current:
            text = f"<details><summary>{message.title.capitalize()}</summary>\n\n{text}\n\n</details>"
        elif account.earlier or message.check_failed:
            text = f"**{message.title.capitalize()}**\n\n{text}"
        texts.append(text)
    return "\n\n".join(texts)


def _question_lines(task: Task) -> str:
    lines = []
    settled = task.questions.of_agents().settled().in_force()
    questions = list(settled.select_related("answered_by", "applied").order_by("number"))
    failed = failed_approvals(questions)
    for question in questions:
        who = question.answerer or "nobody"
        for one in answered_items(question):
            asked = ": ".join(filter(None, (one.header, one.asked)))
            lines.append(f"- **{_one_line(asked)}**  \n  {_one_line(one.answer) or '–'}")
            lines[-1] += f" ({_one_line(question.outcome.lower())} by {_one_line(who)}"
            lines[-1] += "; the call failed)" if question.pk in failed else ")"
    return "\n".join(lines)[:_LONGEST_PART]


def _request_lines(task: Task) -> str:
    lines = []
    for review in requested_changes([task]):
        lines.append(f"- **{_one_line(review.author.shown_name)}**: {_one_line(review.body)}".rstrip(": "))
        for thread in review.threads.all():
            place = f"{_as_code(thread.place)} " if thread.place else ""
            lines.append(f"  - {place}{_one_line(thread.comments.all()[0].text)}")
    for message in messages_to_agents([task]):
        who = message.actor.shown_name if message.actor else "Somebody"
        lines.append(f"- **{_one_line(who)}**, to the agent: {_one_line(message.message)}")
    return "\n".join(lines)[:_LONGEST_PART]


def _cost(task: Task) -> str:
    metrics = of_task(task)
    parts = []
    if metrics.usage.cost_usd:
        parts.append(dollars(metrics.usage.cost_usd))
    if metrics.duration.working:
        parts.append(f"{duration_in_words(round(metrics.duration.working))} of work")
    return ", ".join(parts)


def _footer(task: Task) -> str:
    named = f"task {task.pk}"
    if base := settings.ENVIRONMENT.url:
        named = f"[{named}]({urljoin(str(base), reverse('task', args=[task.pk]))})"
    if task.pipeline:
        named += f", pipeline {_as_code(task.pipeline)}"
    return f"---\nMade by Cat Herder in {named}."


def _one_line(text: str) -> str:
    return harmless(" ".join(text.split()))[:1000]


def _as_code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def harmless(text: str) -> str:
    """Return an agent's or user's Markdown such that a forge only shows it.

    It mentions nobody, closes no issue, gives GitLab no command, and cannot end the portal's part of a
    description.
    """
    text = _ENTITY.sub(lambda found: unescape(found[0]), text.strip()).replace("<!--", "&lt;!--")
    text = _MENTION.sub(f"@{_ZERO_WIDTH}", text)
    text = without_closing_words(text)
    return _QUICK_ACTION.sub(rf"\1{_ZERO_WIDTH}/", text)


def without_closing_words(text: str) -> str:
    """Return text for which no forge closes an issue: an invisible character ends words such as “Fixes”."""
    return _CLOSING_WORD.sub(rf"\1{_ZERO_WIDTH}", text)
