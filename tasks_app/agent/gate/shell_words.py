"""Words of a line of bash, read as bash reads them: quotes, escapes, variables, substitutions.

`shell_reader.py` reads the commands that the words belong to. Standard library only: the gate's program loads
this file.
"""

from __future__ import annotations

import re

#: Marks in words: for unknown text that may be several words; for unknown text within double quotes, which is
#: one word; and before each character that bash may replace (wildcards, braces, a tilde).
UNKNOWN, UNKNOWN_WORD, REPLACED = "\0", "\1", "\2"
#: Maximum characters that variables may insert into one line.
MOST_EXPANDED = 100_000
BLANKS = " \t\r"
#: What stands before a redirection as the number of a file: the 2 of `2>x`, and `{fd}>x`.
_FILE_NUMBER = re.compile(r"\A(\d+|\{\w+\})\Z")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
ASSIGNMENT = re.compile(r"\A([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_PLAIN_NAME = re.compile(r"\A[A-Za-z_]\w*\Z")
_BRACES = re.compile(r"\{[^\s{}]{0,200}(?:,|\.\.)[^\s{}]{0,200}\}?")
_CLASS = re.compile(r"[^\s\]]{1,200}\]")
_ARRAY = re.compile(r"\A[A-Za-z_]\w*\+?=\Z")
_MARKS = re.compile(f"[{UNKNOWN}{UNKNOWN_WORD}{REPLACED}]")
#: Text that bash takes as it is written: an operator between commands, blanks, or a part of a word.
_PLAIN = re.compile(
    r"(?P<operator>&&|\|\||;|\n)|(?P<blanks>(?:[ \t]|\\\n)+)|(?P<bare>[\w@%+=:,./-]+)|'(?P<single>[^'\0]*)'"
    r"|\"(?P<double>(?:[^\"\\$`\0]|\\[^\0])*)\"|\\(?P<escaped>[^\n\0])"
)
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r"\\([$`\"\\\n])")


def plain_commands(line: str) -> list[list[str]] | None:
    """Return the commands of a line, as words, if bash changes nothing in any of them; None otherwise.

    Nothing in them is guessed: an expansion, a substitution, a pattern of file names, a redirection, a pipe,
    a here-document, a group or a comment anywhere in the line makes it None.
    """
    commands: list[list[str]] = [[]]
    at, in_word = 0, False
    while at < len(line):
        found = _PLAIN.match(line, at)
        if found is None:
            return None
        at = found.end()
        if found["operator"]:
            commands.append([])
        if found["operator"] or found["blanks"]:
            in_word = False
            continue
        text = found["bare"] or found["single"] or found["escaped"] or ""
        if found["double"]:
            text = _ESCAPED_IN_DOUBLE_QUOTES.sub(lambda one: one[1].replace("\n", ""), found["double"])
        if in_word:
            commands[-1][-1] += text
        else:
            commands[-1].append(text)
        in_word = True
    return [words for words in commands if words]


def plain(word: str) -> str:
    """Return the word without its marks, that is, without unknown text."""
    return _MARKS.sub("", word)


def without_marks(text: str) -> str:
    """Replace marks in text that was not read yet by blanks, so that nobody can forge them."""
    return _MARKS.sub(" ", text) if _MARKS.search(text) else text


def is_known(word: str) -> bool:
    return _MARKS.search(word) is None


