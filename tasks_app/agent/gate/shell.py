"""What a line of bash may run, as far as that can be told without running it.

Where the name of a program cannot be known the line counts as running any: who wants to be asked is asked.
Standard library only: the gate's program loads this file in the agent's sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tasks_app.agent.gate.shell_reader import (
    KEYWORDS,
    REPLACED,
    UNKNOWN,
    UNKNOWN_WORD,
    Command,
    is_known,
    plain,
    read,
    read_script,
)

#: Programs that run the command that stands behind them, and their options that take the next word.
WRAPPERS = {
    "sudo": "ughpCrtTUDR", "doas": "uC", "env": "uC", "xargs": "nPILsdEa", "parallel": "jnI", "timeout": "ks",
    "nice": "n", "ionice": "cnp", "stdbuf": "ioe", "time": "fo", "strace": "eopsu", "ltrace": "eopsu",
    "ssh": "bcDEeFIiJLlmOopQRSWw", "flock": "wE", "exec": "a", "npx": "p", "su": "sgG", "watch": "n",
    "runuser": "u", "nsenter": "t", "systemd-run": "pu", "xvfb-run": "n", "eval": "", "command": "",
    "builtin": "", "nohup": "", "setsid": "", "chronic": "", "unbuffer": "", "eatmydata": "", "fakeroot": "",
    "chroot": "", "taskset": "", "chrt": "", "setarch": "", "linux32": "", "linux64": "", "busybox": "",
    "prlimit": "", "setpriv": "", "unshare": "", "uvx": "", "catchsegv": "", "valgrind": "", "bwrap": "",
    "firejail": "", "faketime": "", "hyperfine": "", "entr": "", "dbus-run-session": "",
    "function": "", "coproc": "",
    "pkexec": "", "run0": "", "uname26": "", "numactl": "NmCp", "proot": "", "ifne": "", "bunx": "",
    "su-exec": "", "gosu": "", "chpst": "u", "envdir": "", "dumb-init": "", "tini": "", "wsl": "", "lima": "",
    "flatpak-spawn": "", "sshpass": "pfd", "autossh": "", "plink": "", "pssh": "hH", "watchexec": "",
    "dockerize": "", "sem": "", "rush": "", "toybox": "", "noglob": "", "nocorrect": "",
}  # fmt: skip
#: Words that stand between such a program and the command, besides options.
_POSITIONAL = {"timeout": 1, "ssh": 1, "flock": 1, "chroot": 1, "taskset": 1, "chrt": 1, "faketime": 1}
_POSITIONAL |= {"gosu": 1, "su-exec": 1, "envdir": 1, "autossh": 1, "plink": 1}
#: Programs with a command somewhere among their words.
_AMONG = {
    "find", "fd", "docker", "podman", "kubectl", "poetry", "uv", "pipx", "direnv", "mise", "nix-shell",
    "tmux", "screen", "start-stop-daemon", "at", "batch", "ip", "script", "gdb", "cpulimit", "fdfind",
    "nerdctl", "docker-compose", "conda", "micromamba", "cgexec", "perf", "nix", "bun",
}  # fmt: skip
#: Behind these words another command begins; behind those of the first kind nothing else can stand.
_BEFORE_COMMAND = {"-exec", "-execdir", "-ok", "-okdir", "foreach"}
_BEFORE_KNOWN = {*_BEFORE_COMMAND, "exec", "run", "--"}
SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "mksh", "fish", "ash", "csh", "tcsh", "rbash", "pwsh"}
SHELLS |= {"elvish", "nu", "xonsh", "rc"}
#: Interpreters of other languages, which also run their input: searched for the words of a command.
_LANGUAGES = {
    "python", "python2", "python3", "pypy3", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua",
    "tclsh", "expect", "osascript", "Rscript", "julia", "guile", "elixir", "jshell", "ipython", "tsx",
    "ts-node",
}  # fmt: skip
#: Programs with commands of their own that run others.
_SEARCHED = {*_LANGUAGES, "vi", "vim", "nvim", "ex", "ed", "emacs", "gdb", "lldb", "sqlite3", "mysql", "psql"}
_SEARCHED |= {"ghc", "ghci", "erl", "swipl", "ftp", "powershell", "crontab", "fzf"}
_SEARCHED |= {"make", "gmake"}
#: Programs that give words with blanks in them to a shell.
_GIVE_TO_SHELL = {
    "eval", "trap", "alias", "env", "sudo", "su", "doas", "script", "flock", "watch", "parallel", "xargs",
    "ssh", "tmux", "screen", "tar", "bsdtar", "rsync", "scp", "sftp", "find", "fd", "mapfile", "readarray",
    "complete", "compgen", "bind", "split", "sort", "zip", "man", "less", "socat", "nc", "ncat", "docker",
    "podman", "kubectl", "npx", "npm", "nix-shell", "entr", "hyperfine", "runuser", "at", "batch", "busybox",
    "strace", "concurrently", "nodemon", "xvfb-run", "systemd-run", "sops", "vagrant", "pssh", "ansible",
    "cpio", "fzf", "fdfind", "nerdctl", "docker-compose", "cargo", "rush", "sem", "watchexec", "wsl",
}  # fmt: skip
#: git gives a shell the words behind these; its other words are text.
_GIT_RUNS = {"-c", "-x", "--exec", "foreach", "run", "--tree-filter", "--index-filter", "--msg-filter"}
_GIT_RUNS |= {"--env-filter", "--upload-pack", "--receive-pack", "--config-env", "--extcmd", "--command"}
_GIT_RUNS |= {"--open-files-in-pager", "-u", "-O"}
#: Keys of git's settings whose value a shell is given.
_GIT_KEY_RUNS = re.compile(
    r"(core\.(pager|editor|sshcommand|fsmonitor|askpass)|.*\.(cmd|command|program|helper))\Z", re.IGNORECASE
)
#: Builtins that evaluate words a second time: `[[ -v 'a[$(…)]' ]]`.
_EVALUATE = {"[[", "[", "test", "let", "printf", "unset", "declare", "typeset", "local", "export", "read"}
_EVALUATE |= {"readonly", "wait", "getopts", "mapfile", "readarray"}
#: Variables whose value another program runs, and those that make any program run something else.
_RUN_VALUE = re.compile(
    r"(PROMPT_COMMAND|PS[0124]|VISUAL|BROWSER|LESSOPEN|LESSCLOSE|GIT_SSH|GIT_EXTERNAL_DIFF"
    r"|\w*(PAGER|EDITOR|_COMMAND|_RSH|_ASKPASS))\Z"
)
_REPLACE_ALL = {"BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "ZDOTDIR", "PYTHONSTARTUP"}
_REPLACE_ALL |= {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}
#: Variables that do so with some values only.
_REPLACE_WITH = {
    "PERL5OPT": re.compile(r"-\w*[Mmd]"),
    "RUBYOPT": re.compile(r"-\w*r"),
    "NODE_OPTIONS": re.compile(r"(^|\s)(-r|--require|--import|--loader|--experimental-loader)\b"),
    "MAKEFLAGS": re.compile(r"eval|SHELL|(^|\s)-?\w*[fE]"),
    "GIT_CONFIG_GLOBAL": re.compile(r"\A(?!/dev/null\Z)"),
    "GIT_CONFIG_SYSTEM": re.compile(r"\A(?!/dev/null\Z)"),
}
ASSIGNMENT = re.compile(r"\A([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=(.*)\Z", re.DOTALL)
#: git's own options that take the next word, which stand before its subcommand.
GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix"}
GIT_VALUES |= {"--config-env", "--attr-source", "--exec-path", "--list-cmds"}
#: What a script may be glued to: `-S'…'`, `--run='…'`, `name='…'`, `!…`, `EXEC:…`, `ProxyCommand …`.
_GLUED = re.compile(r"\A(?:\S*[=:!+]+|-\w(?=\w)|\w*Command)\s*")
#: Options of one letter, written as one word, the last with its value: `-ae'…'`.
_LETTERS = re.compile(r"\A-[A-Za-z]{2,8}")
#: sed's commands that run what it reads, and awk's ways to run a command.
_SED_RUNS = re.compile(
    r"(?:\A|[\d$/;{}\n!])\s*e(?:\s|\Z)|/[gpiIMm0-9]*e[gpiIMm0-9]*(?:\Z|[\s;}])"
    r"|(?:\A|[\s;{}\d$/!])s([^\w\s\\])(?:\\.|(?!\1)[^\\])*\1(?:\\.|(?!\1)[^\\])*\1[gpiIMm0-9]*e"
)
_AWK_TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|/(?:\\.|[^/\\\n])*/")
_AWK_RUNS = re.compile(r"\bsystem\b|(?<!\|)\|(?!\|)|@load")
#: Programs that read commands from a file, and the options behind which it stands.
_READ_PROGRAM = {
    **{name: {"-f"} for name in ("sed", "awk", "gawk", "mawk", "nawk")},
    **{name: {"-S"} for name in ("vi", "vim", "nvim", "ex")},
    "crontab": {"-"},
}
#: Behind these stands a program in the language of the interpreter.
_PROGRAM_TEXT = {"-c", "-e", "-r", "-p", "-E", "--eval", "--print"}
_STDIN = re.compile(r"\A(?:-|/dev/(?:stdin|fd/.*)|/proc/.*/fd/.*)\Z")
_BETWEEN_WORDS = re.compile(r"[\s\"'`,;()\[\]{}<>|&$\\=!@:]+")
#: How deep commands in commands are followed, and how many words of one may begin another.
DEPTH = 6
MOST_STARTS = 200
#: Stands for a command of which not even the program is known.
ANYTHING = [UNKNOWN]


def runs(line: str) -> Iterator[list[str] | str]:
    """Every command that the line may run, as its words; the first is the program without its folder.

    Rather too many than too few; ANYTHING where a program cannot be known. Programs in other languages come
    as text, with a blank between their words. Raises ValueError or RecursionError for a line that cannot be
    taken apart.
    """
    for command in read(line):
        yield from _of_command(command, 0)


def program(word: str) -> str:
    """The name of the program that a word in the place of one stands for; UNKNOWN if that is not known."""
    name = word.rsplit("/", 1)[-1].removeprefix(f"{REPLACED}~")
    return name if is_known(name) else UNKNOWN


def _script(text: str, depth: int) -> Iterator[list[str] | str]:
    if depth >= DEPTH:
        raise ValueError("too deep")
    for command in read_script(text):
        yield from _of_command(command, depth + 1)


def _of_command(command: Command, depth: int) -> Iterator[list[str] | str]:
    certain, possible = _commands(command.words)
    for words in (*certain, *possible):
        yield words
        for text in dict.fromkeys(_texts(words, command.inputs)):
            yield from _script(text, depth)
        yield from _foreign(words, command.inputs)
    if any(_runs_anything(words, command.inputs) for words in certain):
        yield ANYTHING
    yield from _by_variables(command.words, depth)


def _commands(words: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """The commands that are run for certain, one within the other, and those that may be."""
    certain: list[list[str]] = []
    at = _past_keywords(words, 0)
    loose = len(words)
    while at < len(words):
        name = program(words[at])
        certain.append([name, *words[at + 1 :]])
        if name not in WRAPPERS or _only_looks_up(certain[-1]):
            break
        if name in ("xargs", "parallel"):
            words = _with_arguments(words)
        loose = min(loose, at + 1)
        at = _past_keywords(words, _past_options(words, at, name))
    if certain and _only_looks_up(certain[-1]):
        return certain, []
    if at < len(words) and program(words[at]) in _AMONG:
        words, loose = _with_placeholders(words), min(loose, at + 1)
    return certain, list(_further(words, loose))


def _only_looks_up(words: list[str]) -> bool:
    """`command -v program`"""
    return words[0] == "command" and any(word[:1] == "-" and set(word) & {"v", "V"} for word in words[1:2])


def _further(words: list[str], loose: int) -> Iterator[list[str]]:
    """Commands that begin at a later word: behind `-exec`, or anywhere behind a program that runs another."""
    if len(words) - loose > MOST_STARTS:
        raise ValueError("too long")
    for index in range(1, min(len(words), MOST_STARTS + loose)):
        before = words[index - 1]
        if (
            before in _BEFORE_COMMAND
            or (before == "run" and "bisect" in words)
            or ((before in _BEFORE_KNOWN or index >= loose) and is_known(words[index]))
        ):
            yield [program(words[index]), *words[index + 1 :]]


def _with_arguments(words: list[str]) -> list[str]:
    """The words of `xargs` and `parallel` with a mark for what they add from their input."""
    end = next((index for index, word in enumerate(words) if word.startswith(":::")), len(words))
    return [*_with_placeholders(words[:end]), UNKNOWN]


def _with_placeholders(words: list[str]) -> list[str]:
    """The words with a mark for what `find -exec` and `xargs -I` put into them."""
    marks = {"{}", *(after for before, after in pairwise(words) if before == "-I")}
    marks |= {word[2:] for word in words if word.startswith("-I") and len(word) > 2}
    placed = re.compile("|".join(map(re.escape, sorted(filter(None, marks)))))
    return [UNKNOWN_WORD if word in marks else placed.sub(UNKNOWN_WORD, word) for word in words]


def _past_keywords(words: list[str], at: int) -> int:
    while at < len(words) and (words[at] in KEYWORDS or ASSIGNMENT.match(plain(words[at]))):
        at += 1
    return at


def _past_options(words: list[str], at: int, name: str) -> int:
    """Where the command begins that the program at `at` runs."""
    named = name == "coproc" and words[at + 2 : at + 3] == ["{"]
    positional = 1 if named else _POSITIONAL.get(name, 0)
    at += 1
    while at < len(words):
        word = words[at]
        if word[:1] == "-":
            at += 1 + (len(word) == 2 and word[1] in WRAPPERS[name])
        elif positional and not ASSIGNMENT.match(word):
            positional -= 1
            at += 1
        else:
            return at
    return at


def _texts(words: list[str], inputs: list[str]) -> Iterator[str]:
    """Text among the words, or in the input, that a shell is given to run."""
    name, rest = words[0], words[1:]
    if name in SHELLS:
        yield from _of_shell(rest, inputs)
    elif name in (".", "source"):
        yield from inputs if rest and _STDIN.match(rest[0]) else ()
    elif name == "git":
        yield from _of_git(rest)
    elif name in _GIVE_TO_SHELL:
        yield from _spaced(rest)
        yield from [" ".join(rest)] if name == "eval" else rest[:1] if name == "trap" else ()
        yield from inputs if name in ("at", "batch", "ssh", "parallel", "xargs") else ()
    if name in _EVALUATE:
        evaluated = rest if name != "printf" else rest[1:2] if rest[:1] == ["-v"] else []
        yield from (word for word in evaluated if "$(" in word or "`" in word)


def _foreign(words: list[str], inputs: list[str]) -> Iterator[str]:
    """What an interpreter of another language is given, with a blank between its words."""
    if words[0].rstrip("0123456789.") in _SEARCHED or words[0] in _SEARCHED:
        for text in (*words[1:], *inputs):
            yield " ".join(_BETWEEN_WORDS.split(f" {plain(text)} "))


def _of_shell(rest: list[str], inputs: list[str]) -> Iterator[str]:
    operands = [word for word in rest if word[:1] not in "-+"]
    if any(word[:1] == "-" and word[1:2] != "-" and "c" in word for word in rest):
        yield from operands[:1]
    yield from _spaced(operands)
    yield from inputs


def _of_git(rest: list[str]) -> Iterator[str]:
    if "foreach" in rest or "bisect" in rest:
        yield from _spaced(rest)
    if "config" in rest:
        yield from _of_git_config(rest)
    for before, word in zip(["", *rest], rest, strict=False):
        option = word.partition("=")[0]
        if before in _GIT_RUNS or option in _GIT_RUNS or word[:2] == "-O" or word.startswith(("!", "ext::")):
            yield from _spaced([word])


def _of_git_config(rest: list[str]) -> Iterator[str]:
    """An alias is a command of git's own, other settings name a program."""
    for key, value in pairwise(rest):
        if key.lower().startswith("alias.") and value[:1] != "!":
            yield f"git {value}"
        elif _GIT_KEY_RUNS.match(key):
            yield value


