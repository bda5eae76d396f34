"""A line to a server that breaks: each connection ends after so many bytes. It counts what has passed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

from tests.forkserver import PATIENCE

_PIECE = 16 * 1024


class CutConnections:
    """Passes connections on to `port` of this machine, and cuts some after `up` or `down` bytes.

    `up` goes to the server, `down` comes from it. None means that nothing is cut. After `most` cuts the line
    is whole.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self.up: int | None = None
        self.down: int | None = None
        self.most: int | None = None
        self.passed = {"up": 0, "down": 0}
        self.cut = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        serving = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(PATIENCE)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forget(self) -> None:
        """Count from 0 again."""
        self.passed.update(up=0, down=0)
        self.cut = 0

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._upstream)
        ways = [
            asyncio.create_task(self._pump("up", self.up, reader, back)),
            asyncio.create_task(self._pump("down", self.down, there, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (writer, back):
                end.close()
                with suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _pump(
        self, way: str, left: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Return when an end has closed the connection, or it is to be cut."""
        with suppress(OSError):
            while left != 0 and (piece := await reader.read(_PIECE)):
                if left is not None and self.cut == self.most:
                    left = None
                piece = piece[:left]
                writer.write(piece)
                await writer.drain()
                left = None if left is None else left - len(piece)
                self.passed[way] += len(piece)
        self.cut += left == 0
