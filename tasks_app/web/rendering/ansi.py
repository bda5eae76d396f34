"""Render terminal output: colours become CSS classes, other control sequences are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from tasks_app.core.control_characters import strip_controls

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
