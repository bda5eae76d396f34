"""Claude Code behind the port: the real CLI, run through its SDK in the sandbox, halted by the gate."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from claude_agent_sdk import (
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKError,
    ProcessError,
    ResultMessage,
    query,
)

from tasks_app.agent.bridge import Bridge
from tasks_app.agent.config_dir import config_dir
from tasks_app.agent.connection import Connection
from tasks_app.agent.launch import WorkspaceBusy, bundled_cli
from tasks_app.agent.leftover_processes import kill_earlier_processes, kill_own_processes
from tasks_app.agent.outcome import run_result
from tasks_app.agent.permission_requests import allowed_without_request, permission_for
from tasks_app.agent.port import AgentEvent, Ending, Recorder, RunOrder, RunResult, Stop, require_session_id
from tasks_app.agent.run_setup import RunSetup, set_up_run
from tasks_app.agent.sockets import use_in_sdk
from tasks_app.agent.stream import Stream
from tasks_app.agent.tools import OF_NETWORK, USUAL
from tasks_app.agent.transcripts import OwnSession, SdkSessionStore, stored_transcript, write_transcript
from tasks_app.agent.transport import ObservedTransport
from tasks_app.core.errors import CatHerderError, TemporaryFault, machine_fault
from tasks_app.core.types import Usage
from tasks_app.sandbox import Sandbox, SandboxedCommand, Watch

logger = logging.getLogger(__name__)
warnings.filterwarnings("ignore", category=CanUseToolShadowedWarning)
use_in_sdk()

ASK_COMMAND = "Bash(cat-herder ask:*)"
PromptCache = Literal["auto", "5m", "1h"]
#: Maximum bytes of a message, which may hold a whole file or picture.
MESSAGE_LIMIT = 64 * 1024 * 1024
STDERR_LINES = 20
#: How long a run may take to end after its process was killed.
STOP_SECONDS = 2.0
#: How long a process may take to end after it has reported that it waits for an answer.
EXIT_SECONDS = 10.0
#: How often a run looks how much is left of the month's budgets, which other runs spend too, and of its
#: task's soft limit.
BUDGET_SECONDS = 5.0


@dataclass
class ClaudeAgent:
    """Starts one CLI process per run. `connect` gives each run its connection to the model.

    `prompt_cache` is how long the provider should cache what the model has read: "auto" means an hour for
    sessions that may wait for a human, and five minutes for others.
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
        kill_earlier_processes(order.paths.workspace, order.claim)
        try:
            with self.connect(order) as connection:
                return _ClaudeRun(self, connection, order, recorder).run()
        finally:
            try:
                kill_own_processes(order.paths.workspace, order.claim)
            except TemporaryFault:  # it must not hide the run's result: the next run refuses to start
                logger.exception("processes of a run in %s are still alive", order.paths.workspace)


class OverLimit(CatHerderError):
    """The agent's processes exceeded a limit; the text says which (M7)."""


