"""The commands in a line of shell, as far as they are known without running it."""

from __future__ import annotations

import re

from tasks_app.agent.gate.possible_commands import ASSIGNMENT
from tasks_app.agent.gate.shell_reader import KEYWORDS, read
from tasks_app.agent.gate.shell_words import is_known

#: One argument; None where only the shell can tell what it will be.
Word = str | None

#: Constructs that only a shell can read: here-documents, functions, `case`.
_BEYOND = re.compile(r"<<|\w[ \t]*\([ \t]*\)|(?<![\w-])(?:case|select|function|coproc)[ \t]")
#: After these the next word is a command again.
_LEADING = {*KEYWORDS, "time", "exec", "command", "env", "nohup", "builtin"}
#: After these come words that are no commands, up to the end of the command.
_SKIPPED = {"for", "in"}


def simple_commands(line: str) -> list[tuple[Word, ...]]:
    """Return the commands of a shell line in order, each as its words; the first word is the program.

    Empty if the line cannot be read: the result is never a guess.
    """
    if _BEYOND.search(line):
        return []
    try:
        found = [_command(one.words) for one in read(line) if not one.nested]
    except (ValueError, RecursionError):  # a quote that is never closed, say
        return []
    return [words for words in found if words]


def _command(words: list[str]) -> tuple[Word, ...]:
    at = 0
    while at < len(words) and (words[at] in _LEADING or ASSIGNMENT.match(words[at])):
        at += 1
    if words[at : at + 1] and words[at] in _SKIPPED:
        return ()
    return tuple(word if is_known(word) else None for word in words[at:])
