"""A line of bash read as bash reads it: quotes, comments, substitutions, redirections, here-documents.

The one reader of shell lines: the gate, the recognition of questions and validation use it. Nothing is run,
so some text cannot be known: a variable that the line does not set, what a command prints, a file name with
wildcards. Such parts are marked in the words. Standard library only: the gate's program loads this file.
"""

from __future__ import annotations

import bisect
import re

#: Marks in words. Text that is not known and may be several words; the same within double quotes, one word;
#: and before each character that bash may replace: wildcards, braces, a tilde.
UNKNOWN, UNKNOWN_WORD, REPLACED = "\0", "\1", "\2"
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
_ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ASSIGNMENT = re.compile(r"\A([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_PLAIN_NAME = re.compile(r"\A[A-Za-z_]\w*\Z")
_BRACES = re.compile(r"\{[^\s{}]{0,200}(?:,|\.\.)[^\s{}]{0,200}\}?")
_CLASS = re.compile(r"[^\s\]]{1,200}\]")
_ARRAY = re.compile(r"\A[A-Za-z_]\w*\+?=\Z")
_NAME = re.compile(r"(?<![\w${])[A-Za-z_]\w*")
#: Words that stand before a command, and are none.
KEYWORDS = {"if", "then", "elif", "else", "while", "until", "do", "{", "!"}
_BEFORE_ARITHMETIC = {*KEYWORDS, "for"}
_MARKS = re.compile(f"[{UNKNOWN}{UNKNOWN_WORD}{REPLACED}]")


class Command:
    """The words of a simple command, and the texts that it is given as its input.

    `nested` is one in a substitution or a here-document: it is run for what it prints.
    """

    def __init__(self, words: list[str], inputs: list[str], *, nested: bool) -> None:
        self.words = words
        self.inputs = inputs
        self.nested = nested


def read(text: str) -> list[Command]:
    """The simple commands of a line, those in substitutions before the command that they are in.

    Raises ValueError for what never ends: a quote, a bracket.
    """
    reader = _Reader(_MARKS.sub(" ", text) if _MARKS.search(text) else text)
    reader.commands_until("")
    return reader.found


def read_script(text: str) -> list[Command]:
    """As `read`, for text that was itself read from a line and may have marks in it."""
    reader = _Reader(text)
    reader.commands_until("")
    return reader.found


def plain(word: str) -> str:
    """The word without its marks; what is not known is left out."""
    return _MARKS.sub("", word)


def is_known(word: str) -> bool:
    return _MARKS.search(word) is None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: list[Command] = []
        #: What the line itself assigned, once; any other variable is not known.
        self.values: dict[str, str] = {}
        self._places: dict[str, list[tuple[int, int]]] | None = None
        self._names: dict[str, int] | None = None
        self._expanded = 0
        self._nesting = 0
        self._inputs: list[str] = []
        self._waiting: list[tuple[list[str], str, bool, bool]] = []

    def commands_until(self, end: str) -> None:
        """Up to the bracket or backtick that ends this substitution; "" for the end of the text."""
        outer, self._inputs = self._inputs, []
        self._commands(end)
        self._inputs = outer

    def _commands(self, end: str) -> None:
        words: list[str] = []
        depth = 0
        cases: list[bool] = []  # for each `case` that is open: whether a pattern stands here
        while self.at < len(self.text):
            in_pattern = bool(cases) and cases[-1]
            if end and depth == 0 and not in_pattern and self._starts(end):
                self.at += 1
                self._end_of(words)
                return
            if self._starts("((") and _BEFORE_ARITHMETIC.issuperset(words) and self._arithmetic(2):
                words = []
                continue
            if operator := self._operator(words):
                words = self._after(operator, words, cases)
                if not in_pattern:
                    depth = max(0, depth + (operator == "(") - (operator == ")"))
            elif not self._aside():
                word, split = self._word()
                words += [piece for piece in word.split() or [word] if piece] if split else [word]
                _note_case(words, cases)
        if end:
            raise ValueError("a substitution never ends")
        self._end_of(words)

    def _after(self, operator: str, words: list[str], cases: list[bool]) -> list[str]:
        """The words of the next command once an operator ended these."""
        if cases and cases[-1]:
            cases[-1] = operator != ")"  # `a | b)`: patterns, and no commands
            self._inputs = []
            return []
        if cases and operator.startswith(";;"):
            cases[-1] = True
        if cases and operator == ";&":
            cases[-1] = True
        self._end_of(words)
        return []

    def _operator(self, words: list[str]) -> str:
        """What ends a simple command, if it stands here; behind a line stand its here-documents."""
        found = _OPERATOR.match(self.text, self.at)
        if found is None or self._starts("&>"):
            return ""
        if _in_test(words):
            self.at = found.end()
            return ""
        self.at = found.end()
        if found[0] == "\n":
            self._bodies()
        return found[0]

    def _aside(self) -> bool:
        """Step over what is no word: blanks, comments, redirections with their files."""
        if self.at >= len(self.text):
            return True
        char = self.text[self.at]
        if char in _BLANK or self._starts("\\\n"):
            self.at += 2 if char == "\\" else 1
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif heredoc := _HEREDOC.match(self.text, self.at):
            self._heredoc(heredoc)
        elif not (self._starts("<(") or self._starts(">(")) and (
            redirection := _REDIRECTION.match(self.text, self.at)
        ):
            self.at = redirection.end()
            self._file(redirection[0])
        else:
            return False
        return True

    def _file(self, redirection: str) -> None:
        """The file's name is no word of the command; a here-string is its input."""
        while self.at < len(self.text) and self.text[self.at] in _BLANK:
            self.at += 1
        if self.at < len(self.text) and not _OPERATOR.match(self.text, self.at):
            word, _ = self._word()
            if redirection == "<<<":
                self._inputs.append(word)
            elif redirection == "<" and word.startswith("/dev/fd/"):
                self._inputs.append(UNKNOWN)

    def _starts(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _end_of(self, words: list[str]) -> None:
        inputs, self._inputs = self._inputs, []
        if not words:
            return
        self.found.append(Command(words, inputs, nested=self._nesting > 0))
        alone = all(map(_ASSIGNMENT.match, words))  # no `declare -n x=y`
        for word in words:
            if assigned := _ASSIGNMENT.match(word):
                once = alone and not self._nesting and self._mentions(assigned[1]) == 1
                self.values[assigned[1]] = assigned[2] if once else UNKNOWN
            elif word in self.values:  # `read x`, `printf -v x`, `for x in …`
                self.values[word] = UNKNOWN

    def _mentions(self, name: str) -> int:
        """How often the text has the name other than to use its value: to assign it, to read into it."""
        if self._names is None:
            self._names = {}
            for found in _NAME.finditer(self.text):
                self._names[found[0]] = self._names.get(found[0], 0) + 1
        return self._names.get(name, 0)

    def _array(self) -> str:
        """Step over the elements of `name=(…)`."""
        self.at += 1
        while not self._starts(")"):
            if self.at >= len(self.text):
                raise ValueError("a bracket never ends")
            if self.text[self.at] in "\n(;|&":
                self.at += 1
            elif not self._aside():
                self._word()
        self.at += 1
        return UNKNOWN

    def _word(self) -> tuple[str, bool]:
        """The word that begins here, and whether what variables put into it is split at blanks."""
        parts: list[str] = []
        split = False
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if self._starts("<(") or self._starts(">("):
                self.at += 2
                self._substitution()
                parts.append("/dev/fd/63")
            elif char in _BLANK + ";&|()<>\n":
                break
            elif char in "$`":
                split = split or self.text[self.at + 1 : self.at + 2] not in "'\""
                value = self._expansion()
                parts.append("$" if value is None else value)
            elif char in "'\"\\":
                parts.append(self._quoted(char))
            else:
                parts.append(self._unquoted(char, first=self.at == begin))
        if self.text[self.at : self.at + 1] in ("<", ">") and _FILE_NUMBER.match(self.text[begin : self.at]):
            return "", True
        word = "".join(parts)
        if self._starts("(") and _ARRAY.match(word):
            word += self._array()
        return word, split and not _ASSIGNMENT.match(word)

    def _unquoted(self, char: str, *, first: bool) -> str:
        """A character, marked where bash may put something else in its place."""
        if char in "@+?*" and self.text[self.at + 1 : self.at + 2] == "(":
            self.at = self._closing(self.at + 2)  # `@(a|b)`
            return UNKNOWN
        if char == "{" and (braces := _BRACES.match(self.text, self.at)):
            self.at += len(braces[0])
            return "".join(REPLACED + one for one in braces[0])
        self.at += 1
        replaced = char in "?*" or (char == "~" and first)
        if char == "[" and _CLASS.match(self.text, self.at):
            replaced = True
        return REPLACED + char if replaced else char

    def _closing(self, at: int) -> int:
        """Behind the bracket that closes one which was opened before `at`."""
        depth = 1
        while depth:
            if at >= len(self.text):
                raise ValueError("a bracket never ends")
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 2 if self.text[at] == "\\" else 1
        return at

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
                parts.append("$" if value is None else value.replace(UNKNOWN, UNKNOWN_WORD))
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
            return self._backticks()
        if self._starts("$((") and self._arithmetic(3):
            return "0"
        if self._starts("$("):
            self.at += 2
            return self._substitution()
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

    def _substitution(self) -> str:
        """Reads the commands up to the bracket. What they print is known of `cat <<EOF` only."""
        before = len(self.found)
        self._nesting += 1
        self.commands_until(")")
        self._nesting -= 1
        inner = self.found[before:]
        if len(inner) == 1 and inner[0].words == ["cat"] and len(inner[0].inputs) == 1:
            return inner[0].inputs[0].rstrip("\n").replace(UNKNOWN, UNKNOWN_WORD)
        return UNKNOWN

    def _value(self, name: str) -> str:
        """Raises ValueError where values in values grow without end."""
        # Where the line sets IFS, values are split at other characters than blanks.
        value = UNKNOWN if "IFS" in self.values else self.values.get(name, UNKNOWN)
        self._expanded += len(value)
        if self._expanded > MOST_EXPANDED:
            raise ValueError("too long")
        return value

    def _arithmetic(self, opening: int) -> bool:
        """Step over `((…))` or `$((…))`, whose commands are substitutions. False: these are subshells."""
        try:
            end = self._closing(self.at + opening)
        except ValueError:
            return False
        if not self.text.startswith(")", end):
            return False
        self._inner(self.text[self.at + opening : end - 1])
        self.at = end + 1
        return True

    def _inner(self, text: str, *, as_commands: bool = False) -> None:
        """Read text of its own, of which only the commands count."""
        inner = _Reader(text)
        inner.values = self.values
        inner._nesting = self._nesting + 1
        if as_commands:
            inner.commands_until("")
        else:
            inner._in_quotes(end="")
        self.found += inner.found

    def _backticks(self) -> str:
        """Their own backslashes are taken off first, so backticks can stand in backticks."""
        begin = self.at
        while not self._starts("`"):
            if self.at >= len(self.text):
                raise ValueError("a backtick never ends")
            self.at += 2 if self._starts("\\") else 1
        self._inner(re.sub(r"\\([\\`$])", r"\1", self.text[begin : self.at]), as_commands=True)
        self.at += 1
        return UNKNOWN

    def _parameter(self) -> str:
        """`${name}`; with anything else between the braces the value is not known."""
        parts: list[str] = []
        while not self._starts("}"):
            if self.at >= len(self.text):
                raise ValueError("a bracket never ends")
            char = self.text[self.at]
            if char in "$`":
                parts.append(self._expansion() or "$")
            elif char in "'\"\\":
                parts.append(self._quoted(char))
            else:
                parts.append(char)
                self.at += 1
        self.at += 1
        name = "".join(parts)
        return self._value(name) if _PLAIN_NAME.match(name) else UNKNOWN

    def _with_escapes(self) -> str:
        found = _ANSI_QUOTED.match(self.text, self.at)
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
        # The text comes later than the end of the command: the list that it goes into is kept.
        self._waiting.append((self._inputs, name, quoted, begin[1] == "-"))

    def _bodies(self) -> None:
        """The here-documents that this line began. One that never ends is read as commands."""
        waiting, self._waiting = self._waiting, []
        for inputs, name, quoted, tabs in waiting:
            found = self._ending(name, quoted, tabs)
            if found is None:
                return
            body = self.text[self.at : found[0]]
            self.at = found[1]
            inputs.append(body)
            if not quoted:
                self._inner(body)

    def _ending(self, name: str, quoted: bool, tabs: bool) -> tuple[int, int] | None:
        """Where the line that ends a here-document begins and ends."""
        places = self._lines().get(name, [])
        for begin, end in places[bisect.bisect_left(places, (self.at, 0)) :]:
            indent = len(self.text[begin:end]) - len(self.text[begin:end].lstrip("\t"))
            slashes = 0
            while self.text[max(0, begin - 2 - slashes)] == "\\":
                slashes += 1
            if (tabs or not indent) and (quoted or slashes % 2 == 0):
                return begin, min(end + 1, len(self.text))
        return None

    def _lines(self) -> dict[str, list[tuple[int, int]]]:
        """Where each line begins and ends, by what it says behind its tabs; made once, for long texts."""
        if self._places is None:
            self._places = {}
            begin = 0
            for line in self.text.split("\n"):
                self._places.setdefault(line.lstrip("\t"), []).append((begin, begin + len(line)))
                begin += len(line) + 1
        return self._places


def _note_case(words: list[str], cases: list[bool]) -> None:
    """A `case` begins with the word `in`, and ends with `esac`, which may stand in the place of a pattern."""
    if words[-1:] == ["in"] and words[-3:-2] == ["case"]:
        cases.append(True)
        del words[:]
    elif words == ["esac"] and cases:
        cases.pop()


def _in_test(words: list[str]) -> bool:
    """Whether these are words of an open `[[ … ]]`, in which `&&` and brackets are its own."""
    if "[[" not in words or words[-1] == "]]":
        return False
    return KEYWORDS.issuperset(words[: words.index("[[")])


def _unescaped(found: re.Match[str]) -> str:
    written = found[1]
    if written[0] in "xuU" and len(written) > 1:
        code = int(written[1:], 16)
        return chr(code) if code < 0x110000 else ""
    if written[0] in "01234567":
        return chr(int(written, 8) & 0xFF)
    return _ESCAPED.get(written, written if written in "'\"\\?" else f"\\{written}")
