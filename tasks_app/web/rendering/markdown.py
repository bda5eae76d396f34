"""Render Markdown of agents and people as safe HTML."""

from __future__ import annotations

import re
from itertools import chain

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from tasks_app.core.text import strip_controls


def _underscores(state: StateInline, silent: bool) -> bool:
    """Take underscores for text: `pkg/__main__.py` is a name and not emphasis. Asterisks emphasise."""
    if state.src[state.pos] != "_":
        return False
    if not silent:
        state.pending += "_"
    state.pos += 1
    return True


# Pictures are left out: a picture from elsewhere tells its host who reads the log, and when.
# Entities stay as written: `&#233;` in a sentence about HTML is what the sentence is about.
_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_parser.disable(["image", "entity"])
_parser.inline.ruler.before("emphasis", "underscores", _underscores)
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
    *("h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"),
}
_LIMIT = 200_000
#: Signs of Markdown, line ends among them. Each is looked at for some 25 µs, and a text of nothing else takes
#: seconds: one with more of them than any that people read is shown as it is.
_SIGNS = "[]*_`~|!<>&\\#-\n"
_MOST_SIGNS = 20_000
#: Characters of addresses in all links together: a long one can be named once and used ten thousand times.
_ADDRESSES = 200_000
#: Tokens that hold text, and those that part no words from one another.
_SAYS = {"text", "code_inline", "code_block", "fence"}
_WITHIN = {f"{name}_{end}" for name in ("em", "strong", "s", "link") for end in ("open", "close")}
#: An end that was cut off is `code` too.
_BOXES = {"[ ] ": "☐ ", "[x] ": "☑ "}
#: Two asterisks within a word or a formula mean something else.
_STRONG = re.compile(r"(?<![\w*])\*\*(?=[^\s*])([^*\n]+?)(?<=\S)\*\*(?![\w*])")
_BOLD = r"<strong>\1</strong>"
_CODE = re.compile(r"`([^`\n]+(?:`|…$))")


def render_markdown(text: str) -> SafeString:
    """Render Markdown without raw HTML and images, and only with links to http, https and mailto.

    Headings begin two levels down: a page has one h1, and its own h2 stand above what others wrote.
    """
    shown = strip_controls(text[:_LIMIT])
    cut = "" if len(text) <= _LIMIT else "<p>… cut: the rest is in the logs to download.</p>"
    if _is_bomb(shown):
        return mark_safe(f"<pre>{escape(shown)}</pre>{cut}")  # noqa: S308 (escaped here)
    tokens = _parser.parse(shown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    _mark_tasks(tokens)
    _bound_addresses(tokens)
    html = _parser.renderer.render(tokens, _parser.options, {})
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean + cut)  # noqa: S308 (cleaned by nh3 the line before)


def _mark_tasks(tokens: list[Token]) -> None:
    """Show `- [ ] text` and `- [x] text` with a box, as forges do."""
    for before, opened, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (before.type, opened.type, token.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        first = next(iter(token.children or ()), None)
        if first is not None and first.type == "text" and (box := _BOXES.get(first.content[:4].lower())):
            first.content = box + first.content[4:]


def _bound_addresses(tokens: list[Token]) -> None:
    """Turn links after a maximum number into plain text."""
    left = _ADDRESSES
    for token in chain.from_iterable(token.children or () for token in tokens):
        left -= sum(len(str(value)) for value in token.attrs.values())
        if left < 0:
            token.attrs.clear()


def plain_text(text: str) -> str:
    """Return the text of Markdown in one line, without its signs. It must still be escaped for a page."""
    shown = strip_controls(text[:_LIMIT])
    said = shown if _is_bomb(shown) else "".join(map(_text_of, _parser.parse(shown)))
    return " ".join(said.split())


def _is_bomb(text: str) -> bool:
    return len(text) > _MOST_SIGNS and sum(map(text.count, _SIGNS)) > _MOST_SIGNS


def _text_of(token: Token) -> str:
    if inner := "".join(map(_text_of, token.children or ())):
        return inner
    if token.type in _SAYS:
        return token.content
    return "" if token.type in _WITHIN else " "


def render_inline(text: str) -> SafeString:
    """Render one line: `this` as code, **this** as strong, all else as text."""
    shown = [
        f"<code>{escape(part.removesuffix('`'))}</code>" if number % 2 else _STRONG.sub(_BOLD, escape(part))
        for number, part in enumerate(_CODE.split(strip_controls(text)))
    ]
    return mark_safe("".join(shown))  # noqa: S308 (every part is escaped above)
