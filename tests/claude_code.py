"""The Claude Code of a person in a terminal of its own, with a scripted model and the portal to work with."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2

from tasks_app.agent.launch import bundled_cli
from tasks_app.rehearsal.server import RehearsalServer
from tests.portal import UpPortal
from tests.waiting import wait_until

#: What the form of a question begins with.
FORM = "MCP server “cat-herder” requests your input"
_TOKEN = """
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
admin = Principal.unrestricted(User.objects.get(username="admin"))
result = make_token({name!r}, tuple(Scope), by=admin).secret
"""
_KEY = "rehearsal-rehearsal-rehearsal"


def list_tools(portal: UpPortal, token: str) -> None:
    """Let the portal list its tools: the first time takes long, for which no scripted model waits."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    listed = httpx2.post(f"{portal.url}/mcp", json=message, headers=headers, timeout=120)
    assert listed.status_code == 200, listed.text


class ClaudeCode:
    """Runs in `tmux`, so that a test sees the screen as the person does."""

    def __init__(self, folder: Path, model: RehearsalServer, portal: str, token: str) -> None:
        self.model, self.token = model, token
        self.workspace, self._config = folder / "workspace", folder / "config"
        self.workspace.mkdir(parents=True)
        self._config.mkdir()
        self._socket = folder / "tmux"
        server = {"type": "http", "url": f"{portal}/mcp", "headers": {"Authorization": f"Bearer {token}"}}
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
            "projects": {str(self.workspace): {"hasTrustDialogAccepted": True}},
            "mcpServers": {"cat-herder": server},
        }
        (self._config / ".claude.json").write_text(json.dumps(known))
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "CLAUDE_CONFIG_DIR": str(self._config),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ANTHROPIC_API_KEY": _KEY,
            "ANTHROPIC_BASE_URL": model.url,
        }

    @classmethod
    def of_admin(cls, portal: UpPortal, folder: Path, model: RehearsalServer) -> ClaudeCode:
        """Return the one of the portal's admin, with a token of their own."""
        token = portal.rows(_TOKEN.format(name=folder.name))
        list_tools(portal, token)
        return cls(folder, model, portal.url, token)

    def print(self, prompt: str, *options: str) -> str:
        """Run it without a terminal, as `claude -p` does; what it printed."""
        command = [str(bundled_cli()), "-p", "--allowedTools", "mcp__cat-herder", *options, "--", prompt]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=self.workspace,
            env=self.env, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout

    def start(self, *prompt: str) -> None:
        """Begin a session with the prompt, or go on with the last one."""
        begin = ["--", *prompt] if prompt else ["--continue"]
        command = [str(bundled_cli()), "--allowedTools", "mcp__cat-herder", *begin]
        self._tmux(
            "new-session", "-d", "-s", "claude", "-x", "100", "-y", "60", "-c", str(self.workspace), *command
        )

    @contextlib.contextmanager
    def asleep(self) -> Iterator[None]:
        """Stop it meanwhile, as a closed laptop does; the terminal first, which would wake it.

        If a portal that starts is slow to respond, the program goes on without the extension for tasks.
        """
        pids = self._tmux("display-message", "-p", "-t", "claude", "#{pid} #{pane_pid}").split()
        for pid in pids:
            os.kill(int(pid), signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(int(pid), signal.SIGCONT)

    def screen(self, *, colours: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", "claude")

    def wait_for(self, text: str) -> None:
        try:
            wait_until(lambda: text in self.screen())
        except AssertionError as error:
            raise AssertionError(f"“{text}” did not come. On the screen:\n{self.screen()}") from error

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "claude", *keys)

    def accept(self, form: str) -> None:
        """Accept the form with this text: the program drops a key that comes while it draws."""
        for _ in range(30):
            self.press("Enter" if "❯ Accept" in self.screen() else "Down")
            with contextlib.suppress(AssertionError):
                return wait_until(lambda: form not in self.screen(), seconds=1)
        raise AssertionError(f"The form does not go away. On the screen:\n{self.screen()}")

    def open_form(self) -> None:
        """Open a form that was put off, by the list of tasks."""
        self.wait_for("needs your input")
        self.press("Down")
        self.wait_for("enter to view tasks")
        self.press("Enter")
        self.wait_for("Enter to answer")
        self.press("Enter")

    def kill(self) -> None:
        """End the terminal and all that runs in it, as somebody does who closes it."""
        self._tmux("kill-server", check=False)

    def _tmux(self, *arguments: str, check: bool = True) -> str:
        program = str(shutil.which("tmux"))
        command = [program, "-S", str(self._socket), "-f", os.devnull, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.env, check=check, timeout=60
        ).stdout
