"""A worker host's copy of one of the portal's repositories: a cache, which may vanish at any time.

The portal's repository stays the truth. Before work on a task, what it needs is fetched from there; whatever
is recorded is pushed there before a row says so. Both go through git's smart HTTP, under the task's lease.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tasks_app.core.errors import LeaseLost, TemporaryFault, WorkspaceError
from tasks_app.git.names import valid_branch
from tasks_app.git.program import NETWORK_SECONDS, Git
from tasks_app.git.recording import remove_tree
from tasks_app.git.repairing import is_readable
from tasks_app.git.repository import Fetched, Repository

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

T = TypeVar("T")

#: A task's id and the epoch of its lease.
Key = tuple[int, int]
#: What a portal says of itself.
_FACTS = (("data_dir", str), ("rehearsal", bool), ("git_filters", list), ("queue_secret", str))
#: Seconds to connect to the portal, and to wait for its answer.
_TIMEOUT = (5.0, 60.0)
#: Seconds before each further attempt at fetching. After that another host may try.
_FETCH_PAUSES = (1.0, 4.0, 15.0)
#: The same for pushing. No other host has what this one has made, so it waits as for a database that is away.
_PUSH_PAUSES = (1.0, 4.0, *(15.0,) * 20)

#: Statuses that depend on what was sent alone, so that it would be refused again. For requests of git 400 is
#: none of them: the portal also answers so if its git ended early, for example for want of memory.
_FINAL_STATUSES = frozenset({413, 414, 415, 422})
#: How git names the status of a response.
_STATUS = re.compile(r"(?:\bHTTP |returned error: )(\d{3})\b")
_TOO_LARGE = "exceeds maximum allowed size"
#: What the portal's git and its hooks say of a push whose objects they will never take.
_NOT_TAKEN = re.compile(r"^remote: (.*(?:fsck error|is not part of this push).*?)\s*$", re.M)

_held: ContextVar[Key | None] = ContextVar("held", default=None)


def incoming_ref(key: Key) -> str:
    """Return the only reference that the holder of a lease may push to; the portal sets all others."""
    return f"refs/cat-herder-incoming/{key[0]}/{key[1]}"


class TokenRefused(TemporaryFault):
    """The portal does not accept the worker's token."""


class ExchangeRefused(WorkspaceError):
    """The portal does not take what was sent, and would not take it again."""


@dataclass(frozen=True)
class Portal:
    """The portal's interface for worker hosts at `url`, used with `token`."""

    url: str
    token: str = field(repr=False)

    def hello(self) -> dict[str, Any]:
        """Return what the portal says of itself. Raises TemporaryFault, also for a server of another kind."""
        try:
            found: Any = self._call("GET", "hello").json()
        except ValueError:
            found = None
        if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in _FACTS):
            raise TemporaryFault(f"The server at {self.url} does not answer like a portal of this version")
        return found

    def require_held(self, key: Key) -> None:
        """Raise LeaseLost if the portal does not know this worker as the task's holder."""
        self._call("GET", _task_path(key))

    def set_refs(self, key: Key, target: str, refs: tuple[str, ...]) -> bool:
        """Let the portal's `refs` name `target`. Return False if it does not have `target` yet."""
        answer = self._call("POST", f"{_task_path(key)}/refs", json={"target": target, "refs": refs})
        return answer.status_code != 404

    def repository_url(self, key: Key) -> str:
        return f"{self.url}/worker/{_task_path(key)}/repository.git"

    def git(self, repository: Repository) -> Git:
        """Return git that shows the token to the portal. It is in the environment: arguments can be read."""
        return Git(
            repository.path,
            settings=("protocol.http.allow=always", "http.followRedirects=false"),
            variables=(
                ("GIT_ALLOW_PROTOCOL", "http:https"),
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_KEY_0", f"http.{self.url}/.extraHeader"),
                ("GIT_CONFIG_VALUE_0", f"Authorization: Bearer {self.token}"),
            ),
        )

    def _call(self, method: str, path: str, **values: Any) -> Response:
        import requests  # every process imports this module, and few of them are on a worker host

        try:
            answer = requests.request(
                method,
                f"{self.url}/worker/{path}",
                auth=self._sign,
                timeout=_TIMEOUT,
                allow_redirects=False,
                **values,
            )
        except requests.RequestException as error:
            reason = type(error).__name__
            raise TemporaryFault(f"The portal at {self.url} cannot be reached ({reason})") from error
        if answer.status_code == 401:
            raise TokenRefused(f"The portal at {self.url} does not accept CATHERDER_WORKER_TOKEN")
        if answer.status_code == 403:
            raise LeaseLost(answer.text.strip()[:300])
        if method == "POST" and answer.status_code in (400, *_FINAL_STATUSES):
            raise ExchangeRefused(f"The portal at {self.url} refuses {path}: {answer.text.strip()[:300]}")
        if answer.status_code not in (200, 404) or (answer.status_code == 404 and method == "GET"):
            raise TemporaryFault(f"The portal at {self.url} answers {path} with {answer.status_code}")
        return answer

    def _sign(self, request: PreparedRequest) -> PreparedRequest:
        """Add the token. requests would replace a plain header by what it finds in ~/.netrc."""
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def _refusal(error: Exception) -> ExchangeRefused | None:
    """Return why the exchange would fail again, or None if another attempt may succeed."""
    if isinstance(error, ExchangeRefused):
        return error
    message = str(error)
    status = next((int(one) for one in _STATUS.findall(message) if int(one) in _FINAL_STATUSES), 0)
    if status == 413 or _TOO_LARGE in message:
        return ExchangeRefused(
            "The portal does not take what was recorded, because it is too large: it takes at most 2 GB at"
            " once, and a reverse proxy in front of it may take less. Have .gitignore name large files that"
            " are no part of the result."
        )
    if found := _NOT_TAKEN.search(message):
        return ExchangeRefused(f"The portal does not take what was recorded: {found[1]}.")
    return ExchangeRefused(f"The portal refuses to exchange files (HTTP {status}).") if status else None


