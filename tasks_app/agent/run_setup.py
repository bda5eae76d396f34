"""Setting up one run: the folder of its gate with the permissions, and what is to be started."""

from __future__ import annotations

import json
import py_compile
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Self

from tasks_app.agent.config_dir import clear_config_dir, plans_folder
from tasks_app.agent.gate.patterns import WRITING
from tasks_app.agent.launch import Launch
from tasks_app.agent.permission_requests import is_planning
from tasks_app.agent.port import CallPermission, RunOrder
from tasks_app.agent.spools import (
    clear_replies,
    clear_said,
    clear_spool,
    reply_folder,
    said_folder,
    spool_folder,
)
from tasks_app.core.files import temporary_folder
from tasks_app.core.similar_questions import STOP_WORDS
from tasks_app.core.types import KnownDecision
from tasks_app.sandbox import Sandbox, SandboxedCommand, with_forwarded_port

_HERE = Path(__file__).parent
#: Modules that the gate needs. They are copied to folders of the same names, so that their imports work.
_GATE_MODULES = (
    "path_patterns.py",
    "patterns.py",
    "possible_commands.py",
    "shell_programs.py",
    "shell_reader.py",
    "shell_words.py",
    "urls.py",
)
#: How long the agent's program waits for the gate. The gate itself gives up earlier (`gate.hook.SECONDS`).
HOOK_SECONDS = 30

#: Variables that the SDK sets for its child.
FROM_SDK = (
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "CLAUDE_CODE_CLIENT_APP",
)


@dataclass(frozen=True)
class RunSetup:
    """The prepared start of one run. `command` is the sandboxed command in `launch`."""

    launch: Launch
    settings: str
    command: SandboxedCommand


@dataclass(frozen=True)
class _SeenPaths:
    """The paths of a run's folders as the agent sees them. It can only read `inside`."""

    workspace: Path
    home: Path
    inside: Path

    @classmethod
    def of(cls, order: RunOrder, sandbox: Sandbox) -> Self:
        folders = (order.paths.workspace, order.paths.home, order.paths.run / "inside")
        return cls(*map(sandbox.inside, folders))


def set_up_run(
    order: RunOrder,
    *,
    argv: list[str],
    env: Mapping[str, str],
    sandbox: Sandbox,
    model: Path | None = None,
) -> RunSetup:
    """Write everything that the run needs before its process starts.

    `model` is the Unix socket of its model, for a sandbox without a network.
    """
    paths, inside = order.paths, order.paths.run / "inside"
    seen = _SeenPaths.of(order, sandbox)
    for folder in (inside / "bin", paths.answers):
        folder.mkdir(parents=True, exist_ok=True)
    clear_spool(paths.home)
    clear_replies(paths.home)
    clear_said(paths.home)
    if not order.resume:
        clear_config_dir(paths.home)
    install_gate(inside)
    shutil.copy(_HERE / "ask.py", inside / "ask.py")
    (inside / "permissions.json").write_text(
        json.dumps(_permissions_json(order.permissions)), encoding="utf-8"
    )
    (inside / "orders.json").write_text(json.dumps(_gate_orders(order, seen)), encoding="utf-8")
    command_env = {**order.variables, **env, **order.claim.variables(paths.workspace)}
    command_env["CAT_HERDER_SAID"] = str(said_folder(seen.home))
    if order.may_ask:
        command_env["CAT_HERDER_ASKED"] = str(spool_folder(seen.home))
    if order.threads:
        command_env["CAT_HERDER_REPLIES"] = str(reply_folder(seen.home))
        command_env["CAT_HERDER_THREADS"] = " ".join(map(str, order.threads))
    if order.decisions:
        write_decisions(inside / "decisions.json", order.decisions)
        command_env["CAT_HERDER_DECISIONS"] = str(seen.inside / "decisions.json")
    _write_script(inside / "bin" / "cat-herder", f"{_python()} {shlex.quote(str(seen.inside / 'ask.py'))}")
    readable = [inside, paths.answers, *paths.readable, Path(argv[0]).parent]
    command = sandbox.command(
        argv if model is None else with_forwarded_port(sandbox.inside(model), argv),
        workspace=paths.workspace,
        home=paths.home,
        env=command_env,
        readable=readable if model is None else [*readable, model.parent],
    )
    variables = {**command.env, "PATH": f"{seen.inside / 'bin'}:{command.env['PATH']}"}
    launch = Launch(command.argv, variables, paths.lock, inherit=FROM_SDK)
    return RunSetup(launch, _settings(order, seen.inside), command)


