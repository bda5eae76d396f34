"""git's smart HTTP protocol: a request's body goes to a git process, whose output is the response."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app import git as git_package
from tasks_app.asgi_layers.body_limits import Message, Receive, Send
from tasks_app.core.errors import LeaseLost, WorkspaceError
from tasks_app.git.mirror import incoming_ref
from tasks_app.git.program import Git
from tasks_app.git.publishing import TRAILER_BYTES, PushMalformed, PushReader, unreadable
from tasks_app.services.workers.hosts import HeldTask, require_still_held
from tasks_app.worker_api.bodies import (
    BodyBroken,
    ClientGone,
    OutOfTime,
    RequestRefused,
    body_pieces,
    require_free_disk,
)
from tasks_app.worker_api.slow_threads import SlowThreads, in_thread

logger = logging.getLogger(__name__)

UPLOAD, RECEIVE = "git-upload-pack", "git-receive-pack"
#: Maximum bytes of a request, decompressed: names of commits to fetch, or a pack that is pushed.
BODY_LIMITS = {UPLOAD: 16 * 1024**2, RECEIVE: 2 * 1024**3 + 1024**2}
#: Maximum seconds of one exchange: it begins anew if it breaks. 2 GB need 150 kB a second.
SECONDS = 4 * 3600.0
#: Seconds after which the lease is checked again, and between two signs of life while deltas are checked.
LEASE_SECONDS = 60.0
KEEPALIVE_SECONDS = 5.0
#: git processes for one worker host at the same time; its further requests wait.
MOST_PROCESSES = 8
_PIECE = 64 * 1024
#: The keep-alive that git itself sends in the response to a push.
_KEEPALIVE = b"0005\1"
_END_SECONDS = 5.0
_STOP_SECONDS = 2.0
_HOOKS = Path(git_package.__file__).parent / "hooks"


@dataclass(frozen=True)
class GitService:
    """One request for one of git's services in the repository of a held task."""

    held: HeldTask
    service: str
    threads: SlowThreads
    advertise: bool = False

    def _git(self) -> Git:
        """Return git that shows only what the holder may see, and accepts one reference.

        The client's protocol version is ignored: with version 2 git gives out every object that is named,
        with version 0 only what can be reached from the references that are shown.
        """
        shown = (f"transfer.hideRefs=!{ref}" for ref in self.held.readable_refs)
        options = (
            "transfer.hideRefs=refs",
            *shown,
            f"core.hooksPath={_HOOKS}",
            f"receive.maxInputSize={BODY_LIMITS[RECEIVE]}",
            "receive.fsckObjects=true",
            "receive.unpackLimit=1",
            "receive.denyDeletes=true",
            "receive.autogc=false",
            "receive.keepAlive=1",
            "uploadpack.keepAlive=1",
        )
        variables = (
            ("CATHERDER_INCOMING", incoming_ref(self.held.key)),
            ("CATHERDER_READABLE", " ".join(self.held.readable_refs)),
        )
        return Git(self.held.repository.path, settings=options, variables=variables)

    async def respond(self, scope: Message, receive: Receive, send: Send) -> None:
        """Run git and send its output. Stop it if the client leaves or loses its lease, and after SECONDS.

        Raises WorkspaceError if a push could not be checked; LeaseLost and RequestRefused if nothing was sent
        yet. Once the response has begun, a failure cuts it off: git at the other end then says so.
        """
        if self.service == RECEIVE:
            # git would only warn, and take every push.
            for hook in ("pre-receive", "update"):
                if not os.access(_HOOKS / hook, os.X_OK):
                    raise WorkspaceError(f"{_HOOKS / hook} is not executable, so no push can be checked.")
        words = [self.service.removeprefix("git-"), "--stateless-rpc"]
        if self.advertise:
            words.append("--advertise-refs")
        git = self._git()
        command, environment = git.process(*words, str(self.held.repository.path))
        with git.in_use() as locks:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
                pass_fds=locks,
            )  # fmt: skip
        response = _Response(send, self._media_type, self._beginning)
        try:
            await self._exchange(process, scope, receive, response)
        except ClientGone:
            return
        except (RequestRefused, LeaseLost) as error:
            if not response.begun:
                raise
            logger.warning("git for %s was cut off: %s", self.held.worker, error)
        finally:
            if self.service == RECEIVE:
                # Ended by a signal, `receive-pack` would not remove what it has received so far.
                assert process.stdin is not None  # noqa: S101 (PIPE was given)
                process.stdin.close()
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_SECONDS)
            await stop_process(process)

    @property
    def _media_type(self) -> str:
        if self.advertise:
            return f"application/x-{self.service}-advertisement"
        return f"application/x-{self.service}-result"

    @property
    def _beginning(self) -> bytes:
        if not self.advertise:
            return b""
        line = f"# service={self.service}\n".encode()
        return b"%04x%s0000" % (len(line) + 4, line)

    async def _exchange(
        self, process: Process, scope: Message, receive: Receive, response: _Response
    ) -> None:
        """Feed git and pass on its output, until it ends, the client is gone, or the time is over."""
        feeding = asyncio.create_task(self._feed(process, scope, receive, response))
        printing = asyncio.create_task(_pass_on(process, response))
        errors = asyncio.create_task(read_errors(process))
        try:
            try:
                async with asyncio.timeout(SECONDS):
                    done = await self._first_of(feeding, printing)
            except TimeoutError:
                raise OutOfTime(f"git did not end within {SECONDS:g} seconds.") from None
            if printing not in done:
                await feeding  # it only ends by an error
            await printing
            if await process.wait() != 0:
                logger.warning("git for %s: %s", self.held.worker, await errors)
                if not response.begun:
                    raise BodyBroken("git has refused this request.")
            await response.end()
        finally:
            for task in (feeding, printing, errors):
                task.cancel()
            await asyncio.gather(feeding, printing, errors, return_exceptions=True)

    async def _first_of(self, *tasks: asyncio.Task[None]) -> set[asyncio.Task[None]]:
        """Return the tasks that have ended, once there is one. Raises LeaseLost."""
        while True:
            done, _ = await asyncio.wait(tasks, timeout=LEASE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done
            await in_thread(lambda: require_still_held(self.held))

    async def _feed(self, process: Process, scope: Message, receive: Receive, response: _Response) -> None:
        assert process.stdin is not None  # noqa: S101 (PIPE was given)
        limit = 0 if self.advertise else BODY_LIMITS[self.service]
        pieces: AsyncIterator[bytes] = body_pieces(scope, receive, limit=limit)
        if self.service == RECEIVE and not self.advertise:
            pieces = self._checked(pieces, response)
        with suppress(BrokenPipeError, ConnectionResetError):  # git ended early, and its output says why
            async for piece in pieces:
                process.stdin.write(piece)
                await process.stdin.drain()
        process.stdin.close()
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ClientGone

    async def _checked(self, pieces: AsyncIterator[bytes], response: _Response) -> AsyncIterator[bytes]:
        """Yield a push. Keep back its end if deltas are based on what the holder may not read.

        Without its end git takes nothing of a pack, and looks at no delta. Raises BodyBroken, and LeaseLost.
        """
        reader, end = PushReader(), b""
        try:
            async for piece in pieces:
                require_free_disk(self.held.repository.path)
                await asyncio.to_thread(reader.feed, piece)
                so_far = end + piece
                end = so_far[-TRAILER_BYTES:]
                yield so_far[: len(so_far) - len(end)]
        except PushMalformed as error:
            raise BodyBroken(f"This push cannot be unpacked: {error}.") from error
        hidden = await self._hidden(reader, response)
        if hidden:
            reason = f"a delta is based on {min(hidden)}, which this host may not read"
            logger.warning(
                "a push of %s for task %s is refused: %s", self.held.worker, self.held.task_id, reason
            )
            if reader.takes_messages:
                await response.write(_message(f"The portal refuses this push: {reason}.\n"))
        elif reader.is_complete:
            yield end

    async def _hidden(self, reader: PushReader, response: _Response) -> set[str]:
        """Return the bases that the holder may not read, if it still holds the task. Raises LeaseLost.

        That may take minutes. Meanwhile the client gets what git would send: proxies give up on silence.
        """

        def hidden() -> set[str]:
            require_still_held(self.held)
            return unreadable(self.held.repository, reader.bases, self.held.readable_refs)

        checking = asyncio.ensure_future(self.threads.run(hidden))
        try:
            while not (await asyncio.wait([checking], timeout=KEEPALIVE_SECONDS))[0]:
                if reader.takes_messages:
                    await response.write(_KEEPALIVE)
            return await checking
        finally:
            checking.cancel()


class _Response:
    """A response whose head is sent with the first output: a failure before has a status of its own."""

    def __init__(self, send: Send, media_type: str, beginning: bytes) -> None:
        self._send = send
        self._media_type = media_type
        self._beginning = beginning
        self.begun = False

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        if not self.begun:
            self.begun = True
            headers = [
                (b"content-type", self._media_type.encode()),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),  # else nginx keeps back signs of life
            ]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            piece = self._beginning + piece
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def end(self) -> None:
        await self.write(b"", more=False)


def _message(text: str) -> bytes:
    """Return text for people in the response to a push."""
    return b"%04x\2%s" % (len(text.encode()) + 5, text.encode())


async def _pass_on(process: Process, response: _Response) -> None:
    assert process.stdout is not None  # noqa: S101 (PIPE was given)
    while piece := await process.stdout.read(_PIECE):
        await response.write(piece)


async def read_errors(process: Process) -> str:
    """Return the beginning of git's messages, and read all of them, or git would wait."""
    assert process.stderr is not None  # noqa: S101 (PIPE was given)
    kept = b""
    while piece := await process.stderr.read(_PIECE):
        kept = (kept + piece)[:2000]
    return kept.decode(errors="replace").strip()


async def stop_process(process: Process) -> None:
    """End git and what it started."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, None)):
        if process.returncode is not None:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
    # Its pipes are closed by reading them to their end; what nobody has read is little.
    rest = [stream.read() for stream in (process.stdout, process.stderr) if stream is not None]
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*rest, return_exceptions=True), _STOP_SECONDS)
