"""The commands that a line of bash may run, as far as that can be known without running it.

If the name of a program cannot be known, the line counts as one that runs any program, so that every pattern
matches it. Standard library only: the gate's program loads this file in the agent's sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tasks_app.agent.gate.shell_programs import (
    AWK_RUNS,
    AWK_TEXT,
    BEFORE_COMMAND,
    BEFORE_KNOWN_COMMAND,
    CONTAIN_COMMAND,
    EVALUATE,
    GIT_KEY_RUNS,
    GIT_RUNS,
    GIT_VALUES,
    GIVE_TO_SHELL,
    LANGUAGES,
    POSITIONAL_WORDS,
    PROGRAM_TEXT,
    READ_PROGRAM,
    REPLACE_ALL,
    REPLACE_WITH,
    RUN_VALUE,
    SEARCHED,
    SED_RUNS,
    SHELLS,
    WRAPPERS,
)
from tasks_app.agent.gate.shell_reader import KEYWORDS, Command, read, read_script
from tasks_app.agent.gate.shell_words import REPLACED, UNKNOWN, UNKNOWN_WORD, is_known, plain

ASSIGNMENT = re.compile(r"\A([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=(.*)\Z", re.DOTALL)
#: Prefixes to which a script may be joined: `-S'…'`, `--run='…'`, `name='…'`, `!…`, `EXEC:…` and
#: `ProxyCommand …`.
_JOINED_PREFIX = re.compile(r"\A(?:\S*[=:!+]+|-\w(?=\w)|\w*Command)\s*")
#: Options of one letter joined in one word, the last with its value: `-ae'…'`.
_JOINED_LETTERS = re.compile(r"\A-[A-Za-z]{2,8}")
_STDIN = re.compile(r"\A(?:-|/dev/(?:stdin|fd/.*)|/proc/.*/fd/.*)\Z")
_BETWEEN_WORDS = re.compile(r"[\s\"'`,;()\[\]{}<>|&$\\=!@:]+")
#: How deep commands in commands are followed, and how many words of a command may begin another one.
DEPTH = 6
MOST_STARTS = 200
#: Words of all commands that a line may run. Wrappers in wrappers multiply them.
MOST_WORDS = 50_000
#: A command of which not even the program is known.
ANYTHING = [UNKNOWN]


def possible_commands(line: str) -> Iterator[list[str] | str]:
    """Yield every command that the line may run, as words: the program without its folder, then the others.

    It yields too many commands rather than too few, and ANYTHING if a program cannot be known. Programs in
    other languages are yielded as text, with a blank between their words. Raises ValueError or RecursionError
    if the line cannot be parsed.
    """
    words_left = MOST_WORDS
    for command in read(line):
        for found in _commands_run_by(command, 0):
            words_left -= 1 if isinstance(found, str) else len(found)
            if words_left < 0:  # wrappers in wrappers: each may run anything behind it
                raise ValueError("too long")
            yield found


def certain_commands(line: str) -> Iterator[list[str]]:
    """Yield the commands that the line runs for certain, also inside wrappers and in texts for a shell.

    Text that a program only gets among its words is left out. Raises ValueError or RecursionError if the line
    cannot be parsed.
    """
    for command in read(line):
        yield from _commands_certainly_run_by(command, 0)


def _commands_certainly_run_by(command: Command, depth: int) -> Iterator[list[str]]:
    if depth >= DEPTH:
        raise ValueError("too deep")
    for words in _commands(command.words)[0]:
        yield words
        texts: list[str] = []
        if words[0] == "eval":
            texts = [" ".join(words[1:])]
        elif words[0] in SHELLS:
            operands = [word for word in words[1:] if word[:1] not in "-+"]
            has_script = any(word[:1] == "-" and word[1:2] != "-" and "c" in word for word in words[1:])
            if has_script:
                texts = operands[:1]
            elif not operands:
                texts = command.inputs
        for text in texts:
            for inner in read_script(text):
                yield from _commands_certainly_run_by(inner, depth + 1)


def program_name(word: str) -> str:
    """Return the name of the program that a word names, without its folder, or UNKNOWN."""
    name = word.rsplit("/", 1)[-1].removeprefix(f"{REPLACED}~")
    return name if is_known(name) else UNKNOWN


def _commands_in_text(text: str, depth: int) -> Iterator[list[str] | str]:
    if depth >= DEPTH:
        raise ValueError("too deep")
    for command in read_script(text):
        yield from _commands_run_by(command, depth + 1)


def _commands_run_by(command: Command, depth: int) -> Iterator[list[str] | str]:
    certain, possible = _commands(command.words)
    for words in (*certain, *possible):
        yield words
        for text in dict.fromkeys(_texts_for_shell(words, command.inputs)):
            yield from _commands_in_text(text, depth)
        if words[0].rstrip("0123456789.") in SEARCHED or words[0] in SEARCHED:  # another language
            for text in (*words[1:], *command.inputs):
                yield " ".join(_BETWEEN_WORDS.split(f" {plain(text)} "))
    if any(_runs_anything(words, command.inputs) for words in certain):
        yield ANYTHING
    yield from _commands_in_variables(command.words, depth)


def _commands(words: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the commands that certainly run, each inside the one before it, and those that may run."""
    certain: list[list[str]] = []
    at = _skip_keywords(words, 0)
    loose = len(words)
    while at < len(words):
        name = program_name(words[at])
        certain.append([name, *words[at + 1 :]])
        if name not in WRAPPERS or _is_lookup(certain[-1]):
            break
        if name in ("xargs", "parallel"):
            end = next((index for index, word in enumerate(words) if word.startswith(":::")), len(words))
            words = [*_mark_placeholders(words[:end]), UNKNOWN]  # what they append from their input
        loose = min(loose, at + 1)
        at = _skip_keywords(words, _skip_options(words, at, name))
    if certain and _is_lookup(certain[-1]):
        return certain, []
    if at < len(words) and program_name(words[at]) in CONTAIN_COMMAND:
        words, loose = _mark_placeholders(words), min(loose, at + 1)
    return certain, list(_commands_at_later_words(words, loose))


