"""Write to a terminal, file or pipe, with terminal escapes removed from agents' texts."""

from __future__ import annotations

import sys
import textwrap
from typing import IO, Any, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks_app.core.control_characters import strip_controls

#: Width of tables in files and pipes.
_PIPE_COLUMNS = 200


class Screen:
    """A rich console for plain text: no markup, and no terminal escapes from agents."""

    def __init__(self, file: Any, *, no_color: bool = False) -> None:
        self._console = Console(
            file=cast(IO[str], file),
            width=None if file.isatty() else _PIPE_COLUMNS,
            no_color=True if no_color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None

    @classmethod
    def errors(cls, *, no_color: bool = False) -> Screen:
        """Return a screen on standard error, for progress when standard output has the result."""
        return cls(sys.stderr, no_color=no_color)

    def say(self, text: str = "", *, indent: int = 0, style: str = "", wrap: bool = True) -> None:
        """Print lines, indented, and wrapped if this is a terminal."""
        for line in strip_controls(text).split("\n"):
            for piece in self._wrap(line, indent) if wrap else [line]:
                self._console.print(Text((" " * indent + piece).rstrip(), style=style), soft_wrap=True)

    def say_with_mark(self, mark: str, text: str, *, style: str = "") -> None:
        """Print a symbol and a text, with further lines indented below the first."""
        first, _, rest = strip_controls(text).partition("\n")
        self._console.print(Text.assemble((f"  {mark} ", style), (first, style)), soft_wrap=True)
        if rest:
            self.say(rest, indent=4, style=style)

    def prompt(self, text: str) -> None:
        """Print a prompt without a line end."""
        self._console.print(Text(text, style="bold"), end="", soft_wrap=True)

    def table(self, table: Table) -> None:
        self._console.print(table)

    @property
    def is_terminal(self) -> bool:
        """Whether lines can be overwritten."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def set_status(self, text: str) -> None:
        """Show a line below all others until the next call or `clear_status`; nothing in a file or pipe."""
        if not self.is_terminal:
            return
        line = Text(strip_controls(text).replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
            self._console.show_cursor()  # a killed process must not leave a hidden cursor behind
        self._live.update(line, refresh=True)

    def clear_status(self) -> None:
        """Remove the status line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _wrap(self, line: str, indent: int) -> list[str]:
        if not self._console.is_terminal:
            return [line]
        width = max(20, self._console.width - indent)
        return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
