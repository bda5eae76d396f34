"""Template tags: icons, phase badges, times, and text of machines made safe."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from tasks_app.models import Sequence, Step, Task
from tasks_app.web.rendering import words
from tasks_app.web.rendering.ansi import render_ansi
from tasks_app.web.rendering.markdown import render_inline, render_markdown

register = template.Library()

register.filter("duration", words.duration)
register.filter("count", words.count)
register.filter("moment", words.moment)
register.filter("headline", words.headline)
register.filter("context", words.context)
register.filter("dollars", words.dollars)
register.filter("markdown", render_markdown)
register.filter("inline", render_inline)
register.filter("ansi", render_ansi)


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """A drawing from icons.svg; hidden from screen readers unless it has a label."""
    hidden = format_html('role="img" aria-label="{}"', label) if label else mark_safe('aria-hidden="true"')
    address = f"{static('catherder/icons.svg')}#{name}"
    return format_html('<svg class="icon" {}><use href="{}"/></svg>', hidden, address)


@register.simple_tag
def phase_badge(thing: Task | Step | Sequence) -> SafeString:
    """The phase as icon and words; the sentence on hover."""
    facts = thing.phase_facts
    label, sentence, drawing = facts.label, facts.sentence, facts.icon
    if isinstance(thing, Task) and thing.not_started:
        label, sentence, drawing = "not started", "Nothing happens until somebody starts it.", "hollow"
    return format_html(
        '<span class="badge tone-{}" title="{}">{}{}</span>', facts.tone, sentence, icon(drawing), label
    )


@register.simple_tag
def when(at: datetime | None) -> SafeString | str:
    """How long ago, with the exact time on hover; live.js keeps it true."""
    if at is None:
        return ""
    shown, exact = words.ago(at), words.exact(at)
    return format_html('<time datetime="{}" title="{}" data-ago>{}</time>', at.isoformat(), exact, shown)


@register.simple_tag
def clock(at: datetime) -> SafeString:
    """The time of day, with the exact time on hover."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), words.exact(at), f"{at:%H:%M:%S}"
    )


@register.filter
def get(mapping: Mapping[str, Any], key: str) -> Any:
    return mapping.get(key, "")