def _is_lookup(words: list[str]) -> bool:
    """Return whether the command is `command -v program`."""
    return words[0] == "command" and any(word[:1] == "-" and set(word) & {"v", "V"} for word in words[1:2])


def _commands_at_later_words(words: list[str], loose: int) -> Iterator[list[str]]:
    """Yield commands that may begin at a later word: after `-exec`, or anywhere after a wrapper program."""
    if len(words) - loose > MOST_STARTS:
        raise ValueError("too long")
    for index in range(1, min(len(words), MOST_STARTS + loose)):
        before = words[index - 1]
        if (
            before in BEFORE_COMMAND
            or (before == "run" and "bisect" in words)
            or ((before in BEFORE_KNOWN_COMMAND or index >= loose) and is_known(words[index]))
        ):
            yield [program_name(words[index]), *words[index + 1 :]]


def _mark_placeholders(words: list[str]) -> list[str]:
    """Replace the placeholders of `find -exec` and `xargs -I` by marks."""
    marks = {"{}", *(after for before, after in pairwise(words) if before == "-I")}
    marks |= {word[2:] for word in words if word.startswith("-I") and len(word) > 2}
    placed = re.compile("|".join(map(re.escape, sorted(filter(None, marks)))))
    return [UNKNOWN_WORD if word in marks else placed.sub(UNKNOWN_WORD, word) for word in words]


def _skip_keywords(words: list[str], at: int) -> int:
    while at < len(words) and (words[at] in KEYWORDS or ASSIGNMENT.match(plain(words[at]))):
        at += 1
    return at


def _skip_options(words: list[str], at: int, name: str) -> int:
    """Return the position of the command that the program at `at` runs."""
    named = name == "coproc" and words[at + 2 : at + 3] == ["{"]
    positional = 1 if named else POSITIONAL_WORDS.get(name, 0)
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


def _texts_for_shell(words: list[str], inputs: list[str]) -> Iterator[str]:
    """Yield texts among the words, or in the input, that are passed to a shell."""
    name, rest = words[0], words[1:]
    if name in SHELLS:
        operands = [word for word in rest if word[:1] not in "-+"]
        if any(word[:1] == "-" and word[1:2] != "-" and "c" in word for word in rest):
            yield from operands[:1]
        yield from _words_with_blanks(operands)
        yield from inputs
    elif name in (".", "source"):
        if rest and _STDIN.match(rest[0]):
            yield from inputs
    elif name == "git":
        yield from _texts_git_runs(rest)
    elif name in GIVE_TO_SHELL:
        yield from _words_with_blanks(rest)
        if name == "eval":
            yield " ".join(rest)
        if name == "trap":
            yield from rest[:1]
        if name in ("at", "batch", "ssh", "parallel", "xargs"):
            yield from inputs
    if name in EVALUATE:
        if name == "printf":  # only the name of `-v NAME`
            rest = rest[1:2] if rest[:1] == ["-v"] else []
        yield from (word for word in rest if "$(" in word or "`" in word)