def install_gate(inside: Path) -> None:
    """Write the gate's program and its modules, compiled.

    The gate starts for each tool call, and would otherwise compile itself each time.
    """
    _write_compiled(_HERE / "gate" / "hook.py", inside / "gate.pyc")
    for name in _GATE_MODULES:
        target = inside / "tasks_app" / "agent" / "gate" / name
        _write_compiled(_HERE / "gate" / name, target.with_suffix(".pyc"))


def _write_compiled(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_compile(source))


@cache
def _compile(source: Path) -> bytes:
    """Compile the file for this interpreter, which also runs the gate."""
    with temporary_folder("cat-herder-gate-") as folder:
        compiled = folder / "it.pyc"
        unchecked = PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), source.name, doraise=True, invalidation_mode=unchecked)
        return compiled.read_bytes()


def _permissions_json(permissions: Mapping[str, CallPermission]) -> dict[str, dict[str, object]]:
    written: dict[str, dict[str, object]] = {}
    for call, permission in permissions.items():
        written[call] = {"permissionDecision": "allow" if permission.allow else "deny"}
        if permission.updated_input is not None:
            written[call]["updatedInput"] = dict(permission.updated_input)
        if permission.reason:
            written[call]["permissionDecisionReason"] = permission.reason
        if permission.for_input is not None:
            written[call]["forInput"] = dict(permission.for_input)
        if permission.context:
            written[call]["additionalContext"] = permission.context
    return written


def write_decisions(path: Path, decisions: Sequence[KnownDecision]) -> None:
    """Write the decisions that `cat-herder decisions` searches."""
    listed = [{**asdict(one), "label": one.label} for one in decisions]
    document = {"decisions": listed, "stop_words": sorted(STOP_WORDS)}
    path.write_text(json.dumps(document), encoding="utf-8")


def _gate_orders(order: RunOrder, seen: _SeenPaths) -> dict[str, object]:
    return {
        "may_ask": order.may_ask,
        "asks_no_more": order.asks_no_more,
        "step": order.step,
        "workspace": str(seen.workspace),
        "home": str(seen.home),
        "allow_write": None if order.allow_write is None else list(order.allow_write),
        "allowed_tools": None if order.allowed_tools is None else list(order.allowed_tools),
        "ask_before": list(order.ask_before),
        "plans_first": is_planning(order),
        "plans": str(plans_folder(seen.home)) if order.planning else "",
    }


def _settings(order: RunOrder, inside: Path) -> str:
    """Return the CLI's settings as JSON: the gate is a command hook for the tools on which it decides."""
    asking = ["AskUserQuestion", "Bash"] if order.may_ask or order.asks_no_more else []
    every = ["*"] if order.ask_before or order.planning else []
    # The portal makes the commits and the pull requests: without it the program tells the agent to sign them.
    settings: dict[str, object] = {"attribution": {"commit": "", "pr": ""}}
    if order.planning:
        # Otherwise a classifier, which the portal does not offer, judges calls that do more than read, and
        # its absence ends the run.
        settings["useAutoModeDuringPlan"] = False
    # A gate that crashes, takes too long or is missing blocks the call.
    hook = {
        "type": "command",
        "command": gate_command(inside),
        "timeout": HOOK_SECONDS,
        "onFailure": "block",
    }
    matcher = "|".join(every or [*asking, *WRITING])
    return json.dumps({**settings, "hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [hook]}]}})


def gate_command(inside: Path) -> str:
    """Return the hook's command line. It exits with 2 on every failure.

    A program that does not know `onFailure` would let the call through after any other exit code.
    """
    return f"{_python()} {shlex.quote(str(inside / 'gate.pyc'))} {shlex.quote(str(inside))} || exit 2"


def _python() -> str:
    """Return Python in isolated mode without site-packages: it starts fast and imports no agent files."""
    return f"{shlex.quote(sys.executable)} -ISB"


def _write_script(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
