"""Check what would run: scripts of package.json, targets of a Makefile, programs that checks name."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks_app.agent.gate.possible_commands import ASSIGNMENT
from tasks_app.agent.gate.shell_reader import KEYWORDS, read
from tasks_app.agent.gate.shell_words import is_known
from tasks_app.config.faults import ConfigInvalid, did_you_mean, shown
from tasks_app.config.validation.findings import Finding, Severity, findings_in
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.settings_file import read_json
from tasks_app.core.errors import BadInput
from tasks_app.sandbox.process_environment import search_path

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

_INTO_FOLDER = ("--prefix", "-C", "--cwd", "--dir", "--directory")
#: Options that choose scripts of other packages, which this folder does not show.
_ELSEWHERE = re.compile(r"(-w|-ws|-F|-r|--workspaces?|--ws|--recursive|--filter|--if-present)(=.*)?")
_RUN = {"run", "run-script", "rum", "urn"}
_TEST = {"test", "t", "tst"}
#: What yarn and pnpm do by themselves; any other first word is a script, or a program of a dependency.
_OWN_WORDS = {
    "add", "audit", "autoclean", "bin", "cache", "check", "config", "constraints", "create", "dedupe",
    "deploy", "dlx", "env", "exec", "explain", "fetch", "generate-lock-entry", "global", "help", "i",
    "import", "info", "init", "install", "it", "link", "list", "licenses", "login", "logout", "ls", "node",
    "npm", "outdated", "owner", "pack", "patch", "plugin", "policies", "prune", "publish", "rb", "rebuild",
    "remove", "rm", "root", "search", "server", "set", "setup", "stage", "start", "store", "tag", "team",
    "unlink", "unplug", "up", "update", "upgrade", "upgrade-interactive", "version", "versions", "why",
    "workspace", "workspaces",
}  # fmt: skip

_TARGETS = re.compile(r"^(?![\t#])([^\s:=#][^:=#\n]*?)[ \t]*::?(?![:=])", re.MULTILINE)
_NOT_PLAIN = re.compile(r"^[ \t]*-?s?include[ \t]|^[^\t#:\n]*[$%][^:\n]*:(?!=)", re.MULTILINE)


@dataclass(frozen=True)
class ScriptCall:
    """A script of package.json that a command runs, in `folder` relative to where it runs.

    `or_program`: without such a script a program of a dependency is run.
    """

    script: str
    folder: str = "."
    or_program: bool = False


@dataclass(frozen=True)
class MakeCall:
    """Return the targets on the command line of `make`; none means the first target of the file."""

    targets: tuple[str, ...]
    folder: str = "."
    file: str | None = None


def script_called(words: Sequence[Word]) -> ScriptCall | None:
    """Return the script that `npm …`, `yarn …` or `pnpm …` runs; None if it runs none or is not known."""
    options = list(words[1:])
    if "--" in options:
        options = options[: options.index("--")]
    if None in options[:2] or any(word and _ELSEWHERE.fullmatch(word) for word in options):
        return None
    folder, plain = _split(options)
    if not plain:
        return None
    if plain[0] in _RUN and len(plain) > 1:
        return ScriptCall(plain[1], folder)
    if plain[0] in _TEST:
        return ScriptCall("test", folder)
    if words[0] == "npm" or plain[0] in _RUN | _OWN_WORDS:
        return None
    return ScriptCall(plain[0], folder, or_program=True)


def make_called(words: Sequence[Word]) -> MakeCall | None:
    """Return the targets of `make …`; None if they are not known."""
    options = list(words[1:])
    if None in options:
        return None
    file = _option_value(options, ("-f", "--file", "--makefile"))
    folder, plain = _split(options)
    # `-j 4` leaves its number behind, and A=B is a variable.
    targets = tuple(word for word in plain if "=" not in word and not word.isdecimal())
    return MakeCall(targets, folder, file)


def make_targets(makefile: str) -> frozenset[str] | None:
    """Return the targets of a Makefile; None if other files, variables or patterns may add to them."""
    joined = makefile.replace("\\\n", " ")
    if _NOT_PLAIN.search(joined):
        return None
    return frozenset(target for match in _TARGETS.finditer(joined) for target in match[1].split())


def _split(options: list[Word]) -> tuple[str, list[str]]:
    """Return the folder that the options lead to, and the words that are not options."""
    folder = _option_value(options, _INTO_FOLDER)
    plain = [word for word in options if word is not None and not word.startswith("-")]
    return folder or ".", plain


def _option_value(options: list[Word], names: tuple[str, ...]) -> str | None:
    """Return the value of an option, taken out of the list: `-C DIR`, `--prefix DIR`, `--prefix=DIR`."""
    for index, word in enumerate(options):
        name, equals, value = (word or "").partition("=")
        if name in names:
            if equals:
                del options[index]
            else:
                value = (options[index + 1 : index + 2] or [None])[0] or ""
                del options[index : index + 2]
            return value
    return None


# The commands in a line of shell, as far as they are known without running it.


#: One argument; None where only the shell can tell what it will be.
Word = str | None

#: Constructs that only a shell can read: here-documents, functions, `case`.
_BEYOND = re.compile(r"<<|\w[ \t]*\([ \t]*\)|(?<![\w-])(?:case|select|function|coproc)[ \t]")
#: After these the next word is a command again.
_LEADING = {*KEYWORDS, "time", "exec", "command", "env", "nohup", "builtin"}
#: The words after these, up to the end of the command, are not commands.
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


# Check that the command of a check can be run: its programs, scripts and targets exist (P5).


_MANAGERS = ("npm", "yarn", "pnpm")
#: Words that bash knows by itself.
_BUILT_IN = {
    ".", ":", "[", "[[", "]]", "!", "{", "}", "alias", "bg", "break", "cd", "command", "continue",
    "declare", "dirs", "disown", "do", "done", "echo", "elif", "else", "enable", "esac", "eval", "exec",
    "exit", "export", "false", "fc", "fg", "fi", "getopts", "hash", "if", "jobs", "kill", "let", "local",
    "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set",
    "shift", "shopt", "source", "suspend", "test", "then", "time", "times", "trap", "true", "type",
    "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
}  # fmt: skip


@dataclass(frozen=True)
class Complaint:
    """An error of a command; the message continues a sentence that begins with the key."""

    message: str
    severity: Severity = Severity.ERROR


def complaints(command: str, *, context: RepositoryContext, has_setup: bool) -> Iterator[Complaint]:
    """Return why the command line of a check could not be run in a clone of the repository.

    `has_setup`: the commands of a setup run before it, and may make what it names.
    """
    folder: Path | None = context.root
    for number, words in enumerate(simple_commands(command)):
        if words[0] == "cd":
            folder = _after_cd(folder, words)
            continue
        if folder is None:  # `cd` led to a place that only the shell knows
            return
        yield from _Command(words, folder, context, first=number == 0 and not has_setup).complaints()


def broken_package(context: RepositoryContext, folder: Path) -> list[Finding]:
    """Faults of the package.json in `folder` that keep its scripts from being known."""
    name = _name_of(folder / "package.json", context)
    try:
        _scripts(context, folder)
    except BadInput as fault:
        return list(findings_in(fault, file=name))
    return []


@dataclass(frozen=True)
class _Command:
    """One program with its arguments, run in `folder`.

    `first`: no command runs before this one, so that none may have made what it names.
    """

    words: tuple[Word, ...]
    folder: Path
    context: RepositoryContext
    first: bool

    @cached_property
    def _unless_first(self) -> Severity:
        return Severity.ERROR if self.first else Severity.WARNING

    def complaints(self) -> Iterator[Complaint]:
        program = self.words[0]
        if not program or program in _BUILT_IN:
            return
        if "/" in program:
            yield from self._path(program)
        elif shutil.which(program, path=search_path()) is None:
            message = f"runs {shown(program)}, which is no program on this machine's PATH"
            if (self.folder / program).is_file():
                message += f"; for the file of the repository write ./{program}"
            yield Complaint(message, self._unless_first)
        elif program in _MANAGERS and (call := script_called(self.words)):
            yield from self._script(program, call)
        elif program == "make" and (target := make_called(self.words)):
            yield from self._make(target)

    def _path(self, program: str) -> Iterator[Complaint]:
        path, is_absolute = self.folder / program, Path(program).is_absolute()
        if not is_absolute and self.context.leads_out(path):
            yield Complaint(f"runs {shown(program)}, which leads out of the repository")
        elif not path.exists() and is_absolute:
            yield Complaint(f"runs {shown(program)}, which does not exist on this machine")
        elif not path.exists():
            if self.first:
                yield Complaint(f"runs {shown(program)}, which does not exist in the repository")
        elif not path.is_file() or not os.access(path, os.X_OK):
            yield Complaint(f"runs {shown(program)}, which is no executable file")
        elif self.first and not is_absolute and not self.context.is_committed(_name_of(path, self.context)):
            message = f"runs {shown(program)}, which is not in git: a task's clone will not have it"
            yield Complaint(message, Severity.WARNING)

    def _script(self, program: str, call: ScriptCall) -> Iterator[Complaint]:
        folder = self.folder / call.folder
        name = _name_of(folder / "package.json", self.context)
        try:
            scripts = _scripts(self.context, folder)
        except ConfigInvalid:
            return  # reported once, at that file
        wanted = f"runs the script {shown(call.script)}"
        if scripts is None:
            yield Complaint(f"{wanted} with {program}, but there is no {name}", self._unless_first)
        elif call.script not in scripts:
            if call.or_program and os.path.lexists(folder / "node_modules/.bin" / call.script):
                return
            known = f"its scripts are: {', '.join(scripts) or 'none'}{did_you_mean(call.script, scripts)}"
            yield Complaint(f"{wanted}, which {name} does not have; {known}")

    def _make(self, call: MakeCall) -> Iterator[Complaint]:
        folder = self.folder / call.folder
        if self.context.leads_out(folder / (call.file or ".")):
            yield Complaint("runs make in a place that leads out of the repository", Severity.WARNING)
            return
        names = (call.file,) if call.file else MAKEFILES
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            yield Complaint(
                f"runs make, but there is no {call.file or 'Makefile'} in the repository", Severity.WARNING
            )
            return
        targets = make_targets(path.read_text(encoding="utf-8", errors="replace"))
        for target in call.targets:
            if targets is not None and target not in targets and not (folder / target).exists():
                name, hint = _name_of(path, self.context), did_you_mean(target, targets)
                yield Complaint(
                    f"makes {shown(target)}, which is no target of {name}{hint}", Severity.WARNING
                )


def package_folders(command: str, *, context: RepositoryContext) -> Iterator[Path]:
    """Return the folders whose package.json the command's scripts come from."""
    folder: Path | None = context.root
    for words in simple_commands(command):
        if words[0] == "cd":
            folder = _after_cd(folder, words)
        elif folder is not None and words[0] in _MANAGERS and (call := script_called(words)):
            yield folder / call.folder


def _after_cd(folder: Path | None, words: tuple[Word, ...]) -> Path | None:
    if folder is not None and len(words) == 2 and words[1] and not words[1].startswith("-"):
        return folder / words[1]
    return None


def _scripts(context: RepositoryContext, folder: Path) -> Mapping[str, object] | None:
    """Return the scripts of the package.json in `folder`; None without such a file. Raises ConfigInvalid."""
    name = _name_of(folder / "package.json", context)
    text = read_text(context, name, follow=True)
    if text is None:
        return None
    package = read_json(text, where=name)
    if isinstance(package, dict) and isinstance(scripts := package.get("scripts"), dict):
        return scripts
    return {}


def _name_of(path: Path, context: RepositoryContext) -> str:
    """Relative to the repository, without `..` and `.` in it."""
    return os.path.relpath(os.path.normpath(path), context.root)
