"""The commands in a line of shell, as far as they can be told without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: One argument; None where only the shell can tell what it will be.
Word = str | None

_TOKEN = re.compile(
    r"""
      (?P<blank>   [ \t\r]+ | \\\n )
    | (?P<comment> (?<![^\s;&|()]) \#[^\n]* )
    | (?P<whole_redirect> [0-9]*[<>]&[0-9-]+ )
    | (?P<redirect> &>>? | [0-9]*(?: <> | >\| | >> | [<>] ) &? )
    | (?P<end>     && | \|\|? &? | ;;? | & | \n | [()] )
    | (?P<word>    (?: [^\s'"\\;&|()<>$`] | \\. | '[^']*' | "(?:\\.|[^"\\])*"
                     | \$\( [^()]* \) | \$ | `[^`]*` )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Too much of a language to be told by looking: here-documents, functions, `case`.
_BEYOND = re.compile(r"<<|\w[ \t]*\([ \t]*\)|(?<![\w-])(?:case|select|function|coproc)[ \t]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_NOT_LITERAL = re.compile(r"[$`*?{}~\[\]]")
_QUOTED = re.compile(r"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)\"""", re.DOTALL)

#: After these the next word is a command again.
_LEADING = {"!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "exec", "command", "env"}
_LEADING |= {"nohup", "builtin"}
#: After these come words that are no commands, up to the end of the command.
_SKIPPED = {"for", "in"}


@dataclass
class _Line:
    """One walk over the tokens of a line."""

    commands: list[tuple[Word, ...]] = field(default_factory=list)
    current: list[Word] = field(default_factory=list)
    skipping: bool = False

    def end(self) -> None:
        if self.current:
            self.commands.append(tuple(self.current))
        self.current, self.skipping = [], False

    def word(self, raw: str) -> None:
        if self.skipping or (not self.current and (_ASSIGNMENT.match(raw) or raw in _LEADING)):
            return
        if not self.current and raw in _SKIPPED:
            self.skipping = True
            return
        self.current.append(literal(raw))


def simple_commands(line: str) -> list[tuple[Word, ...]]:
    """The commands of a shell line in order, each as its words; the first word is the program.

    Empty where the line is beyond what can be told, never wrong by a guess.
    """
    if _BEYOND.search(line):
        return []
    walk, after_redirect = _Line(), False
    for kind, text in _tokens(line):
        if kind == "end":
            walk.end()
        elif kind == "word" and not after_redirect:
            walk.word(text)
        after_redirect = kind == "redirect"
        if kind == "unknown":
            return []
    walk.end()
    return walk.commands


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:  # a quote that is never closed, say
            yield "unknown", line[at:]
            return
        if match.lastgroup not in ("blank", "comment"):
            yield str(match.lastgroup), match.group()
        at = match.end()


def literal(raw: str) -> Word:
    """The word without its quotes; None if the shell would put something else in its place."""
    unquoted = _QUOTED.sub("", raw)
    inside = "".join(match["double"] or "" for match in _QUOTED.finditer(raw))
    if _NOT_LITERAL.search(unquoted) or re.search(r"[$`]", inside):
        return None
    return _QUOTED.sub(lambda match: match["escaped"] or match["single"] or match["double"] or "", raw)
