"""Publish a commit: push it from the portal's own repository to a branch of another repository.

A project's credential is used only here. git and ssh read it from a file in memory, which ends with the
portal's process. So it is in no argument list, in no environment variable, and in no file on the disk.
"""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from tasks_app.core.amounts import counted
from tasks_app.core.errors import MergeConflict, PublishingFailed, TookTooLong, WorkspaceError
from tasks_app.core.text import strip_controls
from tasks_app.git.durable import sync_folders, sync_tree
from tasks_app.git.files import shown_name
from tasks_app.git.lfs import (
    UPLOAD_SECONDS,
    added_contents,
    copy_contents,
    endpoint_of,
    endpoint_settings,
    is_installed,
)
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.program import Finished, Git
from tasks_app.git.repository import Repository
from tasks_app.git.source import is_url, receive_pack, upload_pack

#: Seconds for reading the branches of a remote, and for pushing to it.
READ_SECONDS = 60.0
PUSH_SECONDS = 600.0
_SETTINGS = (
    # A server must not send git, and with it the credential, to another host.
    "http.followRedirects=false",
    "push.gpgSign=false",
)
_SSH = (
    "ssh", "-F", "none", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oIdentitiesOnly=yes",
    "-oIdentityAgent=none", "-oGlobalKnownHostsFile=none", "-oUpdateHostKeys=no", "-oForwardAgent=no",
    "-oConnectTimeout=10", "-oServerAliveInterval=10", "-oServerAliveCountMax=3",
)  # fmt: skip
_HEAD = re.compile(r"^ref: refs/heads/(\S+)\tHEAD$", re.M)
_REMOTE_LINE = re.compile(r"^remote: ?(.*?)\s*$", re.M)
_REJECTED = re.compile(r"^!\t[^\t]*\t\[?([^\]\n]*)\]?(?: \((.*)\))?$", re.M)
_UNAUTHORISED = re.compile(
    r"authentication failed|could not read (username|password)|terminal prompts disabled|permission denied"
    r"|requested url returned error: 40[13]|invalid credentials|load key|error in libcrypto",
    re.IGNORECASE,
)
_UNKNOWN_HOST_KEY = re.compile(r"host key verification failed|no .* host key is known", re.IGNORECASE)
_LONGEST_MESSAGE = 2000
_BASIC_TRANSFERS = "lfs.basictransfersonly=true"
#: Shorter lines of a key are its head and foot, or could be part of any text.
_SHORTEST_SECRET = 8


@dataclass(frozen=True)
class HttpsToken:
    """A user name and a token, or a password, for an https URL."""

    user: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class SshKey:
    """A private key without a passphrase, and the host keys that the server may have."""

    private_key: str = field(repr=False)
    known_hosts: str


Credential = HttpsToken | SshKey


@dataclass(frozen=True)
class RemoteState:
    """A remote's default branch ("" if it does not say), and the commit of a branch ("" if it is missing)."""

    default_branch: str
    commit: str


