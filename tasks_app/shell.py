"""Shell commands taken apart, as far as that can be done without running them.

Standard library only: the gate's program loads this file in the agent's jail.
"""

from __future__ import annotations

import bisect
import re
import shlex
from collections.abc import Iterator

from tasks_app.shell_reader import read

OPERATORS = ";&|()<>`\n"
#: Words that run the command that stands behind them.
PREFIXES = {
    *("bash", "sh", "command", "builtin", "exec", "eval", "env", "sudo", "npx", "nohup", "time", "timeout"),
    *("if", "then", "elif", "else", "while", "until", "do", "{", "!", "coproc"),
}
#: What may stand between a prefix and its command: an option, a time, an assignment.
ASIDE = re.compile(r"\A(-\S*|\d+[smhd]?|[A-Za-z_]\w*(\[.*\])?\+?=.*)\Z", re.DOTALL)
SCRIPT_OPTION = re.compile(r"\A-[a-z]*c\Z")
HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
HEREDOC_END = re.compile(r"^[ \t]*(\w+)[ \t]*(?=\n|\)|\Z)", re.MULTILINE)

_WRAPPERS = """
sudo doas su runuser env command exec builtin function xargs parallel nice ionice chrt taskset prlimit setpriv
nohup setsid stdbuf unbuffer chronic timeout time watch hyperfine entr strace ltrace gdb valgrind catchsegv
chroot unshare nsenter bwrap firejail fakeroot eatmydata faketime setarch linux32 linux64 flock script ssh
busybox dbus-run-session xvfb-run systemd-run start-stop-daemon at batch npx uv uvx poetry pipx direnv mise
nix-shell docker podman kubectl find fd
"""
_SHELLS = """
bash sh dash zsh ksh mksh fish ash csh tcsh rbash pwsh eval source . trap alias mapfile readarray at batch
python python3 perl ruby node php awk gawk mawk make
"""
#: More words of these kinds may stand before the command than PREFIXES and ASIDE know of (`sudo -u bob …`).
WRAPPERS = set(_WRAPPERS.split())
#: What runs text that it is given.
SHELLS = set(_SHELLS.split())
#: git's own options that take the next word, which stand before its subcommand.
GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix"}
GIT_VALUES |= {"--config-env", "--attr-source"}
#: What a script may be glued to: `-S'…'`, `--run='…'`, `name='…'`.
GLUED = re.compile(r"-\w(?!\w*=)|-{0,2}[A-Za-z_][\w-]*\+?=")
#: Words inside a command behind which another one begins.
BEFORE_COMMAND = {"-exec", "-execdir", "-ok", "-okdir", "exec", "run", "foreach", "--"}
#: What they print, a shell on the same line may run.
PRINTERS = {"echo", "printf"}
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
    line = read(command)
    shell = any(_program(word) in SHELLS for words in line.commands for word in words)
    for words in line.commands:
        yield from _beginnings(words, shell=shell)
        for script in _scripts(words, shell=shell):
            yield from commands_in(script, depth + 1)
    for text in line.heredocs if shell else ():
        yield from commands_in(text, depth + 1)


def _beginnings(words: list[str], *, shell: bool) -> Iterator[str]:
    """The command from each word on that may be the program's name."""
    starts = True
    wrapped = False
    for index, word in enumerate(words[:MOST_STARTS]):
        name = _program(word)
        if starts or wrapped:
            yield from _spellings([name, *words[index + 1 :]])
        wrapped = wrapped or (starts and (name in WRAPPERS or (shell and name in PRINTERS)))
        starts = (starts and (name in PREFIXES or bool(ASIDE.match(word)))) or word in BEFORE_COMMAND
    if (wrapped or starts) and len(words) > MOST_STARTS:
        raise ValueError("too long")


def _program(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _spellings(words: list[str]) -> Iterator[str]:
    yield " ".join(" ".join(words).split())
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        takes_value = words[0] == "git" and rest[0] in GIT_VALUES
        rest = rest[1 + takes_value :]
    if len(rest) < len(words) - 1:
        yield " ".join([words[0], *rest])


def _scripts(words: list[str], *, shell: bool) -> Iterator[str]:
    """Commands inside words: `-c` scripts, and all where a shell or such a program may read them."""
    reads = shell or any(_program(word) in WRAPPERS for word in words)
    for before, word in zip(["", *words], words, strict=False):
        if any(char.isspace() for char in word) and (reads or SCRIPT_OPTION.match(before)):
            yield word
            if glued := GLUED.match(word):
                yield word[glued.end() :]