def _task_path(key: Key) -> str:
    return f"tasks/{key[0]}/{key[1]}"


@dataclass(frozen=True)
class Mirror(Repository):
    """The copy on a worker host. References of tasks are set at the portal first, and then here."""

    portal: Portal = field(kw_only=True)

    @contextmanager
    def held_for(self, key: Key, *, branch: str) -> Iterator[None]:
        """Fetch what a task with this branch needs; until the context ends, push under its lease."""
        self._exchange(key, lambda: self._fetch_task(key, branch), _FETCH_PAUSES)
        token = _held.set(key)
        try:
            yield
        finally:
            _held.reset(token)

    def fetch(self, *, thorough: bool = False) -> NoReturn:
        raise WorkspaceError("Sources are fetched on the portal's host; this is a worker host.")

    def set_refs(self, commit: str, *refs: str) -> None:
        """Push the commit, let the portal's `refs` name it, and then those here. Raises LeaseLost."""
        key = _held.get()
        if key is None:
            raise WorkspaceError("A worker host records only work on tasks that it holds.")
        self._exchange(key, lambda: self._set_at_portal(key, commit, refs), _PUSH_PAUSES)
        super().set_refs(commit, *refs)

    def _fetch_task(self, key: Key, branch: str) -> Fetched:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.exclusive():
            if self.path.exists() and not is_readable(self.path):
                remove_tree(self.path)
            made = self._make_if_missing()
            name = valid_branch(branch)
            folders = ("refs/source", f"refs/cat-herder/{name}", f"refs/cat-herder-ignored/{name}")
            self.portal.git(self).run(
                "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-recurse-submodules", "--update-shallow", "--", self.portal.repository_url(key),
                *(f"+{folder}/*:{folder}/*" for folder in folders),
                f"+refs/cat-herder-base/{name}:refs/cat-herder-base/{name}",
                timeout=NETWORK_SECONDS,
            )  # fmt: skip
        return Fetched(made)

    def _set_at_portal(self, key: Key, target: str, refs: tuple[str, ...]) -> None:
        if self.portal.set_refs(key, target, refs):
            return
        url, ref = self.portal.repository_url(key), incoming_ref(key)
        self.portal.git(self).run(
            "push", "--quiet", "--no-thin", "--force", "--", url, f"{target}:{ref}", timeout=NETWORK_SECONDS
        )
        if not self.portal.set_refs(key, target, refs):
            raise WorkspaceError(f"The portal has not received {target[:10]}.")

    def _exchange(self, key: Key, action: Callable[[], T], pauses: tuple[float, ...]) -> T:
        """Return what `action` returns, with an attempt after each of these `pauses` if it fails.

        Raises LeaseLost; ExchangeRefused, at once, for what would fail again; else TemporaryFault, because a
        route that fails is no fault of the task.
        """
        fault: Exception
        for pause in (*pauses, None):
            try:
                return action()
            except (WorkspaceError, TemporaryFault) as error:
                fault, final = error, _refusal(error)
            try:
                self.portal.require_held(key)  # git does not say whether it was refused, and why
            except TokenRefused:
                raise
            except TemporaryFault as error:
                fault = error
            if final is not None:
                raise final from fault
            if pause is not None:
                time.sleep(pause)
        if isinstance(fault, TemporaryFault):
            raise fault
        raise TemporaryFault(f"Files cannot be exchanged with the portal: {fault}") from fault
