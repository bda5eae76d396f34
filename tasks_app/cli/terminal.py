"""The terminal: lines read with a timeout, a screen without escapes of agents, and typed choices."""

from __future__ import annotations

import os
import select
import sys
import termios
import textwrap
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tasks_app.core.asked_items import label_of
from tasks_app.core.errors import AnswerInvalid, BadAmount
from tasks_app.core.text import strip_controls

#: Only pasted lines follow each other this fast.
_PASTED_SECONDS = 0.05


class Keyboard:
    """Unbuffered line reader of standard input, or of another descriptor that nobody else reads."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False
        try:
            self.is_terminal = os.isatty(descriptor)
        except OSError:
            self.is_terminal = False

    def read_line(self, seconds: float) -> str | None:
        """Return the next line without its line end, or None after the timeout. Raises EOFError at the end.

        The last line of a pipe needs no line end.
        """
        if b"\n" not in self._buffer:
            self._fill_buffer(seconds)
        if b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
        elif self._ended and self._buffer:
            line, self._buffer = self._buffer, b""
        elif self._ended:
            raise EOFError
        else:
            return None
        return line.removesuffix(b"\r").decode(errors="replace")

    def has_pasted_line(self) -> bool:
        """Return whether a terminal already has the next line, so that both were pasted together."""
        return self.is_terminal and (b"\n" in self._buffer or self._is_readable(_PASTED_SECONDS))

    def discard_input(self) -> None:
        """Discard what was typed before the question was shown. Input from a pipe is kept."""
        if self.is_terminal:
            self._buffer = b""
            flush_terminal(self._descriptor)

    def _fill_buffer(self, seconds: float) -> None:
        if self._ended or not self._is_readable(seconds):
            return
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # closed, or the terminal is gone
            data = b""
        self._buffer += data
        self._ended = not data

    def _is_readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def flush_terminal(descriptor: int = 0) -> None:
    """Discard unread input, also a partial line, which the shell would otherwise read after we end.

    Only in the foreground: the kernel stops a background job that does this. Harmless without a terminal.
    """
    try:
        in_background = os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not our controlling terminal, or no terminal
        in_background = False
    if not in_background:
        with suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)


# Write to a terminal, file or pipe, with terminal escapes removed from agents' texts.


#: Width of tables in files and pipes.
_PIPE_COLUMNS = 200
#: To this width `Screen.columns` cuts a column.
_NARROWEST = 12


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

    def say_markdown(self, text: str, *, indent: int = 0) -> None:
        """Print Markdown: rendered on a terminal, as it is elsewhere."""
        if not self._console.is_terminal:
            self.say(text, indent=indent)
            return
        from rich.markdown import Markdown  # takes 0.1 s

        # Without hyperlinks: an agent's link must show where it leads.
        rendered = Markdown(strip_controls(text), hyperlinks=False)
        self._console.print(Padding(rendered, (0, 0, 0, indent)))

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

    def columns(self, heads: Sequence[str], lines: Sequence[Sequence[Text]], *, shrink: int) -> None:
        """Print a table, one line a row. Where a terminal is too narrow, the column `shrink` is cut."""
        rows = [[Text(head, style="dim") for head in heads], *map(list, lines)]
        widths = [max(row[place].cell_len for row in rows) for place in range(len(heads))]
        if self.is_terminal:
            spare = self._console.width - sum(widths) - 2 * (len(widths) - 1)
            widths[shrink] = max(_NARROWEST, widths[shrink] + min(0, spare))
        for row in rows:
            for cell, width in zip(row, widths, strict=True):
                cell.truncate(width, overflow="ellipsis", pad=True)
            line = Text("  ").join(row)
            line.rstrip()
            self._console.print(line, soft_wrap=True)

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


# Turn what a person typed into the answer that the agent gets.


def resolve_choice(item: Mapping[str, Any], typed: str) -> str:
    """Resolve option numbers (from 1) and labels to labels; return any other text unchanged.

    In a multi-select item, choices are separated by commas and returned joined by ", ".
    """
    labels = [str(option["label"]) for option in item.get("options") or ()]
    if label := _find_label(typed, labels):
        return label
    if not item.get("multiSelect"):
        return typed
    parts = [part for part in typed.split(",") if part.strip()]
    picked = [_find_label(part, labels) for part in parts]
    if picked and all(picked):
        return ", ".join(dict.fromkeys(picked))
    return typed


def typed_answer(item: Mapping[str, Any], typed: str) -> str:
    """Return the answer that was typed to a clarification, as `resolve_choice` does.

    Where several options may be chosen, own words may stand behind them: “1, 3, and a test for it”.

    Raise AnswerInvalid for the number of an option that the agent would read as a text, or out of which it
    could not tell what was chosen.
    """
    answer, number = resolve_choice(item, typed), typed.strip()[:20]
    labels = [str(option["label"]) for option in item.get("options") or ()]
    if not labels or answer != typed:
        return answer
    named_by_numbers = any(character.isdigit() for label in labels for character in label)
    if number.isdecimal() and not named_by_numbers:
        raise AnswerInvalid(f"There is no option {number}. If you mean the number itself, write a sentence.")
    parts = [part.strip() for part in typed.split(",") if part.strip()]
    if not item.get("multiSelect") or not parts or not _find_label(parts[0], labels):
        return answer
    chosen = [_find_label(part, labels) or part for part in parts]
    own_words = [part for part in chosen if part not in labels]
    if unclear := next((part for part in own_words if part[0].isdigit()), None):
        raise AnswerInvalid(
            f"“{unclear}” is no option. Put a comma between options and your own words, "
            "such as “1, 3, and a test for it”."
        )
    return ", ".join(dict.fromkeys(chosen))


def amount_with_sign(typed: str) -> str:
    """Return what was typed at a soft cost limit. Raise BadAmount for a whole number: it means an option."""
    number = typed.strip()[:20]
    if number.isdecimal():
        raise BadAmount(f"There is no option {number}. Type an amount with its sign: ${number}.")
    return typed


def _find_label(text: str, labels: Sequence[str]) -> str:
    """Return the chosen label, or "". Labels go before numbers: options may be named 1 and 2.

    Case counts only where two labels differ by it.
    """
    if label := label_of(text, labels):
        return label
    if label := label_of(text.casefold(), [label.casefold() for label in labels]):
        alike = [other for other in labels if other.casefold() == label]
        return alike[0] if len(alike) == 1 else ""
    numbers = {str(number): label for number, label in enumerate(labels, start=1)}
    return numbers.get(text.strip(), "")


def open_page(url: str, screen: Screen) -> None:
    """Print the address of a page of the portal, and open it where there is a browser."""
    screen.say(url, wrap=False)
    # Without a display, a browser of the terminal would take it over.
    if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        webbrowser.open(url)
