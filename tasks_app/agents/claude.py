"""Claude Code behind the port: the real CLI, through its SDK, jailed, halted by the gate."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import (
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKError,
    PermissionResultDeny,
    ProcessError,
    query,
)

# The one private import: the public query() drops messages of kinds it does not know, and those must be
# kept. The SDK is pinned to one version, and the conformance suite runs on the real CLI.
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from tasks_app.agents.bridge import Bridge
from tasks_app.agents.leftovers import end_leftovers
from tasks_app.agents.outcome import run_result
from tasks_app.agents.port import Ending, Recorder, RunOrder, RunResult, Stop, require_session_id
from tasks_app.agents.rundir import Layout, lay_out
from tasks_app.agents.stream import Stream
from tasks_app.agents.transcripts import MirroredStore, OwnSession, restore, stored_transcript
from tasks_app.errors import CatHerderError
from tasks_app.jail import Jail

logger = logging.getLogger(__name__)
warnings.filterwarnings("ignore", category=CanUseToolShadowedWarning)

TOOLS = ("Bash", "Read", "Write", "Edit", "Glob", "Grep", "NotebookEdit", "WebFetch")
#: One message may hold a whole file or picture.
MESSAGE_LIMIT = 64 * 1024 * 1024
STDERR_LINES = 20
#: How long a run may take to end after its process was killed.
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Connection:
    """How the agent reaches its model. Empty values are left out of its environment.

    `resets_at` tells when the limit resets that the model last refused a request for, None if not known.
    """

    api_key: str = ""
    oauth_token: str = ""
    base_url: str = ""
    resets_at: Callable[[], datetime | None] = lambda: None

    def env(self) -> dict[str, str]:
        named = {
            "ANTHROPIC_API_KEY": self.api_key,
            "CLAUDE_CODE_OAUTH_TOKEN": self.oauth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
        }
        return {name: value for name, value in named.items() if value}


def bundled_cli() -> Path:
    """The CLI that comes inside the SDK's wheel, else one on PATH."""
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    return bundled if bundled.exists() else Path(shutil.which("claude") or bundled)


@dataclass
class ClaudeAgent:
    """Starts one CLI process per run. `connect` lends each run its way to the model."""

    jail: Jail
    connect: Callable[[], AbstractContextManager[Connection]]
    cli: Path = field(default_factory=bundled_cli)
    name: str = "claude-code"

    @property
    def sandboxed(self) -> bool:
        return self.jail.active

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        require_session_id(order.session_id)
        end_leftovers(order.places.workspace)
        try:
            with self.connect() as connection:
                return _Process(self, connection, order, recorder).run()
        finally:
            _end_what_it_left(order.places.workspace)


def _end_what_it_left(workspace: Path) -> None:
    """Nothing runs between runs. What cannot be ended must not hide how the run did: the next one refuses."""
    try:
        end_leftovers(workspace)
    except TimeoutError:
        logger.exception("something of a run in %s is still there", workspace)


class _Tapped(SubprocessCLITransport):
    """The SDK's own transport, with every message shown to `seen` as it came."""

    def __init__(self, options: ClaudeAgentOptions, seen: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(prompt="", options=options)
        self._seen = seen
        self._killed = False

    async def connect(self) -> None:
        if not self._killed:
            await super().connect()
        if self._killed:  # before there was a process, or while it was being started
            self.kill()
            raise ClaudeSDKError("The run was stopped before it began.")

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._tapped()

    async def _tapped(self) -> AsyncIterator[dict[str, Any]]:
        greeted = False
        async for message in super().read_messages():
            greeted = greeted or message.get("type") == "control_response"
            await self._seen(message)
            yield message
        if not greeted:
            # Otherwise the SDK would wait a minute for the greeting of a process that is gone.
            raise ProcessError("The agent's program ended without a word.", exit_code=0)

    async def close(self) -> None:
        """Also the pipes of a process that was killed: nobody reads them to their end any more."""
        process = getattr(self._process, "_process", None)
        await super().close()
        if isinstance(process, asyncio.subprocess.Process):
            process._transport.close()  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    def kill(self) -> None:
        """End the process now; its jail, or its death signal, takes its children along.

        Called from another thread, at any moment: one that is not yet started ends when it is.
        """
        self._killed = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)


