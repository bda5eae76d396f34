"""Text of agents, people and repositories: shown without control characters, and storable.

`visible` is for text that a person judges: it shows such characters instead of removing them. Characters that
change the direction of text, so that it looks like another one, are shown everywhere.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

#: What a terminal would act on (ECMA-48): control sequences, operating system commands and other strings,
#: two-character escapes. No alternative runs past the next escape, so the time is linear in the text.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\-~]?"  # without [: a sequence without an end hides nothing
)
_LINE_END = re.compile(r"\r\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Unicode categories: control and format characters, surrogates, private use, line and paragraph separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}

_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")
#: Control characters except line ends and tabs, characters without width or ink, and those that change the
#: direction.
_HIDDEN = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def strip_controls(text: str, *, one_line: bool = False, directions: bool = False) -> str:
    """Remove terminal escapes and control characters. Line ends become LF; they and tabs stay.

    Characters that change the direction of text are shown by their numbers; with `directions` they stay. With
    `one_line`, the result is a single line: line ends, tabs and characters without width become blanks, and
    several blanks become one.
    """
    text = _LINE_END.sub("\n", _ESCAPES.sub("", text))
    if not directions:
        text = show_directions(text)
    if one_line:
        return " ".join(
            "".join(" " if unicodedata.category(one) in _INVISIBLE else one for one in text).split()
        )
    return _CONTROLS.sub("", text).encode(errors="replace").decode()


def show_directions(text: str) -> str:
    """Replace each character that overrides, embeds or isolates a direction of text: `⟨U+202E⟩`."""
    return _DIRECTIONS.sub(lambda found: _symbol(ord(found[0])), text)


def visible(text: str) -> str:
    """Replace each character that a reader would not see by a symbol or its number: `␛`, `⟨U+202E⟩`."""
    return _HIDDEN.sub(lambda found: _symbol(ord(found[0])), text.replace("\r\n", "\n"))


def in_one_line(text: str) -> str:
    """Do as `visible`, with symbols for line ends and tabs, too: for a name or a path."""
    return visible(text).replace("\n", "␊").replace("\t", "␉")


def lines_joined(text: str) -> str:
    """Return the text in one line. Blanks within a line stay: they may be what the text is about."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def _symbol(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


# Make agents' texts storable: databases accept no NUL, lone surrogates, or NaN in JSON.


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def shortened(text: str, limit: int) -> str:
    """Return the text, cut to at most `limit` characters between two words, with “…” at its end."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1].rstrip()
    words = cut if text[limit - 1].isspace() else cut.rpartition(" ")[0].rstrip()
    return f"{words if len(words) > limit // 2 else cut}…"


def storable(value: Any) -> Any:
    """Return a JSON value with U+FFFD for unstorable characters and text for NaN and infinity."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def storable_text(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def bounded(value: Any, limit: int) -> Any:
    """Return a JSON value with every text truncated to about `limit` characters, with a notice."""
    if isinstance(value, str):
        if len(value) <= limit:
            return value
        half = limit // 2
        omitted = len(value) - 2 * half
        notice = f"[… {omitted:,} characters are left out here; the raw log has them …]"
        return f"{value[:half]}\n{notice}\n{value[-half:]}"
    if isinstance(value, dict):
        return {key: bounded(inner, limit) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(inner, limit) for inner in value]
    return value
