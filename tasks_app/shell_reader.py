"""A line of bash read as bash reads it: quotes, comments, substitutions, redirections, here-documents.

Standard library only: the gate's program loads this file in the agent's jail.
"""

from __future__ import annotations

import re

#: Characters that variables may put into one line.
MOST_EXPANDED = 100_000
_BLANK = " \t\r"
_OPERATOR = re.compile(r";;?&?|&&?|\|[|&]?|[()\n]")
_REDIRECTION = re.compile(r"&>>?|<<<|<>|[<>]&|>>|>\||[<>]")
_HEREDOC = re.compile(r"<<(?!<)(-?)[ \t]*")
_DELIMITER = re.compile(r"(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|()<>'\"\\])+")
#: What stands before a redirection as the number of a file: the 2 of `2>x`, and `{fd}>x`.
_FILE_NUMBER = re.compile(r"\A(\d+|\{\w+\})\Z")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ASSIGNMENT = re.compile(r"\A([A-Za-z_]\w*)\+?=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_WITH_DEFAULT = re.compile(r"\A(!?\w+|[@*])(?::?[-=+](.*))?", re.DOTALL)


class Read:
    """Words of each simple command, those in substitutions too; and here-documents, which are text."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.heredocs: list[str] = []


def read(text: str) -> Read:
    """Raises ValueError for what never ends: a quote, a bracket."""
    reader = _Reader(text)
    reader.commands_until("")
    return reader.found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found = Read()
        #: What the line itself assigned; any other variable is taken for empty.
        self.values: dict[str, str] = {"IFS": " "}
        self._expanded = 0
        self._waiting: list[tuple[str, bool, bool]] = []

    def commands_until(self, end: str) -> None:
        """Up to the bracket or backtick that ends this substitution; "" for the end of the text."""
        words: list[str] = []
        depth = cases = 0
        arithmetic = self._starts("(")
        while self.at < len(self.text):
            if end and self._starts(end) and depth == 0 and not (cases > 0 and end == ")"):
                self.at += 1
                self._end_of(words)
                return
            if operator := self._operator():
                depth = max(0, depth + (operator == "(") - (operator == ")"))
                self._end_of(words)
                words = []
                arithmetic = operator != "\n" and (arithmetic or (operator == "(" and self._starts("(")))
            elif not self._aside(words, arithmetic):
                word, split = self._word()
                cases += (word == "case") - (word == "esac")
                words += word.split() if split else [word]
        if end:
            raise ValueError("a substitution never ends")
        self._end_of(words)

    def _operator(self) -> str:
        """What ends a simple command, if it stands here; behind a line stand its here-documents."""
        found = _OPERATOR.match(self.text, self.at)
        if found is None or self._starts("&>"):
            return ""
        self.at = found.end()
        if found[0] == "\n":
            self._bodies()
        return found[0]

    def _aside(self, words: list[str], arithmetic: bool) -> bool:
        """Step over what is no word: blanks, comments, redirections with their files."""
        char = self.text[self.at]
        if char in _BLANK or self._starts("\\\n"):
            self.at += 2 if char == "\\" else 1
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif self._starts("<(") or self._starts(">("):
            self.at += 2
            self.commands_until(")")
            words.append("/dev/fd/63")
        elif not arithmetic and (heredoc := _HEREDOC.match(self.text, self.at)):
            self._heredoc(heredoc)
        elif redirection := _REDIRECTION.match(self.text, self.at):
            self.at = redirection.end()
            self._file(redirection[0], words)
        else:
            return False
        return True

    def _file(self, redirection: str, words: list[str]) -> None:
        """The file's name is no word of the command; a here-string is, since a shell may read it."""
        while self._blank():
            self.at += 1
        if self.at < len(self.text) and not _OPERATOR.match(self.text, self.at):
            word, _ = self._word()
            if redirection == "<<<":
                self.found.heredocs.append(word)

    def _blank(self) -> bool:
        return self.at < len(self.text) and self.text[self.at] in _BLANK

    def _starts(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _end_of(self, words: list[str]) -> None:
        if words:
            self.found.commands.append(words)
        for word in words:
            if assigned := _ASSIGNMENT.match(word):
                self.values[assigned[1]] = assigned[2]

    def _word(self) -> tuple[str, bool]:
        """The word that begins here, and whether what variables put into it is split at blanks."""
        parts: list[str] = []
        split = False
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _BLANK + ";&|()<>\n":
                break
            if char in "$`":
                value = self._expansion()
                split = split or value is not None
                parts.append("$" if value is None else value)
            elif char in "'\"\\":
                parts.append(self._quoted(char))
            else:
                parts.append(char)
                self.at += 1
        if self.text[self.at : self.at + 1] in ("<", ">") and _FILE_NUMBER.match(self.text[begin : self.at]):
            return "", True
        return "".join(parts), split and not _ASSIGNMENT.match("".join(parts))

    def _quoted(self, char: str) -> str:
        if char == "'":
            return self._until("'", self.at + 1)
        self.at += 1
        if char == '"':
            return self._in_quotes()
        taken = self.text[self.at : self.at + 1]
        self.at += 1
        return "" if taken == "\n" else taken

    def _until(self, end: str, begin: int) -> str:
        found = self.text.find(end, begin)
        if found < 0:
            raise ValueError("a quote never ends")
        self.at = found + 1
        return self.text[begin:found]

    def _in_quotes(self, end: str = '"') -> str:
        """Text between double quotes, in which expansions still are made."""
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == end:
                self.at += 1
                return "".join(parts)
            if char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                parts.append("" if after == "\n" else after if after in '$`"\\' else "\\" + after)
                self.at += 2
            elif char in "$`":
                value = self._expansion(in_quotes=True)
                parts.append("$" if value is None else value)
            else:
                parts.append(char)
                self.at += 1
        if end:
            raise ValueError("a quote never ends")
        return "".join(parts)

    def _expansion(self, *, in_quotes: bool = False) -> str | None:
        """What stands for it, as far as that is known; None for a dollar that is only one."""
        if self._starts("`"):
            self.at += 1
            self._backticks()
            return ""
        if self._starts("$("):
            self.at += 2
            self.commands_until(")")
            return ""
        if self._starts("${"):
            self.at += 2
            return self._parameter()
        if not in_quotes and self._starts("$'"):
            return self._with_escapes()
        if not in_quotes and self._starts('$"'):
            self.at += 2
            return self._in_quotes()
        if named := _VARIABLE.match(self.text, self.at):
            self.at = named.end()
            return self._value(named[1])
        self.at += 1
        return None

    def _value(self, name: str) -> str:
        """Raises ValueError where values in values grow without end."""
        value = self.values.get(name, "")
        self._expanded += len(value)
        if self._expanded > MOST_EXPANDED:
            raise ValueError("too long")
        return value

    def _backticks(self) -> None:
        """Their own backslashes are taken off first, so backticks can stand in backticks."""
        begin = self.at
        while not self._starts("`"):
            if self.at >= len(self.text):
                raise ValueError("a backtick never ends")
            self.at += 2 if self._starts("\\") else 1
        inner = _Reader(re.sub(r"\\([\\`$])", r"\1", self.text[begin : self.at]))
        inner.values = self.values
        inner.commands_until("")
        self.found.commands += inner.found.commands
        self.found.heredocs += inner.found.heredocs
        self.at += 1

    def _parameter(self) -> str:
        """`${name}`, or with a value of its own: `${name:-value}`."""
        inner = self._in_braces()
        named = _WITH_DEFAULT.match(inner)
        if named is None:
            return ""
        return self._value(named[1]) or named[2] or ""

    def _in_braces(self) -> str:
        parts: list[str] = []
        while not self._starts("}"):
            if self.at >= len(self.text):
                raise ValueError("a bracket never ends")
            char = self.text[self.at]
            if char in "$`":
                parts.append(self._expansion() or "")
            elif char in "'\"\\":
                parts.append(self._quoted(char))
            else:
                parts.append(char)
                self.at += 1
        self.at += 1
        return "".join(parts)

    def _with_escapes(self) -> str:
        found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if found is None:
            raise ValueError("a quote never ends")
        self.at = found.end()
        return _ESCAPE.sub(_unescaped, found[1])

    def _heredoc(self, begin: re.Match[str]) -> None:
        named = _DELIMITER.match(self.text, begin.end())
        if named is None:
            raise ValueError("a here-document has no name")
        self.at = named.end()
        quoted = any(char in named[0] for char in "'\"\\")
        name = re.sub(r"'([^']*)'|\"([^\"]*)\"|\\(.)", r"\1\2\3", named[0])
        self._waiting.append((name, quoted, begin[1] == "-"))

    def _bodies(self) -> None:
        """The here-documents that this line began. One that never ends is read as commands."""
        waiting, self._waiting = self._waiting, []
        for name, quoted, tabs in waiting:
            found = self._ending(name, quoted, tabs)
            if found is None:
                return
            body = self.text[self.at : found[0]]
            self.at = found[1]
            self.found.heredocs.append(body)
            if not quoted:
                inner = _Reader(body)
                inner.values = self.values
                inner._in_quotes(end="")
                self.found.commands += inner.found.commands

    def _ending(self, name: str, quoted: bool, tabs: bool) -> tuple[int, int] | None:
        """Where the line that ends a here-document begins and ends."""
        before = "\t*" if tabs else ""
        line = re.compile(f"^{before}{re.escape(name)}(?:\\n|\\Z)", re.MULTILINE)
        for found in line.finditer(self.text, self.at):
            slashes = 0
            while self.text[max(0, found.start() - 2 - slashes)] == "\\":
                slashes += 1
            if quoted or slashes % 2 == 0:
                return found.span()
        return None


def _unescaped(found: re.Match[str]) -> str:
    written = found[1]
    if written[0] in "xuU" and len(written) > 1:
        code = int(written[1:], 16)
        return chr(code) if code < 0x110000 else ""
    if written[0] in "01234567":
        return chr(int(written, 8) & 0xFF)
    return _ESCAPED.get(written, written if written in "'\"\\?" else f"\\{written}")
