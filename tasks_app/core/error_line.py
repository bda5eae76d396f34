"""How a command says what went wrong: `error:` in red on a terminal, the rest plain."""

from __future__ import annotations

import os
from typing import Protocol


class Terminal(Protocol):
    def isatty(self) -> bool: ...


def error_line(message: str, stream: Terminal, *, no_color: bool = False) -> str:
    """Return the message as a line for `stream`. https://no-color.org"""
    word = "error:"
    if stream.isatty() and not no_color and not os.environ.get("NO_COLOR"):
        word = "\x1b[31merror:\x1b[0m"
    return f"{word} {message}\n"
