"""Commands of a line of bash, read as bash reads them: comments, redirections, here-documents, substitutions.

This is the only reader of shell lines: the gate, the recognition of questions and validation use it. It runs
nothing, so it cannot know some text: a variable that the line does not set, the output of a command, a file
name with wildcards. The words contain marks in place of such text (`shell_words.py`). Standard library only:
the gate's program loads this file.
"""

from __future__ import annotations

import bisect
import re

from tasks_app.agent.gate.shell_words import (
    ASSIGNMENT,
    BLANKS,
    UNKNOWN,
    UNKNOWN_WORD,
    WordReader,
    without_marks,
)

_OPERATOR = re.compile(r";;?&?|&&?|\|[|&]?|[()\n]")
_REDIRECTION = re.compile(r"&>>?|<<<|<>|[<>]&|>>|>\||[<>]")
_HEREDOC = re.compile(r"<<(?!<)(-?)[ \t]*")
_DELIMITER = re.compile(r"(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|()<>'\"\\])+")
_NAME = re.compile(r"(?<![\w${])[A-Za-z_]\w*")
#: Words before a command that are not part of it.
KEYWORDS = {"if", "then", "elif", "else", "while", "until", "do", "{", "!"}
_BEFORE_ARITHMETIC = {*KEYWORDS, "for"}


class Command:
    """The words of a simple command, and the texts that are its input.

    A `nested` command stands in a substitution or a here-document: bash runs it for its output.
    """

    def __init__(self, words: list[str], inputs: list[str], *, nested: bool) -> None:
        self.words = words
        self.inputs = inputs
        self.nested = nested


def read(text: str) -> list[Command]:
    """Return the simple commands of a line. Those in a substitution precede the command that contains it.

    Raises ValueError if a quote or a bracket never ends.
    """
    reader = _Reader(without_marks(text))
    reader.read_commands("")
    return reader.found


def read_script(text: str) -> list[Command]:
    """Do the same as `read` for text that was itself read from a line, and may contain marks."""
    reader = _Reader(text)
    reader.read_commands("")
    return reader.found


