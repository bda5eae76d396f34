"""`cat-herder` without Django: help, version, wrong usage and completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    _AppendAction,
    _HelpAction,
    _StoreAction,
    _StoreTrueAction,
    _SubParsersAction,
)
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from catherder_site import usage
from catherder_site.command_line import main
from tasks_app.core.version import version

USAGE = Path(usage.__file__).with_name("usage.json")
OURS = sorted(name for name, app in get_commands().items() if app == "tasks_app")


def describe(parser: ArgumentParser) -> list[dict[str, Any]]:
    groups = {
        id(action): number
        for number, group in enumerate(parser._mutually_exclusive_groups)
        for action in group._group_actions
    }
    return [
        _describe(action, groups.get(id(action)))
        for action in parser._actions
        if action.help != SUPPRESS and not isinstance(action, _HelpAction | _SubParsersAction)
    ]


def _describe(action: Action, group: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {"names": [*action.option_strings] or [action.dest]}
    kinds = {_StoreAction: "store", _StoreTrueAction: "store_true", _AppendAction: "append"}
    told["action"] = kinds[type(action)]
    if action.option_strings:
        told["dest"] = action.dest
    told["help"] = action.help
    for name in ("nargs", "choices", "metavar"):
        if told["action"] != "store_true" and (value := getattr(action, name)) is not None:
            told[name] = [*value] if isinstance(value, list | tuple | range) else value
    if action.option_strings and action.required:
        told["required"] = True
    if action.type is not None:
        assert isinstance(action.type, type)
        told["type"] = action.type.__name__
    if group is not None:
        told["group"] = group
    return told


def described() -> dict[str, Any]:
    commands = {}
    for name in OURS:
        parser = load_command_class("tasks_app", name).create_parser("cat-herder", name)
        command: dict[str, Any] = {
            "description": parser.description,
            "epilog": parser.epilog,
            "arguments": describe(parser),
        }
        for action in parser._actions:
            if isinstance(action, _SubParsersAction):
                helps = {one.dest: one.help for one in action._choices_actions}
                command["actions"] = {
                    sub: {"help": helps[sub], "description": one.description, "arguments": describe(one)}
                    for sub, one in action.choices.items()
                }
        commands[name] = command
    return {"commands": commands, "django": sorted(set(get_commands()) - {*OURS, "runworker"})}


def test_the_description_is_that_of_the_commands() -> None:
    """CATHERDER_TEST_WRITE_GOLDEN=1 writes it anew."""
    text = json.dumps(described(), ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("CATHERDER_TEST_WRITE_GOLDEN"):
        USAGE.write_text(text)
    assert USAGE.read_text() == text


def test_every_command_is_in_a_group() -> None:
    assert sorted({*usage.COMMANDS} - {"completion", "django"}) == OURS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["cat-herder", *words])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def test_help_is_ours_alone_and_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "-h")
    assert code == 0
    assert [line for line in out.splitlines() if line in usage.GROUPS] == [*usage.GROUPS]
    assert "migrate`" in out and "\n  createsuperuser" not in out
    assert said(capsys) == said(capsys, "help") == (0, out, "")


def test_the_version_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == (0, f"cat-herder {version()}\n", "")


@pytest.mark.parametrize("name", OURS)
def test_help_of_a_command_names_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, name, "--help")
    assert code == 0 and out.startswith(f"usage: cat-herder {name} ")
    shown = load_command_class("tasks_app", name).create_parser("cat-herder", name).format_help()
    assert {word for word in shown.split() if word.startswith("--")} <= {*out.split()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("anwser", "7"), "There is no command “anwser”. Did you mean “answer”?"),
        (("xyzzy",), "There is no command “xyzzy”. `cat-herder --help`"),
        (("--verson",), "There is no option “--verson”. `cat-herder --help`"),
        (("migrate",), "“migrate” is a command of Django: cat-herder django migrate"),
        (("run_task",), "the following arguments are required: PATH|ID\nHelp: cat-herder run_task --help"),
        (("run_task", "1", "--bogus"), "unrecognized arguments: --bogus"),
        (("log", "1", "--kind", "all"), "argument --kind: invalid choice: 'all'"),
        (("review", "1", "--approve", "--request-changes"), "not allowed with argument --approve"),
        (("project", "ad"), "invalid choice: 'ad'"),
    ],
)
def test_wrong_usage_is_one_plain_error(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and message in err


def test_neither_help_nor_an_error_imports_django() -> None:
    code = (
        "import sys\nfrom catherder_site.command_line import main\n"
        "try: main(['cat-herder', *sys.argv[1:]])\n"
        "except SystemExit: sys.exit(any(one in sys.modules for one in ('django', 'pydantic')))"
    )
    for words in (("run_task", "--help"), ("answer",)):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", usage.SHELLS)
def test_completion_has_every_command_and_its_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, script, _ = said(capsys, "completion", shell)
    assert code == 0
    assert all(name in script for name in OURS)
    assert "-l threshold" in script or "--threshold" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_bash_completes_commands_and_options() -> None:
    ask = "COMP_WORDS=(cat-herder {words}); COMP_CWORD={at}; _cat_herder; echo ${{COMPREPLY[*]}}"
    for words, at, expected in (
        ("wat", 1, "watch_tasks"),
        ("log --fo", 2, "--follow"),
        ("project cre", 2, "credential"),
    ):
        script = f"{usage.completion('bash')}\n{ask.format(words=words, at=at)}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
