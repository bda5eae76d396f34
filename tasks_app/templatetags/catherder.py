"""Template tags for icons, phase badges and times, and filters that render untrusted text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django import template
from django.template import Context
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from tasks_app.config.threshold import LEVELS
from tasks_app.core.amounts import dollars, duration_in_words
from tasks_app.core.asked_items import answer_as_told, parts_of_question, row_title
from tasks_app.core.phases import CANCELLABLE, PHASE_DISPLAYS, Phase, PhaseDisplay
from tasks_app.core.working_hours import Absence
from tasks_app.models import Question, Sequence, Step, Task, User, climbed, next_rung, through
from tasks_app.services.questions.approvals import shell_folder, together
from tasks_app.services.search import TextPart
from tasks_app.services.working_hours import schedule_of
from tasks_app.web.access import actable_projects, waits_for_others
from tasks_app.web.questions.cards import Card
from tasks_app.web.rendering import words
from tasks_app.web.rendering.markdown import render_inline, render_markdown
from tasks_app.web.rendering.words import render_ansi

#: After which somebody has waited long for an answer, as in pages.js.
LONG_WAIT = timedelta(minutes=15)

register = template.Library()

register.filter("duration", duration_in_words)
register.filter("count", words.count)
register.filter("outcome", words.outcome)
register.filter("row_title", row_title)
register.filter("shell_folder", shell_folder)
register.filter("next_rung", next_rung)
register.filter("climbed", climbed)
register.filter("headline", words.headline)
register.filter("question_parts", parts_of_question)
register.filter("without_title", words.without_title)
register.filter("dollars", dollars)
register.filter("markdown", render_markdown)
register.filter("inline", render_inline)
register.filter("ansi", render_ansi)


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """Render an icon from icons.svg; it is hidden from screen readers unless it has a label."""
    return _icon(name, str(label))


@lru_cache(maxsize=500)
def _icon(name: str, label: str) -> SafeString:
    """A page has a hundred icons, and there are few different ones."""
    url = f"{static('catherder/icons.svg')}#{name}"
    if not label:
        return format_html('<svg class="icon" aria-hidden="true"><use href="{}"/></svg>', url)
    return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}"/></svg>', label, url)


@register.simple_tag(takes_context=True)
def phase_badge(context: Context, thing: Task | Sequence, label: str = "") -> SafeString:
    """Render the phase as icon and label (by default its own), with its sentence on hover."""
    display = thing.phase_display
    if isinstance(thing, Task) and thing.not_started:
        return _badge(display.tone, "Nobody has started this task yet.", "hollow", "not started")
    return _badge(display.tone, display.sentence, display.icon, label or phase_label(context, thing))


@lru_cache(maxsize=100)
def _badge(tone: str, sentence: str, icon_name: str, label: str) -> SafeString:
    return format_html(
        '<span class="badge tone-{}" title="{}">{}{}</span>', tone, sentence, _icon(icon_name, ""), label
    )


@register.simple_tag
def progress(steps: Iterable[Step]) -> SafeString:
    """Render the steps of a task, in order, as one icon and name each."""
    items = (_step_of_progress(step.name, step.phase_display) for step in steps)
    return mark_safe(f'<ol class="progress" aria-label="Steps">{"".join(items)}</ol>')  # noqa: S308


@lru_cache(maxsize=500)
def _step_of_progress(name: str, display: PhaseDisplay) -> SafeString:
    """A list has a hundred of them, and few different ones."""
    return format_html(
        '<li class="tone-{}" title="{}: {}">{}<span>{}</span></li>', display.tone, name, display.label,
        _icon("hollow" if display is PHASE_DISPLAYS[Phase.PENDING] else display.icon, display.label), name,
    )  # fmt: skip


@register.filter
def highlighted(parts: Iterable[TextPart]) -> SafeString:
    """Render a line of which some parts match a search."""
    rendered = ((render_inline(part.text), part.hit) for part in parts)
    return mark_safe("".join(f"<mark>{text}</mark>" if hit else text for text, hit in rendered))  # noqa: S308


@register.filter
def answer_to(question: Question, item: Mapping[str, Any]) -> str:
    """Return the answer to an item of the question, each chosen option with its description."""
    return answer_as_told(item, question.answers.get(str(item["question"]), ""))


@register.simple_tag
def answerer(question: Question) -> SafeString | str:
    """Render who or what answered it, with a link if it was a decision."""
    if not question.applied:
        return question.answerer
    url = reverse("decision", args=[question.task.project_id, question.applied.number])
    return format_html('<a href="{}">{}</a>', url, question.answerer)


@register.simple_tag
def answered_through(payload: Mapping[str, Any]) -> str:
    """Return through what an answer came, of its event. Events of earlier versions name no program."""
    return through(str(payload.get("via", "")), str(payload.get("program", "")))


@register.simple_tag(takes_context=True)
def phase_label(context: Context, thing: Task | Step | Sequence, number: int = 1) -> str:
    """Return the label of the phase. Only those who may answer and are asked see “needs your answer”.

    `number`: of how many tasks it is said.
    """
    if thing.phase == Phase.WAITING_FOR_INPUT:
        request, whole = context["request"], thing.task if isinstance(thing, Step) else thing
        may_answer = whole.project_id in actable_projects(request)
        if may_answer and (number > 1 or not waits_for_others(request, whole)):
            return "needs your answer" if number == 1 else "need your answer"
    return thing.phase_display.label


@register.simple_tag
def when(at: datetime | None) -> SafeString | str:
    """Render how long ago this was, with the exact time on hover; live.js updates it."""
    if at is None:
        return ""
    shown, exact = words.ago(at), words.exact(at)
    return format_html('<time datetime="{}" title="{}" data-ago>{}</time>', at.isoformat(), exact, shown)


@register.filter
def bulk_actions(task: Task) -> str:
    """Return the actions on selected tasks that this one allows, as tasks.js reads them."""
    actions = []
    if task.not_started:
        actions.append("start")
    elif task.can_resume or task.is_ended:
        actions.append("retry")
    if task.can_resume:
        actions.append("resume")
    if task.phase in CANCELLABLE:
        actions.append("cancel")
    return " ".join(actions)


@register.filter
def done_of(steps: list[Any]) -> str:
    """Return how many steps of a checklist are done, as in `2 of 5`."""
    return f"{sum(step.done for step in steps)} of {len(steps)}"


@register.simple_tag
def help_link(page: str, anchor: str = "", about: str = "") -> SafeString:
    """Render a link to what the help says of a term."""
    url = reverse("help_page", args=[page]) + (f"#{anchor}" if anchor else "")
    return format_html(
        '<a class="help-link" href="{}" title="Help: {}" aria-label="Help: {}">?</a>', url, about, about
    )


@register.simple_tag
def waiting_since(at: datetime) -> SafeString:
    """Render how long somebody has been waiting; pages.js marks a long wait, and counts on."""
    late = "is-late" if timezone.now() - at > LONG_WAIT else ""
    return format_html(
        '<time datetime="{}" title="Asked {}" data-ago="wait" class="{}">{}</time>',
        at.isoformat(), words.exact(at), late, words.ago(at),
    )  # fmt: skip


@register.simple_tag
def seconds_ago(at: datetime) -> SafeString:
    """Render how long ago this was; unlike `when`, the first minute is counted in seconds."""
    shown, exact = words.ago(at, seconds=True), words.exact(at)
    return format_html('<time datetime="{}" title="{}" data-ago="s">{}</time>', at.isoformat(), exact, shown)


@register.simple_tag
def elapsed_since(at: datetime | None) -> SafeString | str:
    """Render the duration from this time until now; pages.js counts on, at full seconds everywhere."""
    if at is None:
        return ""
    since = at.replace(microsecond=0)
    seconds = (timezone.now() - since).total_seconds()
    return format_html('<span data-since="{}">{}</span>', since.isoformat(), duration_in_words(seconds))


@register.simple_tag
def moment(at: datetime) -> SafeString:
    """Render the time of day, with the date unless it was today, and the exact time on hover."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), words.exact(at), words.moment(at)
    )