def _spaced(words: list[str]) -> Iterator[str]:
    """Words with blanks in them, also without what they are glued to."""
    for word in words:
        if any(char.isspace() for char in word):
            yield word
            glued = _GLUED.match(word)
            if glued and glued.end():
                yield word[glued.end() :]
            if letters := _LETTERS.match(word):
                yield from (word[at:] for at in range(3, letters.end()))


def _runs_anything(words: list[str], inputs: list[str]) -> bool:
    """Whether the program runs what cannot be known here: its input, say."""
    name, rest = words[0], words[1:]
    operands = [word for word in rest if word[:1] != "-" or _STDIN.match(word)]
    if name in SHELLS:
        options = [word for word in rest if word[:1] == "-" and word[1:2] != "-"]
        stdin = not operands or bool(_STDIN.match(operands[0])) or any("s" in word for word in options)
        asks_itself = bool(rest) and not operands and not options
        return stdin and not asks_itself and not any("c" in word for word in options) and not _known(inputs)
    if name in (".", "source"):
        return bool(rest) and bool(_STDIN.match(rest[0])) and not _known(inputs)
    if _replaces_or_reads_program(name, rest, inputs):
        return True
    if name == "sed":
        return any(_SED_RUNS.search(plain(word)) for word in rest if word not in ("-e", "-E"))
    if name in ("awk", "gawk", "mawk", "nawk"):
        return any(_AWK_RUNS.search(_AWK_TEXT.sub("0", plain(word))) for word in rest if "{" in word)
    if name in ("make", "gmake"):
        return any(_STDIN.match(word) for word in rest)
    if name in _LANGUAGES:
        wholly_unknown = any(word in (UNKNOWN, UNKNOWN_WORD) for word in _values_behind(rest, _PROGRAM_TEXT))
        return wholly_unknown or (all(_STDIN.match(word) for word in rest) and not _known(inputs))
    return name == "git" and any(word.startswith("alias.") for word in _values_of(rest, "-c"))


