"""What `cat-herder` says without importing Django: help, version, wrong usage, shell completion.

`usage.json` describes the arguments of each command; `tests/unit/test_command_line.py` compares it with the
commands, and writes it anew with CATHERDER_TEST_WRITE_GOLDEN=1.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from tasks_app.core.error_line import error_line
from tasks_app.core.version import version

#: The commands as `cat-herder --help` lists them.
GROUPS = {
    "Everyday": {
        "run_task": "run a task here, and answer its questions at the prompt",
        "run_sequence": "run a folder of tasks in order",
        "watch_tasks": "run task files as you save them",
        "inbox": "answer all open questions, one after the other",
        "status": "list tasks and sequences, those that need you first",
        "answer": "answer a question, approve a tool call or a plan",
        "open": "open a page in the browser",
        "log": "print the log of a task",
        "review": "review the result of a task",
        "publish": "push a result, or open a pull request",
        "retry": "resume what failed or was stopped",
        "cancel": "cancel a task or a sequence",
        "queue": "show what waits, and change priorities",
        "decisions": "list, import and export decisions",
        "mcp_config": "print how to add the portal to Claude Code",
    },
    "Projects": {
        "project": "add, configure, fetch and remove projects",
        "init_project": "create cat-herder.yaml and a first task in a repository",
        "validate": "report every mistake in a repository's settings and tasks",
    },
    "Operate": {
        "up": "start the portal: web server and worker",
        "worker": "start a worker alone, or drain the running ones",
        "worker_token": "create the token of a worker host",
        "demo": "show a portal to look around in, without a model",
        "doctor": "check everything that the installation needs",
        "stats": "show tokens and cost of all runs",
        "backup": "write a backup while the portal runs",
        "restore": "restore a backup",
        "clean_up": "remove old workspaces or logs",
        "installation": "show whether data directory and database belong together",
        "completion": "print the completion script of a shell",
        "django": "run a command of Django, such as `migrate`",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
SHELLS = ("bash", "zsh", "fish")


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{message}\nHelp: {self.prog} --help")


def refuse(message: str) -> NoReturn:
    sys.stderr.write(error_line(message, sys.stderr))
    sys.exit(2)


def check(arguments: list[str]) -> None:
    """Return if `arguments` are a command with valid options. Otherwise print help or an error, and exit."""
    name, *rest = arguments or ["--help"]
    if name == "help":
        name, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if name in ("-h", "--help"):
        _print(overview())
    if name in ("-V", "--version"):
        _print(f"cat-herder {version()}")
    if name == "completion":
        shells = _Parser("cat-herder completion", description=COMPLETION_HELP)
        shells.formatter_class = RawDescriptionHelpFormatter
        shells.add_argument("shell", choices=SHELLS)
        _print(completion(shells.parse_args(rest).shell))
    if name not in COMMANDS:
        refuse(_unknown(name))
    parser = parser_of(name)
    # A command parses again and may refuse more.
    if "actions" in described()["commands"][name]:
        parser.parse_args(rest)
    else:
        parser.parse_intermixed_args(rest)


def _print(text: str) -> NoReturn:
    sys.stdout.write(f"{text}\n")
    sys.exit(0)


def _unknown(name: str) -> str:
    if name in described()["django"]:
        return f"“{name}” is a command of Django: cat-herder django {name}"
    hint = "`cat-herder --help` lists the commands."
    if name.startswith("-"):
        return f"There is no option “{name}”. {hint}"
    if near := get_close_matches(name, COMMANDS, n=1, cutoff=0.5):
        hint = f"Did you mean “{near[0]}”? {hint}"
    return f"There is no command “{name}”. {hint}"


def overview() -> str:
    lines = ["Cat Herder runs coding agents in your repositories and lets them ask you.", ""]
    lines += ["usage: cat-herder COMMAND …"]
    for group, commands in GROUPS.items():
        lines += ["", group, *(f"  {name:<13} {summary}" for name, summary in commands.items())]
    lines += [
        "",
        "`cat-herder COMMAND --help` explains a command; `cat-herder --version` is there, too.",
    ]
    return "\n".join(lines)


@cache
def described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("usage.json").read_text(encoding="utf-8"))
    return found


def parser_of(name: str) -> ArgumentParser:
    """Return a parser for the options of a command, made from their description."""
    command = described()["commands"][name]
    parser = _Parser(
        f"cat-herder {name}", description=command["description"], epilog=command["epilog"],
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    _add_arguments(parser, command["arguments"])
    if actions := command.get("actions"):
        choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for action, one in actions.items():
            sub = choices.add_parser(action, help=one["help"], description=one["description"])
            _add_arguments(sub, one["arguments"])
    return parser


def _add_arguments(parser: ArgumentParser, arguments: list[dict[str, Any]]) -> None:
    groups: dict[int, Any] = {}
    for argument in map(dict, arguments):
        names, group, into = argument.pop("names"), argument.pop("group", None), parser
        if group is not None:
            groups[group] = groups.get(group) or parser.add_mutually_exclusive_group()
            into = groups[group]
        if isinstance(argument.get("metavar"), list):
            argument["metavar"] = tuple(argument["metavar"])
        if type_name := argument.get("type"):
            argument["type"] = {"int": int, "float": float}[type_name]
        into.add_argument(*names, **argument)


# Shell completion: commands, then their options and actions, else names of files.


COMPLETION_HELP = """\
Prints what makes a shell complete commands and options. To use it from now on:

  bash    cat-herder completion bash > ~/.local/share/bash-completion/completions/cat-herder
  zsh     cat-herder completion zsh >> ~/.zshrc
  fish    cat-herder completion fish > ~/.config/fish/completions/cat-herder.fish"""
_BASH = """\
_cat_herder() {{
    local words
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    [ "$COMP_CWORD" = 1 ] && words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _cat_herder cat-herder"""


def completion(shell: str) -> str:
    if shell == "fish":
        lines = []
        for name, summary in COMMANDS.items():
            said = summary.replace("'", "’")
            lines.append(f"complete -c cat-herder -n __fish_use_subcommand -f -a {name} -d '{said}'")
        for name in COMMANDS:
            seen = f"-n '__fish_seen_subcommand_from {name}'"
            lines += [
                f"complete -c cat-herder {seen} -l {word[2:]}" if word.startswith("--")
                else f"complete -c cat-herder {seen} -f -a {word}"
                for word in _words_of(name)
            ]  # fmt: skip
        return "\n".join(lines)
    cases = "\n".join(f'        {name}) words="{" ".join(_words_of(name))}" ;;' for name in COMMANDS)
    script = _BASH.format(cases=cases, commands=" ".join(COMMANDS))
    if shell == "zsh":
        script = f"autoload -Uz compinit bashcompinit && compinit && bashcompinit\n{script}"
    return script


def _words_of(name: str) -> list[str]:
    """Return what can follow a command: its actions and its long options."""
    if name == "completion":
        return [*SHELLS]
    if name == "django":
        return [*described()["django"]]
    command = described()["commands"][name]
    arguments = [*command["arguments"]]
    for one in command.get("actions", {}).values():
        arguments += one["arguments"]
    options = {word for argument in arguments for word in argument["names"] if word.startswith("--")}
    return [*command.get("actions", {}), *sorted(options), "--help"]
