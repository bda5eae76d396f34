"""Publish a commit: push it from the portal's own repository to a branch of another repository.

A project's credential is used only here. git and ssh read it from a file in memory, which ends with the
portal's process. So it is in no argument list, in no environment variable, and in no file on the disk.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from tasks_app.core.control_characters import strip_controls
from tasks_app.core.errors import MergeConflict, PublishingFailed, TookTooLong, WorkspaceError
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
        files = "1 file" if len(names) == 1 else f"{len(names)} files"
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