class WordReader:
    """Reads the words of a line. A subclass reads the commands inside of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: Values of variables that the line itself sets, once; any other variable is not known.
        self.values: dict[str, str] = {}
        self._expanded = 0

    def _skip_array(self) -> str:
        """Skip the elements of `name=(…)` and return what stands for them."""
        raise NotImplementedError

    def _read_substitution(self) -> str:
        """Read the commands up to the closing bracket and return what is known of their output."""
        raise NotImplementedError

    def _read_nested(self, text: str, *, as_commands: bool = False) -> None:
        """Read another text, of which only the commands count."""
        raise NotImplementedError

    def _is_next(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _read_word(self) -> tuple[str, bool]:
        """Read a word. Return it, and whether bash splits it at blanks that came from variables."""
        parts: list[str] = []
        split = False
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if self._is_next("<(") or self._is_next(">("):
                self.at += 2
                self._read_substitution()
                parts.append("/dev/fd/63")
            elif char in BLANKS + ";&|()<>\n":
                break
            elif char in "$`":
                split = split or self.text[self.at + 1 : self.at + 2] not in "'\""
                value = self._read_expansion()
                parts.append("$" if value is None else value)
            elif char in "'\"\\":
                parts.append(self._read_quoted(char))
            else:
                parts.append(self._read_unquoted(char, first=self.at == begin))
        if self.text[self.at : self.at + 1] in ("<", ">") and _FILE_NUMBER.match(self.text[begin : self.at]):
            return "", True
        word = "".join(parts)
        if self._is_next("(") and _ARRAY.match(word):
            word += self._skip_array()
        return word, split and not ASSIGNMENT.match(word)

    def _read_unquoted(self, char: str, *, first: bool) -> str:
        """Read a character, marked if bash may replace it."""
        if char in "@+?*" and self.text[self.at + 1 : self.at + 2] == "(":
            self.at = self._after_closing_bracket(self.at + 2)  # `@(a|b)`
            return UNKNOWN
        if char == "{" and (braces := _BRACES.match(self.text, self.at)):
            self.at += len(braces[0])
            return "".join(REPLACED + one for one in braces[0])
        self.at += 1
        replaced = char in "?*" or (char == "~" and first)
        if char == "[" and _CLASS.match(self.text, self.at):
            replaced = True
        return REPLACED + char if replaced else char

    def _after_closing_bracket(self, at: int) -> int:
        """Return the position after the bracket that closes one opened before `at`."""
        depth = 1
        while depth:
            if at >= len(self.text):
                raise ValueError("a bracket never ends")
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 2 if self.text[at] == "\\" else 1
        return at

    def _read_quoted(self, char: str) -> str:
        if char == "'":
            begin = self.at + 1
            end = self.text.find("'", begin)
            if end < 0:
                raise ValueError("a quote never ends")
            self.at = end + 1
            return self.text[begin:end]
        self.at += 1
        if char == '"':
            return self._read_double_quoted()
        taken = self.text[self.at : self.at + 1]
        self.at += 1
        return "" if taken == "\n" else taken

    def _read_double_quoted(self, end: str = '"') -> str:
        """Read text between double quotes, in which bash expands variables and substitutions."""
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == end:
                self.at += 1
                return "".join(parts)
            if char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                if after != "\n":
                    parts.append(after if after in '$`"\\' else "\\" + after)
                self.at += 2
            elif char in "$`":
                value = self._read_expansion(in_quotes=True)
                parts.append("$" if value is None else value.replace(UNKNOWN, UNKNOWN_WORD))
            else:
                parts.append(char)
                self.at += 1
        if end:
            raise ValueError("a quote never ends")
        return "".join(parts)

    def _read_expansion(self, *, in_quotes: bool = False) -> str | None:
        """Read an expansion. Return its value or a mark; None for a dollar sign that is only text."""
        if self._is_next("`"):
            self.at += 1
            return self._read_backticks()
        if self._is_next("$((") and self._skip_arithmetic(3):
            return "0"
        if self._is_next("$("):
            self.at += 2
            return self._read_substitution()
        if self._is_next("${"):
            self.at += 2
            return self._read_parameter()
        if not in_quotes and self._is_next("$'"):
            found = _ANSI_QUOTED.match(self.text, self.at)
            if found is None:
                raise ValueError("a quote never ends")
            self.at = found.end()
            return _ESCAPE.sub(_unescape, found[1])
        if not in_quotes and self._is_next('$"'):
            self.at += 2
            return self._read_double_quoted()
        if named := _VARIABLE.match(self.text, self.at):
            self.at = named.end()
            return self._variable_value(named[1])
        self.at += 1
        return None

    def _variable_value(self, name: str) -> str:
        """Return the variable's value or a mark. Raises ValueError if values in values grow without end."""
        # If the line sets IFS, bash splits values at other characters than blanks.
        value = UNKNOWN if "IFS" in self.values else self.values.get(name, UNKNOWN)
        self._expanded += len(value)
        if self._expanded > MOST_EXPANDED:
            raise ValueError("too long")
        return value

    def _skip_arithmetic(self, opening: int) -> bool:
        """Skip `((…))` or `$((…))` and read the substitutions in it. Return False if it is a subshell."""
        try:
            end = self._after_closing_bracket(self.at + opening)
        except ValueError:
            return False
        if not self.text.startswith(")", end):
            return False
        self._read_nested(self.text[self.at + opening : end - 1])
        self.at = end + 1
        return True

    def _read_backticks(self) -> str:
        """Read a substitution in backticks, after removing its own backslashes: backticks can be nested."""
        begin = self.at
        while not self._is_next("`"):
            if self.at >= len(self.text):
                raise ValueError("a backtick never ends")
            self.at += 2 if self._is_next("\\") else 1
        self._read_nested(re.sub(r"\\([\\`$])", r"\1", self.text[begin : self.at]), as_commands=True)
        self.at += 1
        return UNKNOWN

    def _read_parameter(self) -> str:
        """Read `${name}`. With anything else between the braces the value is not known."""
        parts: list[str] = []
        while not self._is_next("}"):
            if self.at >= len(self.text):
                raise ValueError("a bracket never ends")
            char = self.text[self.at]
            if char in "$`":
                parts.append(self._read_expansion() or "$")
            elif char in "'\"\\":
                parts.append(self._read_quoted(char))
            else:
                parts.append(char)
                self.at += 1
        self.at += 1
        name = "".join(parts)
        if _PLAIN_NAME.match(name):
            return self._variable_value(name)
        return UNKNOWN


def _unescape(found: re.Match[str]) -> str:
    written = found[1]
    if written[0] in "xuU" and len(written) > 1:
        code = int(written[1:], 16)
        return chr(code) if code < 0x110000 else ""
    if written[0] in "01234567":
        return chr(int(written, 8) & 0xFF)
    return _ESCAPED.get(written, written if written in "'\"\\?" else f"\\{written}")
