"""Markdown of agents and people as HTML that can do no harm."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from tasks_app.views.rendering.ansi import without_ansi

# Pictures are left out: a picture from elsewhere tells its host who reads the log, and when.
_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"),
}
_LIMIT = 200_000


def render_markdown(text: str) -> SafeString:
    """Markdown as HTML: no raw HTML, no pictures, and links only to http, https and mail addresses."""
    html = _parser.render(without_ansi(text[:_LIMIT]))
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    cut = "" if len(text) <= _LIMIT else "<p>… cut: the rest is in the logs to download.</p>"
    return mark_safe(clean + cut)  # noqa: S308 (cleaned by nh3 the line before)
