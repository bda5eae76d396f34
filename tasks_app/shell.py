"""Shell commands taken apart, as far as that can be done without running them.

Standard library only: the gate's program loads this file in the agent's jail.
"""

from __future__ import annotations

import bisect
import re
import shlex
from collections.abc import Iterator

OPERATORS = ";&|()<>`\n"
#: Words that run the command that stands behind them.
PREFIXES = {
    *("bash", "sh", "command", "builtin", "exec", "eval", "env", "sudo", "npx", "nohup", "time", "timeout"),
    *("if", "then", "elif", "else", "while", "until", "do", "{", "!"),
}
#: What may stand between a prefix and its command: an option, a time, an assignment.
ASIDE = re.compile(r"\A(-\S*|\d+[smhd]?|[A-Za-z_]\w*=.*)\Z", re.DOTALL)
SCRIPT_OPTION = re.compile(r"\A-[a-z]*c\Z")
HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
HEREDOC_END = re.compile(r"^[ \t]*(\w+)[ \t]*(?=\n|\)|\Z)", re.MULTILINE)

#: More words of these kinds may stand before the command than PREFIXES and ASIDE know of (`sudo -u bob …`).
WRAPPERS = {
    *("sudo", "doas", "env", "xargs", "parallel", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout"),
    *(
        "time",
        "watch",
        "strace",
        "chroot",
        "unshare",
        "flock",
        "script",
        "ssh",
        "busybox",
        "npx",
        "uv",
        "uvx",
    ),
    *(
        "poetry",
        "pipx",
        "docker",
        "podman",
        "kubectl",
        "find",
        "fd",
        "command",
        "exec",
        "builtin",
        "su",
        "runuser",
    ),
}
SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "fish", "ash", "eval", "source", "."}
#: git's own options that take the next word, which stand before its subcommand.
GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"}
INNER = re.compile(r"\$\(|`|[<>]\(")
#: How deep commands in commands are followed, and how many words of one may begin another.
DEPTH = 6
MOST_STARTS = 200


def without_heredocs(command: str) -> tuple[str, list[str]]:
    """The command with a number in place of each here-document, which is text and not a command.

    Without one pattern for the whole of it: that takes the square of the length, and the worker waits.
    """
    ends = _heredoc_ends(command)
    parts: list[str] = []
    texts: list[str] = []
    done = line_end = 0
    while line_end >= 0 and (begin := HEREDOC.search(command, done)):
        if line_end < begin.end():
            line_end = command.find("\n", begin.end())
        places = ends.get(begin[2], [])
        at = bisect.bisect_right(places, (line_end, len(command)))
        if line_end < 0 or at == len(places):
            parts.append(command[done : begin.end()])
            done = begin.end()
            continue
        text_end, end = places[at]
        parts.append(
            f"{command[done : begin.start()]}<<heredoc-{len(texts)}{command[begin.end() : line_end]}"
        )
        texts.append(command[line_end + 1 : text_end])
        done = end
    return "".join([*parts, command[done:]]), texts


def _heredoc_ends(command: str) -> dict[str, list[tuple[int, int]]]:
    """Where lines begin and end that hold one word alone, and so may close a here-document of that name."""
    ends: dict[str, list[tuple[int, int]]] = {}
    for found in HEREDOC_END.finditer(command):
        ends.setdefault(found[1], []).append(found.span())
    return ends


def split_words(command: str) -> list[str]:
    """The words and operators of a command. Raises ValueError for quotes that never end."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def is_operator(word: str) -> bool:
    return bool(word) and set(word) <= set(OPERATORS)


def commands_in(command: str, depth: int = 0) -> Iterator[str]:
    """Every simple command that the line may run, each with single blanks and also without what stands
    before it: assignments, `sudo`, the path of the program, git's own options.

    Rather too many than too few. Raises ValueError for a line that cannot be taken apart.
    """
    if depth > DEPTH:
        raise ValueError("too deep")
    plain, texts = without_heredocs(_unfolded(command))
    words = split_words(plain)
    for simple in _simple_commands(words):
        yield from _beginnings(simple)
    yield from _scripts(words, texts, depth)


def _unfolded(command: str) -> str:
    return command.replace("\\\n", "").replace("${IFS}", " ").replace("$IFS", " ")


def _simple_commands(words: list[str]) -> Iterator[list[str]]:
    """Words between operators. The word after a redirection is a file's name and no part of a command."""
    current: list[str] = []
    into_file = False
    for word in words:
        if is_operator(word):
            into_file = set(word) <= set("<>&") and word.strip("&") != ""
            if not into_file:
                yield current
                current = []
            elif current and word[0] in "<>" and current[-1] in {"0", "1", "2"}:
                current.pop()  # the 2 of 2>&1
        elif not into_file:
            current.append(word)
        else:
            into_file = False
    yield current


def _beginnings(words: list[str]) -> Iterator[str]:
    """The command from each word on that may be the program's name."""
    starts = True
    wrapped = False
    for index, word in enumerate(words[:MOST_STARTS]):
        name = _program(word)
        if starts or wrapped:
            yield from _spellings([name, *words[index + 1 :]])
        wrapped = wrapped or (starts and name in WRAPPERS)
        starts = (starts and (name in PREFIXES or bool(ASIDE.match(word)))) or word in (
            "-exec",
            "-execdir",
            "-ok",
        )
    if wrapped and len(words) > MOST_STARTS:
        raise ValueError("too long")


def _program(word: str) -> str:
    return word.removeprefix("$").rsplit("/", 1)[-1]


def _spellings(words: list[str]) -> Iterator[str]:
    yield " ".join(words)
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        takes_value = words[0] == "git" and rest[0] in GIT_VALUES
        rest = rest[1 + takes_value :]
    if len(rest) < len(words) - 1:
        yield " ".join([words[0], *rest])


def _scripts(words: list[str], texts: list[str], depth: int) -> Iterator[str]:
    """Commands inside words: substitutions, `-c` scripts, and all texts where a shell may read them."""
    shell = any(_program(word) in SHELLS for word in words)
    for before, word in zip(["", *words], words, strict=False):
        blank = any(char.isspace() for char in word)
        if INNER.search(word) or (blank and (shell or SCRIPT_OPTION.match(before))):
            yield from commands_in(_opened(word), depth + 1)
    for text in texts:
        if shell or INNER.search(text):
            yield from commands_in(text, depth + 1)


def _opened(word: str) -> str:
    """`$(…)` in a word, with its brackets as operators rather than as part of a word."""
    return INNER.sub(" ( ", word).replace(")", " ) ") if INNER.search(word) else word
