"""The agent's own program without portal and sandbox: how soon it halts and how soon it takes an answer up.

The floor of the portal's own figures. The hook is a shell that prints a prepared file; the model is the same
scripted one as in a rehearsal.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks_app.agent.launch import bundled_cli
from tasks_app.rehearsal.server import RehearsalServer
from tests.processes import start_process

PROMPT = "Do what the task says.\n\n# Ask\n\nrehearsal: ask-command\n"
PATIENCE = 60.0


@dataclass(frozen=True)
class BareHalt:
    """Milliseconds of one halt and its resume.

    `call_to_exit`: from the message with the tool call to the end of the process. `resumed`: from the start
    of the process to the tool's result in its output. `started`: from the start to the first message.
    """

    started: float
    call_to_exit: float
    resumed: float


class BareAgent:
    """Halts and resumes sessions below `folder`, each in a clone of `repository`, as the portal's own are.

    In a repository, the program asks git about it before each of its sessions.
    """

    def __init__(self, folder: Path, server: RehearsalServer, repository: Path) -> None:
        self._folder = folder
        self._repository = repository
        self._server = server
        self._decision = folder / "decision.json"
        self._settings = folder / "settings.json"
        folder.mkdir(parents=True)
        hooks = [{"type": "command", "command": f"cat {self._decision}"}]
        settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": hooks}]}}
        self._settings.write_text(json.dumps(settings))

    def halt_and_resume(self) -> BareHalt:
        session, workspace = str(uuid.uuid4()), self._folder / uuid.uuid4().hex
        subprocess.run(["git", "clone", "-q", str(self._repository), str(workspace)], check=True)
        self._decide("defer")
        began = time.time()
        seen = dict(self._run(workspace, "--session-id", session, prompt=PROMPT))
        self._decide("allow", updatedInput={"command": "echo Left.", "description": "Ask a human"})
        resumed = time.time()
        told = dict(self._run(workspace, "--resume", session, prompt=""))
        return BareHalt(
            started=(seen["system"] - began) * 1000,
            call_to_exit=(seen["exit"] - seen["tool_use"]) * 1000,
            resumed=(told["tool_result"] - resumed) * 1000,
        )

    def _decide(self, decision: str, **more: object) -> None:
        said = {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}
        self._decision.write_text(json.dumps({"hookSpecificOutput": said}))

    def _run(self, workspace: Path, *arguments: str, prompt: str) -> Iterator[tuple[str, float]]:
        """Yield what was seen first in the output, and when."""
        command = [str(bundled_cli()), "--print", "--output-format", "stream-json", "--verbose"]
        command += ["--input-format", "stream-json", "--permission-prompt-tool", "stdio"]
        command += ["--settings", str(self._settings), "--setting-sources", "", *arguments]
        process = start_process(
            command, cwd=workspace, env=self._environment(), text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdin and process.stdout
        start = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
        process.stdin.write(json.dumps(start) + "\n")
        if prompt:
            message = {"role": "user", "content": prompt}
            process.stdin.write(json.dumps({"type": "user", "message": message}) + "\n")
        seen: set[str] = set()
        for line in process.stdout:
            now = time.time()
            for what in _kinds(json.loads(line)):
                if what not in seen:
                    seen.add(what)
                    yield what, now
                if what == "result":
                    process.stdin.close()
        process.wait(PATIENCE)
        yield "exit", time.time()

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "ANTHROPIC_BASE_URL": self._server.url,
            "ANTHROPIC_API_KEY": "rehearsal",
            "CLAUDE_CONFIG_DIR": str(self._folder / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }


def _kinds(message: dict[str, Any]) -> Iterator[str]:
    yield str(message["type"])
    content = (message.get("message") or {}).get("content")
    if isinstance(content, list):
        yield from (str(part.get("type")) for part in content if isinstance(part, dict))
