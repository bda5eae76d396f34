"""Writing to a terminal, or plainly to a file or pipe. Agents' texts pass through here and do nothing."""

from __future__ import annotations

import sys
import textwrap
from typing import IO, Any, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks_app.core.control_characters import strip_controls

#: Columns of a table that goes into a file or pipe.
_PIPE_COLUMNS = 200


class Screen:
    """A console that takes texts, never markup; what comes from agents is freed of terminal escapes."""

    def __init__(self, file: Any, *, no_color: bool = False) -> None:
        self._console = Console(
            file=cast(IO[str], file),
            width=None if _is_terminal(file) else _PIPE_COLUMNS,
            no_color=True if no_color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None

    @classmethod
    def errors(cls, *, no_color: bool = False) -> Screen:
        """For progress, where standard output is kept for a result."""
        return cls(sys.stderr, no_color=no_color)

    def say(self, text: str = "", *, indent: int = 0, style: str = "", wrap: bool = True) -> None:
        """Lines of text, each indented; wrapped at a terminal's width, else left as they are."""
        for line in strip_controls(text).split("\n"):
            for piece in self._wrapped(line, indent) if wrap else [line]:
                self._console.print(Text((" " * indent + piece).rstrip(), style=style), soft_wrap=True)

    def say_with_mark(self, mark: str, text: str, *, style: str = "") -> None:
        """A sign and what it stands for, the further lines below the first."""
        first, _, rest = strip_controls(text).partition("\n")
        self._console.print(Text.assemble((f"  {mark} ", style), (first, style)), soft_wrap=True)
        if rest:
            self.say(rest, indent=4, style=style)

    def prompt(self, text: str) -> None:
        """What stands before the place where a person types."""
        self._console.print(Text(text, style="bold"), end="", soft_wrap=True)

    def table(self, table: Table) -> None:
        self._console.print(table)

    @property
    def is_terminal(self) -> bool:
        """Whether a line can be replaced here."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def stand(self, text: str) -> None:
        """One line below everything else, until the next one or `fall`; nothing in a file or pipe."""
        if not self.is_terminal:
            return
        line = Text(strip_controls(text).replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
            self._console.show_cursor()  # a process that is killed must not leave a terminal without one
        self._live.update(line, refresh=True)

    def fall(self) -> None:
        """Take the standing line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _wrapped(self, line: str, indent: int) -> list[str]:
        if not self._console.is_terminal:
            return [line]
        width = max(20, self._console.width - indent)
        return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def _is_terminal(file: Any) -> bool:
    return bool(file.isatty())
