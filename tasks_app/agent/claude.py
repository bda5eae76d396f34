"""Claude Code behind the port: the real CLI, through its SDK, sandboxed, halted by the gate."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import claude_agent_sdk
from claude_agent_sdk import (
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKError,
    ProcessError,
    query,
)

# The one private import: the public query() drops messages of kinds it does not know, and those must be
# kept. The SDK is pinned to one version, and the conformance suite runs on the real CLI.
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from tasks_app.agent import launch
from tasks_app.agent.bridge import Bridge
from tasks_app.agent.config_dir import config_dir
from tasks_app.agent.orphaned_processes import Claim, kill_earlier_processes, kill_own_processes
from tasks_app.agent.outcome import run_result
from tasks_app.agent.permission import permission_for, without_asking
from tasks_app.agent.port import AgentEvent, Ending, Recorder, RunOrder, RunResult, Stop, require_session_id
from tasks_app.agent.proxy import RunMeter
from tasks_app.agent.proxy.server import RUN_HEADER
from tasks_app.agent.run_setup import RunSetup, set_up_run
from tasks_app.agent.sockets import ProcessOnSockets, use_in_sdk
from tasks_app.agent.stream import Stream
from tasks_app.agent.tools import USUAL
from tasks_app.agent.transcripts import MirroredStore, OwnSession, restore, stored_transcript
from tasks_app.core.errors import CatHerderError, PassingFault, machine_fault
from tasks_app.core.types import Usage
from tasks_app.sandbox import Sandbox, SandboxedCommand, Watch

logger = logging.getLogger(__name__)
warnings.filterwarnings("ignore", category=CanUseToolShadowedWarning)
use_in_sdk()

ASK_COMMAND = "Bash(cat-herder ask:*)"
PromptCache = Literal["auto", "5m", "1h"]
#: One message may hold a whole file or picture.
MESSAGE_LIMIT = 64 * 1024 * 1024
STDERR_LINES = 20
#: How long a run may take to end after its process was killed.
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Connection:
    """How the agent reaches its model. Empty values are left out of its environment.

    `socket` is the model's, for runs without a network. `run_token` names the run to the API key proxy where
    the CLI holds the credentials itself. `meter` counts what the run uses; None if nobody counts, and then
    the CLI's own numbers are taken.
    """

    api_key: str = ""
    oauth_token: str = ""
    run_token: str = ""
    base_url: str = ""
    socket: Path | None = None
    meter: RunMeter | None = None

    def env(self) -> dict[str, str]:
        named = {
            "ANTHROPIC_API_KEY": self.api_key,
            "CLAUDE_CODE_OAUTH_TOKEN": self.oauth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_CUSTOM_HEADERS": f"{RUN_HEADER}: {self.run_token}" if self.run_token else "",
        }
        return {name: value for name, value in named.items() if value}


def bundled_cli() -> Path:
    """The CLI that comes inside the SDK's wheel, else one on PATH."""
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    return bundled if bundled.exists() else Path(shutil.which("claude") or bundled)


@dataclass
class ClaudeAgent:
    """Starts one CLI process per run. `connect` lends each run its way to the model.

    `prompt_cache` is how long the provider is asked to keep what the model has read: "auto" means an hour
    for sessions that may wait for a human, five minutes for others.
    """

    sandbox: Sandbox
    connect: Callable[[RunOrder], AbstractContextManager[Connection]]
    cli: Path = field(default_factory=bundled_cli)
    name: str = "claude-code"
    prompt_cache: PromptCache = "auto"

    @property
    def sandboxed(self) -> bool:
        return self.sandbox.active

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        require_session_id(order.session_id)
        kill_earlier_processes(order.places.workspace, order.claim)
        try:
            with self.connect(order) as connection:
                return _Process(self, connection, order, recorder).run()
        finally:
            _end_what_it_left(order.places.workspace, order.claim)


def _end_what_it_left(workspace: Path, claim: Claim) -> None:
    """Nothing runs between runs. What cannot be ended must not hide how the run did: the next one refuses."""
    try:
        kill_own_processes(workspace, claim)
    except PassingFault:
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
        """Also the streams of a process that was killed: nobody reads them to their end any more."""
        started, process = self._process, getattr(self._process, "_process", None)
        await super().close()
        if isinstance(started, ProcessOnSockets):
            await started.close_streams()
        if isinstance(process, asyncio.subprocess.Process):
            process._transport.close()  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    def kill(self) -> None:
        """End the process now; its sandbox, or its death signal, takes its children along.

        Called from another thread, at any moment: one that is not yet started ends when it is.
        """
        self._killed = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)


