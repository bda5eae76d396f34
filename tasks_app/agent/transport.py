"""The SDK's transport to the CLI's process, which shows every message as it was received."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, CLIConnectionError, ProcessError

# The only private import: the public query() drops messages of unknown types, but they must be stored. The
# SDK's version is pinned, and the conformance suite runs on the real CLI.
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from tasks_app.agent.launch import Launch
from tasks_app.agent.sockets import ProcessOnSockets, launching

#: Seconds until a process that has closed its input ends.
EXIT_SECONDS = 2.0


class ObservedTransport(SubprocessCLITransport):
    """The SDK's own transport, which starts `launch` and passes every message to `observe` as received."""

    def __init__(
        self,
        options: ClaudeAgentOptions,
        launch: Launch,
        observe: Callable[[dict[str, Any]], Any],
    ) -> None:
        super().__init__(prompt="", options=options)
        self._launch = launch
        self._observe = observe
        self._killed = False
        self.exited_at: datetime | None = None

    async def connect(self) -> None:
        if not self._killed:
            with launching(self._launch):
                await super().connect()
        if self._killed:  # before the process existed, or while it was being started
            self.kill()
            raise ClaudeSDKError("The run was stopped before it began.")

    async def write(self, data: str) -> None:
        """Write to the process. Raises ProcessError with its exit code if it has ended."""
        try:
            await super().write(data)
        except CLIConnectionError as error:
            code = await self._exit_code_soon()
            if code is None:
                raise
            raise ProcessError("The agent's program has ended.", exit_code=code) from error

    async def _exit_code_soon(self) -> int | None:
        """Return the exit code of a process that reads no more; None if it does not end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                if self._process is not None:
                    return await self._process.wait()
                return None
        return None

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._observed_messages()

    async def _observed_messages(self) -> AsyncIterator[dict[str, Any]]:
        responded = False
        try:
            async for message in super().read_messages():
                responded = responded or message.get("type") == "control_response"
                await self._observe(message)
                yield message
        finally:
            if self._process is not None and self._process.returncode is not None:
                self.exited_at = datetime.now(UTC)
        if not responded:
            # Otherwise the SDK would wait a minute for the first response of a process that is gone.
            raise ProcessError("The agent's program ended without any output.", exit_code=0)

    async def close(self) -> None:
        """Close everything, also the streams of a killed process, which nobody reads to their end."""
        started, process = self._process, getattr(self._process, "_process", None)
        await super().close()
        if isinstance(started, ProcessOnSockets):
            await started.close_streams()
        if isinstance(process, asyncio.subprocess.Process):
            process._transport.close()  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    def kill(self) -> None:
        """Kill the process now. The sandbox kills its children; without one, `kill_own_processes` does.

        May be called from another thread at any time: a process that is being started is killed then.
        """
        self._killed = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