def _replaces_or_reads_program(name: str, rest: list[str], inputs: list[str]) -> bool:
    """Builtins that give a name to another program, and programs that read their commands from an input."""
    if name in ("hash", "enable"):
        return ("-p" if name == "hash" else "-f") in rest
    if name in ("at", "batch"):
        return not inputs and not any(word[:1] == "-" and word[1:2] in {*"lrcdfV"} for word in rest)
    options = _READ_PROGRAM.get(name, set())
    return bool(options.intersection(rest)) and any(map(_STDIN.match, rest))


def _known(inputs: list[str]) -> bool:
    return bool(inputs) and all(map(is_known, inputs))


def _values_behind(rest: list[str], options: set[str]) -> Iterator[str]:
    return (word for before, word in pairwise(rest) if before in options)


def _values_of(rest: list[str], option: str) -> Iterator[str]:
    for before, word in pairwise(rest):
        if before == option:
            yield word.lower()


def _by_variables(words: list[str], depth: int) -> Iterator[list[str] | str]:
    """Commands in the values of variables that other programs run."""
    for word in words:
        found = ASSIGNMENT.match(word)
        if found is None:
            continue
        if _replaces_programs(found[1], found[2]):
            yield ANYTHING
        elif found[2] and _RUN_VALUE.match(found[1]):
            yield from _script(found[2], depth)


def _replaces_programs(name: str, value: str) -> bool:
    """Whether a variable with this value makes other programs run something else."""
    if name in _REPLACE_WITH:
        return bool(value) and _REPLACE_WITH[name].search(value) is not None
    return name in _REPLACE_ALL and bool(value)


def without_options(words: list[str]) -> list[str]:
    """The command without the options that stand before its subcommand: `git -C dir push` as `git push`."""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[1 + (words[0] == "git" and rest[0] in GIT_VALUES) :]
    return [words[0], *rest]