class _Reader(WordReader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: list[Command] = []
        self._positions_by_line: dict[str, list[tuple[int, int]]] | None = None
        self._name_counts: dict[str, int] | None = None
        self._nesting = 0
        self._inputs: list[str] = []
        self._open_heredocs: list[tuple[list[str], str, bool, bool]] = []

    def read_commands(self, end: str) -> None:
        """Read up to the bracket that ends this substitution, or to the end of the text if `end` is ""."""
        outer, self._inputs = self._inputs, []
        self._read_commands(end)
        self._inputs = outer

    def _read_commands(self, end: str) -> None:
        words: list[str] = []
        depth = 0
        cases: list[bool] = []  # for each open `case`: whether a pattern is expected here
        while self.at < len(self.text):
            in_pattern = bool(cases) and cases[-1]
            if end and depth == 0 and not in_pattern and self._is_next(end):
                self.at += 1
                self._add_command(words)
                return
            if self._is_next("((") and _BEFORE_ARITHMETIC.issuperset(words) and self._skip_arithmetic(2):
                words = []
                continue
            if operator := self._read_operator(words):
                words = self._end_command(operator, words, cases)
                if not in_pattern:
                    depth = max(0, depth + (operator == "(") - (operator == ")"))
            elif not self._skip_non_word():
                word, split = self._read_word()
                if not split:
                    words.append(word)
                else:
                    words += word.split() or filter(None, [word])
                # A `case` begins with the word `in`, and ends with `esac`, maybe in place of a pattern.
                if words[-1:] == ["in"] and words[-3:-2] == ["case"]:
                    cases.append(True)
                    words = []
                elif words == ["esac"] and cases:
                    cases.pop()
        if end:
            raise ValueError("a substitution never ends")
        self._add_command(words)

    def _end_command(self, operator: str, words: list[str], cases: list[bool]) -> list[str]:
        """End the command at an operator and return the words of the next one, which are none yet."""
        if cases and cases[-1]:
            cases[-1] = operator != ")"  # `a | b)` are patterns, not commands
            self._inputs = []
            return []
        if cases and (operator.startswith(";;") or operator == ";&"):
            cases[-1] = True
        self._add_command(words)
        return []

    def _read_operator(self, words: list[str]) -> str:
        """Read the operator that ends a simple command, if any. After a line read its here-documents, too."""
        found = _OPERATOR.match(self.text, self.at)
        if found is None or self._is_next("&>"):
            return ""
        self.at = found.end()
        in_test = "[[" in words and words[-1] != "]]" and KEYWORDS.issuperset(words[: words.index("[[")])
        if in_test:  # in an open `[[ … ]]` `&&` and brackets end no command
            return ""
        if found[0] == "\n":
            self._read_heredocs()
        return found[0]

    def _skip_non_word(self) -> bool:
        """Skip blanks, comments, and redirections with their files. Return whether there was any of them."""
        if self.at >= len(self.text):
            return True
        char = self.text[self.at]
        if char in BLANKS or self._is_next("\\\n"):
            self.at += 2 if char == "\\" else 1
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif heredoc := _HEREDOC.match(self.text, self.at):
            named = _DELIMITER.match(self.text, heredoc.end())
            if named is None:
                raise ValueError("a here-document has no name")
            self.at = named.end()
            quoted = any(char in named[0] for char in "'\"\\")
            name = re.sub(r"'([^']*)'|\"([^\"]*)\"|\\(.)", r"\1\2\3", named[0])
            # The text follows after the end of the command, so remember the command's list of inputs.
            self._open_heredocs.append((self._inputs, name, quoted, heredoc[1] == "-"))
        elif not (self._is_next("<(") or self._is_next(">(")) and (
            redirection := _REDIRECTION.match(self.text, self.at)
        ):
            self.at = redirection.end()
            self._read_redirection_target(redirection[0])
        else:
            return False
        return True

    def _read_redirection_target(self, redirection: str) -> None:
        """Read the file's name, which is not a word of the command. A here-string is the command's input."""
        while self.at < len(self.text) and self.text[self.at] in BLANKS:
            self.at += 1
        if self.at < len(self.text) and not _OPERATOR.match(self.text, self.at):
            word, _ = self._read_word()
            if redirection == "<<<":
                self._inputs.append(word)
            elif redirection == "<" and word.startswith("/dev/fd/"):
                self._inputs.append(UNKNOWN)

    def _add_command(self, words: list[str]) -> None:
        inputs, self._inputs = self._inputs, []
        if not words:
            return
        self.found.append(Command(words, inputs, nested=self._nesting > 0))
        only_assigns = all(map(ASSIGNMENT.match, words))  # unlike `declare -n x=y`
        for word in words:
            if assigned := ASSIGNMENT.match(word):
                once = only_assigns and not self._nesting and self._count_mentions(assigned[1]) == 1
                self.values[assigned[1]] = assigned[2] if once else UNKNOWN
            elif word in self.values:  # `read x`, `printf -v x`, `for x in …`
                self.values[word] = UNKNOWN

    def _count_mentions(self, name: str) -> int:
        """Count how often the text names the variable without using its value, as to assign it."""
        if self._name_counts is None:
            self._name_counts = {}
            for found in _NAME.finditer(self.text):
                self._name_counts[found[0]] = self._name_counts.get(found[0], 0) + 1
        return self._name_counts.get(name, 0)

    def _skip_array(self) -> str:
        """Skip the elements of `name=(…)`."""
        self.at += 1
        while not self._is_next(")"):
            if self.at >= len(self.text):
                raise ValueError("a bracket never ends")
            if self.text[self.at] in "\n(;|&":
                self.at += 1
            elif not self._skip_non_word():
                self._read_word()
        self.at += 1
        return UNKNOWN

    def _read_substitution(self) -> str:
        """Read the commands up to the bracket. Only of `cat <<EOF` the output is known."""
        before = len(self.found)
        self._nesting += 1
        self.read_commands(")")
        self._nesting -= 1
        inner = self.found[before:]
        if len(inner) == 1 and inner[0].words == ["cat"] and len(inner[0].inputs) == 1:
            return inner[0].inputs[0].rstrip("\n").replace(UNKNOWN, UNKNOWN_WORD)
        return UNKNOWN

    def _read_nested(self, text: str, *, as_commands: bool = False) -> None:
        """Read a separate text, of which only the commands count."""
        inner = _Reader(text)
        inner.values = self.values
        inner._nesting = self._nesting + 1
        if as_commands:
            inner.read_commands("")
        else:
            inner._read_double_quoted(end="")
        self.found += inner.found

    def _read_heredocs(self) -> None:
        """Read the here-documents that this line began. One that never ends is read as commands."""
        heredocs, self._open_heredocs = self._open_heredocs, []
        for inputs, name, quoted, tabs in heredocs:
            found = self._find_heredoc_end(name, quoted, tabs)
            if found is None:
                return
            body = self.text[self.at : found[0]]
            self.at = found[1]
            inputs.append(body)
            if not quoted:
                self._read_nested(body)

    def _find_heredoc_end(self, name: str, quoted: bool, tabs: bool) -> tuple[int, int] | None:
        """Return where the line that ends a here-document begins and ends, or None."""
        lines = self._line_positions().get(name, [])
        for begin, end in lines[bisect.bisect_left(lines, (self.at, 0)) :]:
            indent = len(self.text[begin:end]) - len(self.text[begin:end].lstrip("\t"))
            slashes = 0
            while self.text[max(0, begin - 2 - slashes)] == "\\":
                slashes += 1
            if (tabs or not indent) and (quoted or slashes % 2 == 0):
                return begin, min(end + 1, len(self.text))
        return None

    def _line_positions(self) -> dict[str, list[tuple[int, int]]]:
        """Map each line's text without leading tabs to where such lines begin and end. Made only once."""
        if self._positions_by_line is None:
            self._positions_by_line = {}
            begin = 0
            for line in self.text.split("\n"):
                self._positions_by_line.setdefault(line.lstrip("\t"), []).append((begin, begin + len(line)))
                begin += len(line) + 1
        return self._positions_by_line
