"""git's smart HTTP protocol: a request's body goes to a git process, whose output is the response."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import zlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from catherder_site.asgi_layers.body_limits import Message, Receive, Send
from tasks_app import git as git_package
from tasks_app.core.errors import WorkspaceError
from tasks_app.git.mirror import incoming_ref
from tasks_app.git.program import Git
from tasks_app.services.workers.hosts import HeldTask

logger = logging.getLogger(__name__)

UPLOAD, RECEIVE = "git-upload-pack", "git-receive-pack"
#: Maximum bytes of a request, decompressed: names of commits to fetch, or a pack that is pushed.
BODY_LIMITS = {UPLOAD: 16 * 1024**2, RECEIVE: 2 * 1024**3 + 1024**2}
SECONDS = 900.0
#: git processes for one worker host at the same time; its further requests wait.
MOST_PROCESSES = 8
_PIECE = 64 * 1024
_STOP_SECONDS = 2.0
_HOOKS = Path(git_package.__file__).parent / "hooks"


class RequestRefused(Exception):
    """A request that cannot be served; the message says why. `status` and `headers` are the response's."""

    status = 400
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BodyBroken(RequestRefused):
    """The request's body cannot be decompressed, or git refuses it."""


class BodyTooLarge(RequestRefused):
    """The request's body is longer than allowed."""

    status = 413


class DiskFull(RequestRefused):
    """A push would use the space that the portal keeps free."""

    status = 507


class OutOfTime(RequestRefused):
    """git took longer than it may."""

    status = 504


class ClientGone(Exception):
    """The client has closed the connection."""


@dataclass(frozen=True)
class GitService:
    """One request for one of git's services in the repository of a held task."""

    held: HeldTask
    service: str
    advertise: bool = False
    #: The request in the place of its body: a push whose pack was uploaded before.
    uploaded: Callable[[], Iterator[bytes]] | None = None
    seconds: float = SECONDS

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
        )
        variables = (
            ("CATHERDER_INCOMING", incoming_ref(self.held.key)),
            ("CATHERDER_READABLE", " ".join(self.held.readable_refs)),
        )
        return Git(self.held.repository.path, settings=options, variables=variables)

    async def respond(self, scope: Message, receive: Receive, send: Send) -> bool:
        """Run git and send its output. It is stopped if the client goes away, or after `seconds`.

        Return whether it has ended by itself.

        Raises WorkspaceError if a push could not be checked, and RequestRefused if nothing was sent yet.
        Once the response has begun, a failure cuts it off: git at the other end then says so.
        """
        if self.service == RECEIVE:
            _require_hooks()
        words = [self.service.removeprefix("git-"), "--stateless-rpc"]
        words += ["--advertise-refs"] if self.advertise else []
        # git would complete a pack with objects of other tasks to which its deltas refer.
        words += ["--reject-thin-pack-for-testing"] if self.service == RECEIVE else []
        command, environment = self._git().process(*words, str(self.held.repository.path))
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        response = _Response(send, self._media_type, self._beginning)
        try:
            await self._exchange(process, scope, receive, response)
        except ClientGone:
            return False
        except RequestRefused as error:
            if not response.begun:
                raise
            logger.warning("git for %s was cut off: %s", self.held.worker, error)
            return False
        finally:
            await stop_process(process)
        return True

    @property
    def _media_type(self) -> str:
        return f"application/x-{self.service}-{'advertisement' if self.advertise else 'result'}"

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
        feeding = asyncio.create_task(self._feed(process, scope, receive))
        printing = asyncio.create_task(_pass_on(process, response))
        errors = asyncio.create_task(read_errors(process))
        try:
            done, _ = await asyncio.wait(
                (feeding, printing), timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise OutOfTime(f"git did not end within {self.seconds:g} seconds.")
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

    async def _feed(self, process: Process, scope: Message, receive: Receive) -> None:
        assert process.stdin is not None  # noqa: S101 (PIPE was given)
        with suppress(BrokenPipeError, ConnectionResetError):  # git ended early, and its output says why
            async for piece in self._pieces(scope, receive):
                if self.service == RECEIVE:
                    require_free_disk(self.held.repository.path)
                process.stdin.write(piece)
                await process.stdin.drain()
        process.stdin.close()
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ClientGone

    async def _pieces(self, scope: Message, receive: Receive) -> AsyncIterator[bytes]:
        if self.uploaded is not None:
            pieces = self.uploaded()
            while piece := await asyncio.to_thread(next, pieces, b""):
                yield piece
            return
        limit = 0 if self.advertise else BODY_LIMITS[self.service]
        async for piece in body_pieces(scope, receive, limit=limit):
            yield piece


def _require_hooks() -> None:
    """Raise WorkspaceError if a hook cannot be executed: git would only warn, and take every push."""
    for hook in ("pre-receive", "update"):
        if not os.access(_HOOKS / hook, os.X_OK):
            raise WorkspaceError(f"{_HOOKS / hook} is not executable, so no push can be checked.")


def require_free_disk(folder: Path) -> None:
    """Other pushes may arrive at the same time, so this is asked again and again."""
    if shutil.disk_usage(folder).free < settings.ENVIRONMENT.keep_free_disk:
        raise DiskFull("The portal's disk is full (CATHERDER_KEEP_FREE_DISK).")


async def body_pieces(scope: Message, receive: Receive, *, limit: int) -> AsyncGenerator[bytes]:
    """Yield the request's body, decompressed, of at most `limit` bytes."""
    encoding = dict(scope["headers"]).get(b"content-encoding", b"")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in (b"gzip", b"x-gzip") else None
    seen, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        received = message.get("body", b"")
        while received:
            piece = received
            if unpacker is not None:
                piece = _decompressed(unpacker, received)
            seen += len(piece)
            if seen > limit:
                raise BodyTooLarge(f"The body is longer than {limit:,} bytes.")
            yield piece
            received = unpacker.unconsumed_tail if unpacker is not None else b""
    if unpacker is not None:
        yield unpacker.flush()
        if not unpacker.eof:
            raise BodyBroken("The body is not complete.")


def _decompressed(unpacker: zlib._Decompress, received: bytes) -> bytes:
    """Return the next piece; the rest is in `unpacker.unconsumed_tail`. Raises BodyBroken."""
    try:
        piece = unpacker.decompress(received, _PIECE)
    except zlib.error as error:
        raise BodyBroken(f"The body cannot be decompressed ({error}).") from error
    if unpacker.unused_data:  # it would grow by all that follows
        raise BodyBroken("The body goes on after its end.")
    return piece


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
            headers = [(b"content-type", self._media_type.encode()), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            piece = self._beginning + piece
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def end(self) -> None:
        await self.write(b"", more=False)


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
    """End git and what it started. On SIGTERM it removes what it has received so far."""
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