class _Process:
    """One run while it lasts."""

    def __init__(
        self, agent: ClaudeAgent, connection: Connection, order: RunOrder, recorder: Recorder
    ) -> None:
        self._agent = agent
        self._connection = connection
        self._order = order
        self._recorder = recorder
        self._stream = Stream()
        self._stderr: list[str] = []
        self._bridge = Bridge(tick=recorder.tick)
        self._transport: _Tapped | None = None
        self._stopped = False
        self._cancel: Callable[[], None] | None = None

    def run(self) -> RunResult:
        problem = ""
        exit_code: int | None = 0
        try:
            self._bridge.run(self._main, stop=self._stop)
        except Stop as stop:
            stop.partial = replace(self._conclude("", None), ending=Ending.STOPPED, error="")
            raise
        except ProcessError as error:
            exit_code = error.exit_code
            problem = f"The agent's process ended with exit code {error.exit_code}."
        except ClaudeSDKError as error:
            exit_code = None
            problem = f"The agent could not be run: {error}"
        except OSError as error:
            exit_code = None
            problem = f"The agent could not be started: {error}"
        return self._conclude(problem, exit_code)

    def _stop(self, error: BaseException) -> None:
        self._stopped = True
        if self._transport is not None:
            self._transport.kill()
        if self._cancel is not None:
            self._cancel()

    async def _main(self) -> None:
        self._cancel = _cancel_soon(asyncio.current_task())
        try:
            await self._converse()
        except (ClaudeSDKError, CatHerderError, OSError):
            raise
        except Exception as error:  # the SDK raises bare ones, and trips over messages of an odd shape
            raise ClaudeSDKError(f"{type(error).__name__}: {error}") from error

    async def _converse(self) -> None:
        layout = self._lay_out()
        if self._order.resume:
            await self._bridge.call(self._restore)
        options = self._options(layout)
        self._transport = _Tapped(
            replace(options, permission_prompt_tool_name="stdio", can_use_tool=None), self._seen
        )
        if self._stopped:
            self._transport.kill()
        async for _ in query(prompt=self._prompt(), options=options, transport=self._transport):
            pass  # everything was seen in the transport

    def _restore(self) -> None:
        session_id, places = self._order.session_id, self._order.places
        stored = stored_transcript(self._recorder, cwd=places.workspace, session_id=session_id)
        restore(stored, config_dir=_config_dir(places.home), cwd=places.workspace, session_id=session_id)

    def _lay_out(self) -> Layout:
        cli = self._agent.cli
        if not cli.exists():
            raise FileNotFoundError(f"there is no agent program at {cli}")
        env = {
            **self._connection.env(),
            "CLAUDE_CONFIG_DIR": str(_config_dir(self._order.places.home)),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Checks see what the agent did with its hands, so nothing may be left running in the background.
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        }
        return lay_out(self._order, argv=[str(cli)], env=env, jail=self._agent.jail)

    def _options(self, layout: Layout) -> ClaudeAgentOptions:
        order = self._order
        permitted = list(TOOLS if order.allowed_tools is None else order.allowed_tools)
        if order.may_ask:  # the ask command needs no further permission (H12)
            permitted += ["AskUserQuestion", "Bash(cat-herder ask:*)"]
        if order.planning:
            permitted.append("ExitPlanMode")
        tools = list(dict.fromkeys(rule.split("(", 1)[0] for rule in permitted))
        own = OwnSession(self._recorder, cwd=order.places.workspace, session_id=order.session_id)
        return ClaudeAgentOptions(
            cli_path=layout.program,
            cwd=order.places.workspace,
            env={**layout.env, "CLAUDE_CONFIG_DIR": str(_config_dir(order.places.home))},
            model=order.model or None,
            max_turns=order.max_turns,
            max_budget_usd=order.max_cost_usd,  # the CLI counts its own process, not the session
            tools=tools,
            allowed_tools=permitted,
            permission_mode="plan" if order.planning else None,
            can_use_tool=_refuse,
            settings=layout.settings,
            setting_sources=[],
            strict_mcp_config=True,
            verbatim_prompts=True,
            system_prompt={"type": "preset", "preset": "claude_code"},
            session_store=MirroredStore(own, self._bridge.call),  # type: ignore[arg-type]
            session_store_flush="eager",
            max_buffer_size=MESSAGE_LIMIT,
            stderr=self._note_stderr,
            **({"resume": order.session_id} if order.resume else {"session_id": order.session_id}),  # type: ignore[arg-type]
        )

    async def _prompt(self) -> AsyncIterator[dict[str, Any]]:
        """No message at all when only a decision is handed in: the session goes on where it waits."""
        if self._order.prompt is not None:
            content = {"role": "user", "content": self._order.prompt}
            yield {"type": "user", "session_id": "", "message": content, "parent_tool_use_id": None}

    async def _seen(self, message: Mapping[str, Any]) -> None:
        if str(message.get("type", "")).startswith("control_") or message.get("type") == "transcript_mirror":
            return  # the SDK's own conversation with the CLI
        events = self._stream.read(message)
        if events:
            await self._bridge.call(self._recorder.record, events)

    def _note_stderr(self, line: str) -> None:
        self._stderr = [*self._stderr, line][-STDERR_LINES:]

    def _conclude(self, problem: str, exit_code: int | None) -> RunResult:
        said = "\n".join([problem, *self._stderr]) if problem else ""
        told = self._connection.resets_at()
        return run_result(self._stream, self._order, problem=said, exit_code=exit_code, resets_at=told)


def _cancel_soon(task: asyncio.Task[Any] | None) -> Callable[[], None]:
    """What cancels the task from another thread, once it had time to read the end of its dead process."""
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        if task is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: loop.call_later(STOP_SECONDS, task.cancel))

    return cancel


def _config_dir(home: Path) -> Path:
    return home / ".claude"


async def _refuse(tool: str, tool_input: dict[str, Any], context: Any) -> PermissionResultDeny:
    return PermissionResultDeny(message=f"{tool} is not among the tools of this step.")