def _texts_git_runs(rest: list[str]) -> Iterator[str]:
    if "foreach" in rest or "bisect" in rest:
        yield from _words_with_blanks(rest)
    if "config" in rest:
        yield from _texts_in_git_config(rest)
    for before, word in zip(["", *rest], rest, strict=False):
        option = word.partition("=")[0]
        if before in GIT_RUNS or option in GIT_RUNS or word[:2] == "-O" or word.startswith(("!", "ext::")):
            yield from _words_with_blanks([word])


def _texts_in_git_config(rest: list[str]) -> Iterator[str]:
    """Yield commands in git's settings: an alias is a git command, some other settings name a program."""
    for key, value in pairwise(rest):
        if key.lower().startswith("alias.") and value[:1] != "!":
            yield f"git {value}"
        elif GIT_KEY_RUNS.match(key):
            yield value


def _words_with_blanks(words: list[str]) -> Iterator[str]:
    """Yield words that contain blanks, each also without a prefix to which it may be joined."""
    for word in words:
        if any(char.isspace() for char in word):
            yield word
            prefix = _JOINED_PREFIX.match(word)
            if prefix and prefix.end():
                yield word[prefix.end() :]
            if letters := _JOINED_LETTERS.match(word):
                yield from (word[at:] for at in range(3, letters.end()))


def _runs_anything(words: list[str], inputs: list[str]) -> bool:
    """Return whether the program runs commands that cannot be known here, such as its input."""
    name, rest = words[0], words[1:]
    operands = [word for word in rest if word[:1] != "-" or _STDIN.match(word)]
    if name in SHELLS:
        options = [word for word in rest if word[:1] == "-" and word[1:2] != "-"]
        stdin = not operands or bool(_STDIN.match(operands[0])) or any("s" in word for word in options)
        asks_itself = bool(rest) and not operands and not options
        has_script = any("c" in word for word in options)
        return stdin and not asks_itself and not has_script and not _all_known(inputs)
    if name in (".", "source"):
        return bool(rest) and bool(_STDIN.match(rest[0])) and not _all_known(inputs)
    if _renames_or_reads_program(name, rest, inputs):
        return True
    if name == "sed":
        return any(SED_RUNS.search(plain(word)) for word in rest if word not in ("-e", "-E"))
    if name in ("awk", "gawk", "mawk", "nawk"):
        return any(AWK_RUNS.search(AWK_TEXT.sub("0", plain(word))) for word in rest if "{" in word)
    if name in ("make", "gmake"):
        return any(_STDIN.match(word) for word in rest)
    if name in LANGUAGES:
        has_unknown_program = any(
            option in PROGRAM_TEXT and word in (UNKNOWN, UNKNOWN_WORD) for option, word in pairwise(rest)
        )
        return has_unknown_program or (all(map(_STDIN.match, rest)) and not _all_known(inputs))
    return name == "git" and any(
        option == "-c" and word.lower().startswith("alias.") for option, word in pairwise(rest)
    )


def _renames_or_reads_program(name: str, rest: list[str], inputs: list[str]) -> bool:
    """Return whether a builtin renames a program, or a program reads its commands from an input."""
    if name in ("hash", "enable"):
        return ("-p" if name == "hash" else "-f") in rest
    if name in ("at", "batch"):
        return not inputs and not any(word[:1] == "-" and word[1:2] in {*"lrcdfV"} for word in rest)
    options = READ_PROGRAM.get(name, set())
    return bool(options.intersection(rest)) and any(map(_STDIN.match, rest))


def _all_known(inputs: list[str]) -> bool:
    return bool(inputs) and all(map(is_known, inputs))


def _commands_in_variables(words: list[str], depth: int) -> Iterator[list[str] | str]:
    """Yield commands in the values of variables that other programs run."""
    for word in words:
        found = ASSIGNMENT.match(word)
        if found is None or not found[2]:
            continue
        name, value = found[1], found[2]
        if name in REPLACE_WITH:
            changes_other_programs = REPLACE_WITH[name].search(value) is not None
        else:
            changes_other_programs = name in REPLACE_ALL
        if changes_other_programs:
            yield ANYTHING
        elif RUN_VALUE.match(name):
            yield from _commands_in_text(value, depth)


def without_options(words: list[str]) -> list[str]:
    """Return the command without the options before its subcommand: `git push` for `git -C dir push`."""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[1 + (words[0] == "git" and rest[0] in GIT_VALUES) :]
    return [words[0], *rest]
