"""What `npm`, `yarn`, `pnpm` and `make` would find: scripts of package.json, targets of a Makefile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks_app.config.validation.shell_words import Word

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
    return _script(str(words[0]), plain, folder)


def _script(manager: str, plain: list[str], folder: str) -> ScriptCall | None:
    if plain[0] in _RUN:
        return ScriptCall(plain[1], folder) if len(plain) > 1 else None
    if plain[0] in _TEST:
        return ScriptCall("test", folder)
    if manager == "npm" or plain[0] in _OWN_WORDS:
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
    """Return the folder that the options lead to, and the words that are no options."""
    folder = _option_value(options, _INTO_FOLDER)
    plain = [word for word in options if word is not None and not word.startswith("-")]
    return folder or ".", plain


def _option_value(options: list[Word], names: tuple[str, ...]) -> str | None:
    """Return the value of an option, taken out of the list: `-C DIR`, `--prefix DIR`, `--prefix=DIR`."""
    for index, word in enumerate(options):
        name, equals, value = (word or "").partition("=")
        if name in names:
            if not equals:
                value = (options[index + 1 : index + 2] or [None])[0] or ""
            del options[index : index + (1 if equals else 2)]
            return value
    return None
