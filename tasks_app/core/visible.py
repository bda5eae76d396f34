"""Text that is judged before something is done with it: every character that could hide one is seen."""

from __future__ import annotations

import re

#: Controls but for line ends and tabs, signs that turn the direction of text, and those with no width.
_UNSEEN = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """The text with a sign or a number in place of each character that is not seen: `␛`, `⟨U+202E⟩`."""
    return _UNSEEN.sub(lambda found: _sign(ord(found[0])), text.replace("\r\n", "\n"))


def _sign(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