@dataclass(frozen=True)
class Remote:
    """A repository to publish to: its absolute path or URL, and the credential for it, if it needs one."""

    url: str
    credential: Credential | None = None

    def read(self, branch: str, *, seconds: float = READ_SECONDS) -> RemoteState:
        """Ask the remote for its default branch and for the commit of `branch`. Raises PublishingFailed."""
        ref = f"refs/heads/{valid_branch(branch)}"
        words = ("ls-remote", "--symref", *upload_pack(self.url), "--", self.url, "HEAD", ref)
        done = self._finish(None, *words, seconds=seconds)
        if done.code != 0:
            raise self._failure(branch, done)
        output = done.stdout.decode("utf-8", errors="replace")
        head = _HEAD.search(output)
        commit = re.search(rf"^([0-9a-f]{{40,64}})\t{re.escape(ref)}$", output, re.M)
        return RemoteState(head[1] if head else "", commit[1] if commit else "")

    def push(
        self,
        repository: Repository,
        commit: str,
        branch: str,
        *,
        expected: str,
        seconds: float = PUSH_SECONDS,
    ) -> str:
        """Let `branch` of the remote be `commit`, if it is at `expected` now ("": if it does not exist).

        Return what the remote said. Raises PublishingFailed; then the branch may have been changed anyway, if
        the connection ended too early.
        """
        ref = f"refs/heads/{valid_branch(branch)}"
        if names := added_contents(repository, commit):
            self._bring_contents(repository, names)
        words = (
            "push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no",
            f"--force-with-lease={ref}:{expected and valid_commit(expected)}", *receive_pack(self.url), "--",
            self.url, f"{valid_commit(commit)}:{ref}",
        )  # fmt: skip
        done = self._finish(repository.path, *words, seconds=seconds)
        if done.code != 0:
            raise self._failure(branch, done)
        return self._remote_message(done)

    def _bring_contents(self, repository: Repository, names: list[str]) -> None:
        """Bring contents of Git LFS to the remote, before the commits that name them.

        Raises PublishingFailed.
        """
        if not is_url(self.url):
            copy_contents(repository, names, Path(self.url))
            return
        files = counted(len(names), "file")
        if not is_installed():
            raise PublishingFailed(
                f"The result adds {files} of Git LFS, and git-lfs is not installed on the worker that "
                "publishes. Install it there, and publish again."
            )
        if urlsplit(self.url).scheme != "https":
            raise PublishingFailed(
                f"The result adds {files} of Git LFS. Their contents are uploaded over https only, and "
                f"{self.url} is reached over ssh. Publish to the repository's https URL."
            )
        endpoint = endpoint_of(self.url)
        settings = (*endpoint_settings(endpoint), f"lfs.{endpoint}.access=basic", _BASIC_TRANSFERS)
        words = ("lfs", "push", "--object-id", self.url, *names)
        with self._in_time(UPLOAD_SECONDS), _git_with(self, repository.path) as git:
            uploading = replace(git, settings=(*git.settings, *settings))
            done = uploading.finish_with_server(*words, timeout=UPLOAD_SECONDS)
        if done.code != 0:
            problem = done.messages or f"exit {done.code}"
            message = self._masked(f"{self.url} did not take {files} of Git LFS: {problem}")
            raise PublishingFailed(message[:_LONGEST_MESSAGE])

    def _finish(self, directory: Path | None, *words: str, seconds: float) -> Finished:
        with self._in_time(seconds), _git_with(self, directory) as git:
            return git.finish_with_server(*words, timeout=seconds)

    @contextmanager
    def _in_time(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except TookTooLong:
            raise PublishingFailed(
                f"{self.url} did not answer within {seconds:g} seconds. Publish again when it does."
            ) from None

    def _failure(self, branch: str, done: Finished) -> PublishingFailed:
        """Return the error with its cause: the remote refused, or does not know us, or cannot be reached."""
        messages = done.messages
        if rejected := _REJECTED.search(done.stdout.decode("utf-8", errors="replace")):
            said = "\n".join(filter(None, (rejected[2] or rejected[1], self._remote_message(done))))
            sentence = f"{self.url} refused the branch {branch}: {said}"
        elif _UNKNOWN_HOST_KEY.search(messages):
            sentence = (
                f"The host key of {self.url} is not one of the known hosts of the credential: {messages}"
            )
        elif _UNAUTHORISED.search(messages) and self.credential is None:
            sentence = f"{self.url} wants a credential, and the project has none for it: {messages}"
        elif _UNAUTHORISED.search(messages):
            sentence = f"{self.url} does not accept the project's credential: {messages}"
        else:
            sentence = f"{self.url} cannot be reached: {messages or f'exit {done.code}'}"
        return PublishingFailed(self._masked(sentence)[:_LONGEST_MESSAGE])

    def _remote_message(self, done: Finished) -> str:
        """Return the lines that the remote sent for people."""
        lines = _REMOTE_LINE.findall(done.stderr.decode("utf-8", errors="replace"))
        return self._masked("\n".join(lines).strip())[:_LONGEST_MESSAGE]

    def _masked(self, text: str) -> str:
        """Replace the secret, which a server may send back, and remove control characters."""
        return strip_controls(_without(text, _secrets_of(self.credential)))


def make_commit(
    repository: Repository,
    tree: str,
    *,
    parents: Sequence[str],
    message: str,
    author: tuple[str, str],
    at: datetime,
) -> str:
    """Make a commit with the files of `tree`, and return it.

    The same arguments make the same commit, so that it can be made again after a crash.
    """
    name, email = author
    date = f"{int(at.timestamp())} +0000"
    who = tuple(
        (f"GIT_{role}_{fact}", value)
        for role in ("AUTHOR", "COMMITTER")
        for fact, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    )
    git = Git(repository.path, owner=repository.git.owner, variables=who)
    options = [word for parent in parents for word in ("-p", valid_commit(parent))]
    text = f"{message.strip()}\n".encode(errors="replace")
    made = git.run("commit-tree", *options, valid_commit(tree), stdin=text).decode().strip()
    sync_folders({repository.path / "objects" / made[:2]})
    return made


def merged_tree(repository: Repository, commit: str, other: str) -> str:
    """Return the tree of merging `other` into `commit`. Raises MergeConflict with the files that conflict."""
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
    done = repository.git.finish(*words, valid_commit(commit), valid_commit(other))
    tree, *names = [shown_name(word) for word in done.stdout.rstrip(b"\0").split(b"\0")]
    if done.code == 1 and names:
        sync_tree(repository.path / "objects")
        raise MergeConflict(names, tree=tree)
    if done.code != 0:
        raise WorkspaceError(f"{other} cannot be merged: {done.messages or f'exit {done.code}'}")
    sync_tree(repository.path / "objects")
    return tree


@contextmanager
def _git_with(remote: Remote, directory: Path | None) -> Iterator[Git]:
    """Yield a git that can use the remote's credential while the context lasts."""
    match remote.credential:
        case HttpsToken(user, token):
            parts = urlsplit(remote.url)
            origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            with _memory_file(f"username={user}\npassword={token}\n") as path:
                helper = f'!f() {{ test "$1" != get || cat {path}; }}; f'
                yield Git(directory, settings=(*_SETTINGS, f"credential.{origin}.helper={helper}"))
        case SshKey(private_key, known_hosts):
            with _memory_file(private_key) as identity, _memory_file(known_hosts) as hosts:
                command = " ".join((*_SSH, f"-oUserKnownHostsFile={hosts}", "-i", identity))
                yield Git(directory, settings=_SETTINGS, variables=(("GIT_SSH_COMMAND", command),))
        case None:
            yield Git(directory, settings=_SETTINGS)


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file in memory with this text, for processes of this user. A kill removes it."""
    descriptor = os.memfd_create("cat-herder")
    try:
        os.fchmod(descriptor, 0o600)  # ssh refuses a key that others could read
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(text.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _secrets_of(credential: Credential | None) -> list[str]:
    """Return the texts that must not be shown: the secret, and how it is sent."""
    match credential:
        case HttpsToken(user, token):
            found = [token, quote(token, safe=""), b64encode(f"{user}:{token}".encode()).decode()]
        case SshKey(private_key, _):
            found = [line for line in private_key.splitlines() if "PRIVATE KEY" not in line]
        case None:
            found = []
    return found


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "…")
    return text


# Reading what a worker host pushes before git does: which other objects its deltas are based on (M1).
#
# A pack may contain deltas to objects that are not in it, so that a change of a line is sent as one.
# `receive-pack` takes such bases from anywhere in the repository, also from work that the host may not
# fetch. The host could read that back, or learn of it by what git says of the result. So the bases are read
# from the pack on its way, and git gets the end of the pack only if the host may read all of them: before
# that it resolves no delta.


#: Bytes with which a pack ends: its checksum. git looks at no delta before it has them.
TRAILER_BYTES = 20
_READ, _INFLATED = 4 * 1024, 64 * 1024
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_COMMIT, _TREE, _BLOB, _TAG, _OFFSET_DELTA, _ID_DELTA = 1, 2, 3, 4, 6, 7
_LONGEST_NUMBER = 10
#: They are kept in memory, and a host could name as many as fit into a pack.
_MOST_BASES = 1_000_000

Reading = Generator[None, None, bytes]


class PushMalformed(Exception):
    """A push that git would not read either, or not in the same way."""


class PushReader:
    """Reads the body of a request to `git-receive-pack`, in pieces of any size.

    `bases` are the ids of the objects on which deltas are based by their id. git names objects of the same
    pack by their offset, which the portal offers, so these are others.
    """

    def __init__(self) -> None:
        self._bases: set[bytes] = set()
        #: Whether the client shows messages (`side-band-64k`).
        self.takes_messages = False
        #: Whether the body may end here: before a pack, or after it.
        self.is_complete = True
        self._data, self._at = b"", 0
        self._reading = self._read()
        next(self._reading)

    @property
    def bases(self) -> set[str]:
        return {one.hex() for one in self._bases}

    def feed(self, piece: bytes) -> None:
        """Read the next piece. Raises PushMalformed."""
        self._data, self._at = self._data[self._at :] + piece, 0
        try:
            self._reading.send(None)
        except StopIteration:
            raise PushMalformed("the push goes on after its end") from None

    def _read(self) -> Generator[None]:
        yield
        yield from self._read_commands()
        while self._at == len(self._data):
            yield
        self.is_complete = False
        header = yield from self._take(12)
        if header[:4] != b"PACK" or header[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
            raise PushMalformed("this is no pack of a known version")
        for _ in range(int.from_bytes(header[8:])):
            yield from self._read_object()
        yield from self._take(TRAILER_BYTES)
        self.is_complete = True
        if self._at < len(self._data):
            raise PushMalformed("the push goes on after its end")
        yield

    def _read_commands(self) -> Generator[None]:
        """Read the names of references, each in a line with its length, up to the empty line."""
        while True:
            length = yield from self._take(4)
            self.is_complete = False
            if not _LENGTH.fullmatch(length) or 0 < int(length, 16) < 4:
                raise PushMalformed("a line has no length")
            if length == b"0000":
                self.is_complete = True
                return
            line = yield from self._take(int(length, 16) - 4)
            self.takes_messages |= b"side-band-64k" in line.partition(b"\0")[2].split()

    def _read_object(self) -> Generator[None]:
        byte = (yield from self._take(1))[0]
        kind, size, bits = byte >> 4 & 7, byte & 15, 4
        while byte & 128:
            byte = (yield from self._take(1))[0]
            size, bits = size | (byte & 127) << bits, bits + 7
            if bits > 7 * _LONGEST_NUMBER:
                raise PushMalformed("an object has no size")
        if kind == _ID_DELTA:
            self._bases.add((yield from self._take(20)))
            if len(self._bases) > _MOST_BASES:
                raise PushMalformed(f"it has deltas to more than {_MOST_BASES:,} objects by their id")
        elif kind == _OFFSET_DELTA:
            for _ in range(_LONGEST_NUMBER):
                if not (yield from self._take(1))[0] & 128:
                    break
            else:
                raise PushMalformed("a delta has no base")
        elif kind not in (_COMMIT, _TREE, _BLOB, _TAG):
            raise PushMalformed(f"there are no objects of kind {kind}")
        yield from self._inflate(size)

    def _inflate(self, size: int) -> Generator[None]:
        """Read compressed data of this size to find its end."""
        unpacker, rest, seen = zlib.decompressobj(), b"", 0
        while not unpacker.eof:
            if not rest:
                rest = yield from self._some()
            try:
                seen += len(unpacker.decompress(rest, _INFLATED))
            except zlib.error as error:
                raise PushMalformed(f"an object cannot be decompressed: {error}") from error
            rest = unpacker.unconsumed_tail
            if seen > size:
                break
        if seen != size:
            raise PushMalformed("an object has another size than it says")
        self._at -= len(unpacker.unused_data)

    def _some(self) -> Reading:
        """Return the next bytes, at least one."""
        while self._at == len(self._data):
            yield
        start, self._at = self._at, min(self._at + _READ, len(self._data))
        return self._data[start : self._at]

    def _take(self, size: int) -> Reading:
        while len(self._data) - self._at < size:
            yield
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


def unreadable(repository: Repository, ids: Collection[str], refs: Collection[str]) -> set[str]:
    """Return the objects among `ids` to which none of the references, or folders of them, leads."""
    left = set(ids)
    if not left:
        return left
    tips = repository.git.run("for-each-ref", "--format=%(objectname)", *refs)
    # Bases are nearly always files of the newest commits. The whole history takes long.
    for extent in ("--no-walk", "--do-walk"):
        with tempfile.TemporaryFile() as order:
            order.write(tips)
            order.seek(0)
            words = ("rev-list", "--objects", "--no-object-names", extent, "--stdin")
            line = b""
            for piece in repository.git.stream(*words, stdin=order):
                *lines, line = (line + piece).split(b"\n")
                left.difference_update(one.decode() for one in lines)
                if not left:
                    return left
    return left
