"""Scripts for the fake agent: what it says and does in a session, act by act."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tasks_app.agent.questions import ask_from_call


@dataclass(frozen=True)
class Call:
    """A tool call. `work` gets the workspace, does what the tool would do, and returns its result."""

    name: str
    input: Mapping[str, Any]
    work: Callable[[Path], str] = lambda workspace: ""

    @property
    def asks(self) -> bool:
        return ask_from_call("", self.name, self.input) is not None


@dataclass(frozen=True)
class Turn:
    """One message of the model. In `text`, `{result}` stands for the last result of an ask."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Fail:
    """The run ends with an error that the agent itself reports."""

    text: str = "API Error: 500"
    subtype: str = "success"


@dataclass(frozen=True)
class Limit:
    """A usage limit is reached; `resets_at` in seconds since 1970, None if the agent is not told."""

    resets_at: int | None = None


@dataclass(frozen=True)
class Die:
    """The process ends in the middle of a line, without a result. A negative code is a signal."""

    exit_code: int = 1


@dataclass(frozen=True)
class Hang:
    """A call that does its work and never returns. A later run of the session continues after it."""

    call: Call


@dataclass(frozen=True)
class End:
    """The agent ends its turn. The following acts are played when it is sent back into the session."""


@dataclass(frozen=True)
class UnknownMessage:
    """A message of an unknown type."""

    type: str = "whisper"


Act: TypeAlias = Turn | Fail | Limit | Die | Hang | End | UnknownMessage
#: Returns what to play for a session's first prompt.
Script = Callable[[str], Sequence[Act]]


def say(text: str) -> Turn:
    return Turn(text)


def write(path: str, content: str) -> Call:
    """Write a file of the workspace."""

    def work(workspace: Path) -> str:
        (workspace / path).write_text(content, encoding="utf-8")
        return f"{path} was written"

    return Call("Write", {"file_path": path, "content": content}, work)


def shell(command: str) -> Call:
    """Run a shell command in the workspace."""
    return Call("Bash", {"command": command}, lambda workspace: run_in_shell(command, workspace)[0])


def plan(text: str) -> Call:
    """Present a plan. An approval ends plan mode."""
    return Call("ExitPlanMode", {"plan": text})


def ask(*questions: str | Mapping[str, Any]) -> Call:
    """Ask by AskUserQuestion; a plain text is a question with the options Yes and No."""
    return Call("AskUserQuestion", {"questions": [_question(question) for question in questions]})


def _question(question: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(question, str):
        return question
    options = [{"label": label, "description": f"{label}, please."} for label in ("Yes", "No")]
    return {"question": question, "header": "Fake", "options": options, "multiSelect": False}


def ask_by_command(question: str, *, before: str = "") -> Call:
    return shell(f'{before}cat-herder ask "{question}"')


def run_in_shell(command: str, workspace: Path) -> tuple[str, bool]:
    """Run the command and return its output, and whether it failed."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.decode("utf-8", errors="replace").removesuffix("\n"), done.returncode != 0