class OverLimit(CatHerderError):
    """The agent's processes used more than they may; the text says of what (M7)."""


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
        self._bridge = Bridge(tick=self._tick)
        self._told = Usage()
        self._transport: _Tapped | None = None
        self._command: SandboxedCommand | None = None
        self._watch: Watch | None = None
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
        except OverLimit as over:
            exit_code, problem = None, f"The agent was ended. {over}"
        except ProcessError as error:
            exit_code, problem = self._how_it_ended(error)
        except (ClaudeSDKError, OSError) as error:
            if in_the_way := machine_fault(error) or machine_fault(error.__cause__):
                raise PassingFault(in_the_way) from error
            exit_code = None
            verb = "started" if isinstance(error, OSError) else "run"
            problem = f"The agent could not be {verb}: {error}"
        return self._conclude(problem, exit_code)

    def _how_it_ended(self, error: ProcessError) -> tuple[int | None, str]:
        """Exit code and problem of a process that ended badly; for one over a limit no code.

        Raises PassingFault if it never began, because another agent is still at work.
        """
        if error.exit_code == launch.BUSY and self._stream.is_silent:
            raise PassingFault("Another agent is still at work in this workspace.") from error
        if over_limit := self._watch.last_words() if self._watch else "":
            return None, f"The agent was ended. {over_limit}"
        return error.exit_code, f"The agent's process ended with exit code {error.exit_code}."

    def _tick(self) -> None:
        self._tell_usage()
        if problem := self._watched():
            raise OverLimit(problem)
        self._recorder.tick()

    def _watched(self) -> str:
        """Which limit the agent's processes have passed; they are known once the program was started."""
        process = getattr(self._transport, "_process", None)
        if self._watch is None and self._command is not None and process is not None:
            self._watch = self._command.watch(process.pid)
        return self._watch.problem() if self._watch is not None else ""

    def _record(self, events: Sequence[AgentEvent]) -> None:
        self._tell_usage()
        self._recorder.record(events)

    def _tell_usage(self) -> None:
        """What was counted so far, if it is news: it must outlive this process."""
        meter = self._connection.meter
        if meter is not None and (used := meter.usage) != self._told:
            self._recorder.record_usage(used, meter.model)
            self._told = used

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
        self._command = layout.command
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
        restore(stored, config_dir=config_dir(places.home), cwd=places.workspace, session_id=session_id)

    def _lay_out(self) -> RunSetup:
        cli = self._agent.cli
        if not cli.exists():
            raise FileNotFoundError(f"there is no agent program at {cli}")
        env = {
            **self._connection.env(),
            "CLAUDE_CONFIG_DIR": str(config_dir(self._order.places.home)),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # It would put a path of the task into the system text, which no other task could then find in the
            # provider's cache, and carry words from step to step that no log shows.
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            **({"ENABLE_PROMPT_CACHING_1H": "1"} if self._caches_for_an_hour() else {}),
            # Checks see what the agent did with its hands, so nothing may be left running in the background.
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        }
        sandbox, model = self._agent.sandbox, self._connection.socket
        if self._order.network != "full":
            sandbox = sandbox.without_network()
        return set_up_run(self._order, argv=[str(cli)], env=env, sandbox=sandbox, model=model)

    def _caches_for_an_hour(self) -> bool:
        """Humans take longer to answer than the five minutes that a provider keeps a prompt otherwise."""
        kept = self._agent.prompt_cache
        return self._order.may_wait if kept == "auto" else kept == "1h"

    def _options(self, layout: RunSetup) -> ClaudeAgentOptions:
        order = self._order
        permitted = list(USUAL if order.allowed_tools is None else order.allowed_tools)
        halting = order.tools_for_halting
        if halting.ask:  # the ask command needs no further permission (H12)
            permitted += ["AskUserQuestion", ASK_COMMAND]
        if halting.plan:
            permitted.append("ExitPlanMode")
        tools = list(dict.fromkeys(rule.split("(", 1)[0] for rule in permitted))
        if order.may_ask:
            permitted.append(ASK_COMMAND)
        own = OwnSession(self._recorder, cwd=order.places.workspace, session_id=order.session_id)
        return ClaudeAgentOptions(
            cli_path=layout.program,
            cwd=order.places.workspace,
            env={**layout.env, "CLAUDE_CONFIG_DIR": str(config_dir(order.places.home))},
            model=order.model or None,
            max_turns=order.max_turns,
            max_budget_usd=order.max_cost_usd,  # the CLI counts its own process, not the session
            tools=tools,
            allowed_tools=without_asking(order, permitted),
            permission_mode="plan" if order.planning else None,
            can_use_tool=permission_for(order),
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
            await self._bridge.call(self._record, events)

    def _note_stderr(self, line: str) -> None:
        self._stderr = [*self._stderr, line][-STDERR_LINES:]

    def _conclude(self, problem: str, exit_code: int | None) -> RunResult:
        said = "\n".join([problem, *self._stderr]) if problem else ""
        meter = self._connection.meter
        return run_result(self._stream, self._order, problem=said, exit_code=exit_code, meter=meter)


def _cancel_soon(task: asyncio.Task[Any] | None) -> Callable[[], None]:
    """What cancels the task from another thread, once it had time to read the end of its dead process."""
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        if task is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lambda: loop.call_later(STOP_SECONDS, task.cancel))

    return cancel