class _ClaudeRun:
    """One run of Claude Code."""

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
        self._recorded_usage = Usage()
        self._next_budget = 0.0
        self._transport: ObservedTransport | None = None
        self._command: SandboxedCommand | None = None
        self._watch: Watch | None = None
        self._stopped = False
        self._must_exit_by: float | None = None
        self._was_overdue = False
        self._cancel: Callable[[], None] | None = None
        self._is_free = connection.meter is not None and connection.meter.free

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
            exit_code, problem = self._failure(error)
            if self._was_overdue:
                problem = ""  # it has done what was wanted of it
        except (ClaudeSDKError, OSError) as error:
            if isinstance(error.__cause__, WorkspaceBusy):
                raise error.__cause__ from error
            if fault := machine_fault(error) or machine_fault(error.__cause__):
                raise TemporaryFault(fault) from error
            exit_code = None
            verb = "started" if isinstance(error, OSError) else "run"
            problem = f"The agent could not be {verb}: {error}"
        return self._conclude(problem, exit_code)

    def _failure(self, error: ProcessError) -> tuple[int | None, str]:
        """Return exit code and problem of a process that failed; no code if it exceeded a limit."""
        if over_limit := self._watch.final_problem() if self._watch else "":
            return None, f"The agent was ended. {over_limit}"
        return error.exit_code, f"The agent's process ended with exit code {error.exit_code}."

    def _tick(self) -> None:
        self._record_usage()
        if self._must_exit_by is not None and time.monotonic() > self._must_exit_by and self._transport:
            self._was_overdue = True
            self._transport.kill()  # otherwise it would keep the answer from the next run
        process = getattr(self._transport, "_process", None)
        if self._watch is None and self._command is not None and process is not None:
            self._watch = self._command.watch(process.pid)
        if self._watch is not None and (problem := self._watch.problem()):
            raise OverLimit(problem)
        meter, now = self._connection.meter, time.monotonic()
        if meter is not None and now >= self._next_budget:
            # The proxy refuses requests once a budget, by whichever run, or the soft limit is spent.
            self._next_budget = now + BUDGET_SECONDS
            meter.follow_budgets(self._recorder.dollars_left(), used=self._recorded_usage.cost_usd)
        self._recorder.tick()

    def _record(self, events: Sequence[AgentEvent]) -> None:
        self._record_usage()
        self._recorder.record(events)

    def _record_usage(self) -> None:
        """Store the counted usage if it has changed: it must survive a crash of this process."""
        meter = self._connection.meter
        if meter is None:
            return
        by_model = meter.by_model  # read once: a response may end meanwhile
        if (used := sum(by_model.values(), Usage())) != self._recorded_usage:
            self._recorder.record_usage(by_model)
            self._recorded_usage = used

    def _stop(self, error: BaseException) -> None:
        self._stopped = True
        if self._transport is not None:
            self._transport.kill()
        if self._cancel is not None:
            self._cancel()

    async def _main(self) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def cancel() -> None:
            """Cancel the task from another thread, once it could read the last output of its dead process."""
            if task is not None:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(lambda: loop.call_later(STOP_SECONDS, task.cancel))

        self._cancel = cancel
        try:
            await self._query()
        except (ClaudeSDKError, CatHerderError, OSError):
            raise
        except Exception as error:  # the SDK raises bare exceptions, also for messages of an unexpected shape
            raise ClaudeSDKError(f"{type(error).__name__}: {error}") from error

    async def _query(self) -> None:
        setup = self._set_up()
        self._command = setup.command
        if self._order.resume:
            await self._bridge.call(self._write_transcript)
        options = self._options(setup)
        self._transport = ObservedTransport(
            replace(options, permission_prompt_tool_name="stdio", can_use_tool=None),
            setup.launch,
            self._observe,
        )
        if self._stopped:
            self._transport.kill()
        # The transport has observed every message. Before a result, the SDK has the transcript stored.
        ended = asyncio.Event()
        async for message in query(prompt=self._prompt(ended), options=options, transport=self._transport):
            if isinstance(message, ResultMessage):
                ended.set()
                await self._bridge.call(self._report_asks)

    def _report_asks(self) -> None:
        """Have the questions of a deferred call stored while the process is still ending."""
        if self._must_exit_by is None and self._stream.deferred:
            result = self._conclude("", None)
            if result.ending is Ending.ASKED and result.asks:
                self._must_exit_by = time.monotonic() + EXIT_SECONDS
                self._recorder.asked(result)

    def _write_transcript(self) -> None:
        session_id, paths = self._order.session_id, self._order.paths
        stored = stored_transcript(self._recorder, cwd=self._cwd, session_id=session_id)
        write_transcript(stored, config_dir=config_dir(paths.home), cwd=self._cwd, session_id=session_id)

    @property
    def _cwd(self) -> Path:
        """The workspace as the CLI sees it: sessions are stored under this path."""
        return self._agent.sandbox.inside(self._order.paths.workspace)

    @property
    def _config_dir(self) -> Path:
        """The CLI's folder as the CLI sees it."""
        return config_dir(self._agent.sandbox.inside(self._order.paths.home))

    def _set_up(self) -> RunSetup:
        cli = self._agent.cli
        if not cli.exists():
            raise FileNotFoundError(f"there is no agent program at {cli}")
        env = {
            **self._connection.env(),
            "CLAUDE_CONFIG_DIR": str(self._config_dir),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Auto memory would put a path of the task into the system text, so that other tasks could not use
            # the provider's cache. It would also carry texts from step to step that no log shows.
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            **({"ENABLE_PROMPT_CACHING_1H": "1"} if self._caches_for_an_hour() else {}),
            # Its own spans, if they are wanted, continue this context and go to the API key proxy.
            **({"TRACEPARENT": self._order.traceparent} if self._order.traceparent else {}),
            # Checks judge the files as the agent left them, so nothing may go on running in the background.
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            # Of a message that did not come as a stream, it would make all calls that the gate defers.
            "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        }
        sandbox, model = self._agent.sandbox, self._connection.socket
        if self._order.network != "full":
            sandbox = sandbox.without_network()
        return set_up_run(self._order, argv=[str(cli)], env=env, sandbox=sandbox, model=model)

    def _caches_for_an_hour(self) -> bool:
        """Return whether to cache for an hour. Humans take longer to answer than the usual five minutes."""
        duration = self._agent.prompt_cache
        return self._order.may_wait if duration == "auto" else duration == "1h"

    def _options(self, setup: RunSetup) -> ClaudeAgentOptions:
        order = self._order
        permitted = list(USUAL if order.allowed_tools is None else order.allowed_tools)
        halting = order.tools_for_halting
        if halting.ask:  # the ask command needs no further permission (H12)
            permitted += ["AskUserQuestion", ASK_COMMAND]
        if halting.plan:
            permitted.append("ExitPlanMode")
        tools = list(dict.fromkeys(rule.split("(", 1)[0] for rule in permitted))
        # Every step has a shell, for commands that only read and for `cat-herder`. But where a person decides
        # which files are read, a shell that the step does not name would read them unasked.
        if not any(rule.startswith("Read(") for rule in order.ask_before):
            tools = list(dict.fromkeys([*tools, "Bash"]))
        if order.network != "full":
            tools = [tool for tool in tools if tool not in OF_NETWORK]
        if order.may_ask:
            permitted.append(ASK_COMMAND)
        own = OwnSession(self._recorder, cwd=self._cwd, session_id=order.session_id)
        return ClaudeAgentOptions(
            cli_path=setup.launch.argv[0],  # replaced by the whole of `launch`
            cwd=order.paths.workspace,
            # The SDK finds the session by the paths that the CLI reports.
            env={"CLAUDE_CONFIG_DIR": str(self._config_dir)},
            model=order.model or None,
            max_turns=order.max_turns,
            max_budget_usd=None if self._is_free else order.max_cost_usd,  # the CLI counts its own process
            tools=tools,
            allowed_tools=allowed_without_request(order, permitted),
            permission_mode="plan" if order.planning else None,
            can_use_tool=permission_for(order, self._agent.sandbox.placement),
            settings=setup.settings,
            setting_sources=[],
            strict_mcp_config=True,
            verbatim_prompts=True,
            system_prompt={"type": "preset", "preset": "claude_code"},
            session_store=SdkSessionStore(own, self._bridge.call),  # type: ignore[arg-type]
            session_store_flush="eager",
            max_buffer_size=MESSAGE_LIMIT,
            stderr=self._keep_stderr,
            **({"resume": order.session_id} if order.resume else {"session_id": order.session_id}),  # type: ignore[arg-type]
        )

    async def _prompt(self, ended: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
        """Yield the prompt. Without one the session continues by itself, with the permission handed in.

        The SDK closes the program's input when a conversation without a prompt is over, and the program could
        not ask for permission any more. So it is over when the run has `ended`.
        """
        if self._order.prompt is not None:
            content = {"role": "user", "content": self._order.prompt}
            yield {"type": "user", "session_id": "", "message": content, "parent_tool_use_id": None}
        else:
            await ended.wait()

    async def _observe(self, message: Mapping[str, Any]) -> None:
        if str(message.get("type", "")).startswith("control_") or message.get("type") == "transcript_mirror":
            return  # the SDK's own conversation with the CLI
        events = self._stream.read(message)
        if events:
            await self._bridge.call(self._record, events)

    def _keep_stderr(self, line: str) -> None:
        self._stderr = [*self._stderr, line][-STDERR_LINES:]

    def _conclude(self, problem: str, exit_code: int | None) -> RunResult:
        details = "\n".join([problem, *self._stderr]) if problem else ""
        meter = self._connection.meter
        result = run_result(
            self._stream, self._order, problem=details, exit_code=exit_code, meter=meter,
            placement=self._agent.sandbox.placement,
        )  # fmt: skip
        return replace(result, exited_at=self._transport.exited_at if self._transport else None)
