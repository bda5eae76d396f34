"""Setting up the folder of one run: the gate with its decisions, and the launcher with its orders."""

from __future__ import annotations

import json
import py_compile
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode

from tasks_app.agent.ask_spool import clear_spool, spool_folder
from tasks_app.agent.config_dir import clear_config_dir
from tasks_app.agent.gate.patterns import WRITING
from tasks_app.agent.plans import plans_folder
from tasks_app.agent.port import Decision, RunOrder
from tasks_app.agent.reply_spool import clear_replies, reply_folder
from tasks_app.sandbox import Sandbox, SandboxedCommand, with_forwarded_port

_HERE = Path(__file__).parent
#: Modules that the gate needs. They are copied to folders of the same names, so that their imports work.
_GATE_MODULES = (
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
    """The files and values of one run.

    The agent can read the folder `inside`, but not the orders, which hold keys. The SDK starts `program`, and
    `env` tells it where its orders are.
    """

    program: Path
    env: dict[str, str]
    settings: str
    inside: Path
    command: SandboxedCommand


def set_up_run(
    order: RunOrder, *, argv: list[str], env: Mapping[str, str], sandbox: Sandbox, model: Path | None = None
) -> RunSetup:
    """Write everything that the run needs before its process starts.

    `model` is the Unix socket of its model, for a sandbox without a network.
    """
    paths = order.paths
    inside = paths.run / "inside"
    for folder in (inside / "bin", paths.answers):
        folder.mkdir(parents=True, exist_ok=True)
    clear_spool(paths.home)
    clear_replies(paths.home)
    if not order.resume:
        clear_config_dir(paths.home)
    install_gate(inside)
    shutil.copy(_HERE / "ask.py", inside / "ask.py")
    (inside / "decisions.json").write_text(json.dumps(_decisions_json(order.decisions)), encoding="utf-8")
    (inside / "orders.json").write_text(json.dumps(_gate_orders(order)), encoding="utf-8")
    command_env = {**order.variables, **env, **order.claim.variables(paths.workspace)}
    if order.may_ask:
        command_env["CAT_HERDER_ASKED"] = str(spool_folder(paths.home))
    if order.threads:
        command_env["CAT_HERDER_REPLIES"] = str(reply_folder(paths.home))
        command_env["CAT_HERDER_THREADS"] = " ".join(map(str, order.threads))
    has_command = order.may_ask or bool(order.threads)
    if has_command:
        _write_script(inside / "bin" / "cat-herder", f"{_python()} {shlex.quote(str(inside / 'ask.py'))}")
    readable = [inside, paths.answers, *paths.readable, Path(argv[0]).parent]
    command = sandbox.command(
        argv if model is None else with_forwarded_port(model, argv),
        workspace=paths.workspace,
        home=paths.home,
        env=command_env,
        readable=readable if model is None else [*readable, model.parent],
    )
    search_path = command.env["PATH"]
    if has_command:
        search_path = f"{inside / 'bin'}:{search_path}"
    orders = paths.run / "orders.json"
    orders.touch(mode=0o600)
    launcher_orders = {
        "argv": command.argv,
        "env": {**command.env, "PATH": search_path},
        "inherit": FROM_SDK,
        "lock": str(paths.lock),
    }
    orders.write_text(json.dumps(launcher_orders), encoding="utf-8")
    launcher_env = {"CAT_HERDER_PYTHON": sys.executable, "CAT_HERDER_ORDERS": str(orders)}
    return RunSetup(_HERE / "launch.sh", launcher_env, _settings(order, inside), inside, command)


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
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "it.pyc"
        unchecked = PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), source.name, doraise=True, invalidation_mode=unchecked)
        return compiled.read_bytes()


def _decisions_json(decisions: Mapping[str, Decision]) -> dict[str, dict[str, object]]:
    written: dict[str, dict[str, object]] = {}
    for call, decision in decisions.items():
        written[call] = {"permissionDecision": "allow" if decision.allow else "deny"}
        if decision.updated_input is not None:
            written[call]["updatedInput"] = dict(decision.updated_input)
        if decision.reason:
            written[call]["permissionDecisionReason"] = decision.reason
        if decision.for_input is not None:
            written[call]["forInput"] = dict(decision.for_input)
        if decision.context:
            written[call]["additionalContext"] = decision.context
    return written


def _gate_orders(order: RunOrder) -> dict[str, object]:
    return {
        "may_ask": order.may_ask,
        "asks_no_more": order.asks_no_more,
        "step": order.step,
        "workspace": str(order.paths.workspace),
        "allow_write": None if order.allow_write is None else list(order.allow_write),
        "ask_before": list(order.ask_before),
        "plans": str(plans_folder(order.paths.home)) if order.planning else "",
    }


def _settings(order: RunOrder, inside: Path) -> str:
    """Return the CLI's settings as JSON: the gate is a command hook for the tools on which it decides."""
    asking = ["AskUserQuestion", "Bash"] if order.may_ask or order.asks_no_more else []
    writing = [] if order.allow_write is None else list(WRITING)
    every = ["*"] if order.ask_before or order.planning else []
    settings: dict[str, object] = {}
    if order.planning:
        # Otherwise a classifier, which the portal does not offer, judges calls that do more than read, and
        # its absence ends the run.
        settings["useAutoModeDuringPlan"] = False
    if not (asking or writing or every):
        return json.dumps(settings)
    # A gate that crashes, takes too long or is missing blocks the call.
    hook = {
        "type": "command",
        "command": gate_command(inside),
        "timeout": HOOK_SECONDS,
        "onFailure": "block",
    }
    matcher = "|".join(every or asking + writing)
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
