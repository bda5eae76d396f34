"""Laying out the folder of one run: the gate with its decisions, and the launcher with its orders."""

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
from tasks_app.agent.port import Decision, Places, RunOrder
from tasks_app.sandbox import Sandbox, SandboxedCommand, forwarded

_HERE = Path(__file__).parent
#: What the gate needs of the portal; laid out in folders of the same names, so that it is imported as here.
_GATE_MODULES = ("patterns.py", "shell.py", "shell_reader.py", "web_addresses.py")
#: How long the agent's program waits for the gate; the gate gives up by itself before (`gate.SECONDS`).
HOOK_SECONDS = 30

#: What the SDK itself sets for its child.
FROM_SDK = (
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "CLAUDE_CODE_CLIENT_APP",
)


@dataclass(frozen=True)
class RunSetup:
    """`inside` is shown to the agent, read-only; the orders, which hold keys, are not.

    `program` is what the SDK starts, and `env` tells it where its orders are.
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
    places = order.places
    inside = places.run / "inside"
    for folder in (inside / "bin", places.answers):
        folder.mkdir(parents=True, exist_ok=True)
    clear_spool(places.home)
    if not order.resume:
        clear_config_dir(places.home)
    install_gate(inside)
    shutil.copy(_HERE / "ask.py", inside / "ask.py")
    (inside / "decisions.json").write_text(json.dumps(_decisions(order.decisions)), encoding="utf-8")
    (inside / "orders.json").write_text(json.dumps(_gate_orders(order)), encoding="utf-8")
    if order.may_ask:
        _script(inside / "bin" / "cat-herder", f"{_python()} {shlex.quote(str(inside / 'ask.py'))}")
    shown = [inside, places.answers, Path(argv[0]).parent]
    command = sandbox.command(
        argv if model is None else forwarded(model, argv),
        workspace=places.workspace,
        home=places.home,
        env=_environment(env, order, inside if order.may_ask else None),
        readable=shown if model is None else [*shown, model.parent],
    )
    path = command.env["PATH"]
    if order.may_ask:
        path = f"{inside / 'bin'}:{path}"
    orders = {
        "argv": command.argv,
        "env": {**command.env, "PATH": path},
        "inherit": FROM_SDK,
        "lock": str(places.lock),
    }
    told = {"CAT_HERDER_PYTHON": sys.executable, "CAT_HERDER_ORDERS": str(_write_orders(places, orders))}
    return RunSetup(_HERE / "launch.sh", told, _settings(order, inside), inside, command)


def install_gate(inside: Path) -> None:
    """The gate's program, and beside it what it needs of the portal.

    Compiled: it starts for each tool call, and would compile itself each time.
    """
    _lay_compiled(_HERE / "gate" / "hook.py", inside / "gate.pyc")
    for name in _GATE_MODULES:
        target = inside / "tasks_app" / "agent" / "gate" / name
        _lay_compiled(_HERE / "gate" / name, target.with_suffix(".pyc"))


def _lay_compiled(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_compiled(source))


@cache
def _compiled(source: Path) -> bytes:
    """For this very interpreter, which is the one that runs the gate."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "it.pyc"
        unchecked = PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), source.name, doraise=True, invalidation_mode=unchecked)
        return compiled.read_bytes()


def _decisions(decisions: Mapping[str, Decision]) -> dict[str, dict[str, object]]:
    written: dict[str, dict[str, object]] = {}
    for identity, decision in decisions.items():
        written[identity] = {"permissionDecision": "allow" if decision.allow else "deny"}
        if decision.updated_input is not None:
            written[identity]["updatedInput"] = dict(decision.updated_input)
        if decision.reason:
            written[identity]["permissionDecisionReason"] = decision.reason
        if decision.for_input is not None:
            written[identity]["forInput"] = dict(decision.for_input)
        if decision.context:
            written[identity]["additionalContext"] = decision.context
    return written


def _environment(env: Mapping[str, str], order: RunOrder, inside: Path | None) -> dict[str, str]:
    asked = {"CAT_HERDER_ASKED": str(spool_folder(order.places.home))} if inside else {}
    return {**env, **asked, **order.claim.variables(order.places.workspace)}


def _gate_orders(order: RunOrder) -> dict[str, object]:
    return {
        "may_ask": order.may_ask,
        "asks_no_more": order.asks_no_more,
        "step": order.step,
        "workspace": str(order.places.workspace),
        "allow_write": None if order.allow_write is None else list(order.allow_write),
        "ask_before": list(order.ask_before),
        "plans": str(plans_folder(order.places.home)) if order.planning else "",
    }


def _settings(order: RunOrder, inside: Path) -> str:
    """The CLI's settings: the gate as a command hook, for the tools that it has a say in."""
    asking = ["AskUserQuestion", "Bash"] if order.may_ask or order.asks_no_more else []
    writing = [] if order.allow_write is None else list(WRITING)
    every = ["*"] if order.ask_before or order.planning else []
    settings: dict[str, object] = {}
    if order.planning:
        # Else a classifier that the portal does not offer judges what is no mere look, and ends the run.
        settings["useAutoModeDuringPlan"] = False
    if not (asking or writing or every):
        return json.dumps(settings)
    # A gate that crashes, takes too long or is not there blocks the call.
    hook = {
        "type": "command",
        "command": gate_command(inside),
        "timeout": HOOK_SECONDS,
        "onFailure": "block",
    }
    matcher = "|".join(every or asking + writing)
    return json.dumps({**settings, "hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [hook]}]}})


def gate_command(inside: Path) -> str:
    """Any exit code but 2 would let the call through in a program that does not know `onFailure`."""
    return f"{_python()} {shlex.quote(str(inside / 'gate.pyc'))} {shlex.quote(str(inside))} || exit 2"


def _write_orders(places: Places, orders: Mapping[str, object]) -> Path:
    path = places.run / "orders.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(orders), encoding="utf-8")
    return path


def _python() -> str:
    """Isolated and without site-packages: it starts in milliseconds and imports nothing of the agent's."""
    return f"{shlex.quote(sys.executable)} -ISB"


def _script(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