@register.simple_tag
def clock(at: datetime) -> SafeString:
    """Render the time of day, with the exact time on hover."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        words.exact(at),
        f"{timezone.localtime(at):%H:%M:%S}",
    )


@register.filter
def absence(user: User) -> Absence | None:
    """Return the absence of the user today; None if they are there."""
    return schedule_of(user).absence_at(timezone.now())


@register.filter
def threshold(level: int) -> str:
    """Describe a threshold: `Asks about the few decisions that shape the result (3 of 5)`."""
    return f"{LEVELS[level].partition(';')[0].rstrip('.')} ({level} of 5)"


@register.filter
def threshold_default(level: int) -> str:
    """Describe what holds without a choice: `Default: never asks`."""
    said = threshold(level) if level else "Never asks"
    return f"Default: {said[:1].lower()}{said[1:]}"


@register.filter
def by_call(cards: list[Card]) -> list[list[Card]]:
    """Put the cards of equal calls together, at the place of the first."""
    of_question = {card.question: card for card in cards}
    return [[of_question[one] for one in call] for call in together(of_question)]


@register.filter
def folders(call: list[Question] | list[Card]) -> str:
    """Name the folders of all equal calls but the first if they differ: `in the workspace, services/mail`."""
    questions = [one.question if isinstance(one, Card) else one for one in call]
    first, *others = (shell_folder(one) or "the workspace" for one in questions)
    if {first} == set(others):
        return ""
    return f"in {', '.join(dict.fromkeys(others))}"


@register.filter
def whole(label: str) -> str:
    """Show a label such as D-17 on one line: browsers may break lines after its hyphen."""
    return format_html('<span class="whole">{}</span>', label)


@register.filter
def json_text(value: object) -> str:
    """Return the value as readable JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


@register.filter
def get(mapping: Mapping[Any, Any], key: Any) -> Any:
    return mapping.get(key, "")
