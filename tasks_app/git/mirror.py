"""A worker host's copy of one of the portal's repositories: a cache, which may vanish at any time.

The portal's repository stays the truth. Before work on a task, what it needs is fetched from there; whatever
is recorded is pushed there before a row says so. Both go through git's smart HTTP, and contents of Git LFS
through its batch API, under the task's lease. An exchange that breaks is begun again whole.
"""

from __future__ import annotations

import fcntl
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tasks_app.core.errors import InUse, LeaseLost, TemporaryFault, WorkspaceError
from tasks_app.git import authorities
from tasks_app.git.lfs import (
    NOT_KEPT,
    TOO_LARGE,
    added_contents,
    endpoint_of,
    endpoint_settings,
    is_installed,
)
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.program import Finished, Git
from tasks_app.git.recording import remove_tree
from tasks_app.git.repairing import is_readable
from tasks_app.git.repository import Fetched, Repository

#: Statuses that depend on what was sent alone, so that it would be refused again. For requests of git 400 is
#: none of them: the portal also answers so if its git ended early, for example for want of memory.
FINAL_STATUSES = frozenset({413, 414, 415, 422})
#: How git names the status of a response.
_STATUS = re.compile(r"(?:\bHTTP |returned error: )(\d{3})\b")
#: What the portal's git and its hooks say of a push whose objects they will never take.
_NOT_TAKEN = re.compile(r"^remote: (.*(?:fsck error|is not part of this push).*?)\s*$", re.M)


class TokenRefused(TemporaryFault):
    """The portal does not accept the worker's token."""


class ExchangeRefused(WorkspaceError):
    """The portal does not take what was sent, and would not take it again."""


def refusal(error: Exception) -> ExchangeRefused | None:
    """Return why the exchange would fail again, or None if another attempt may succeed."""
    if isinstance(error, ExchangeRefused):
        return error
    message = str(error)
    status = next((int(one) for one in _STATUS.findall(message) if int(one) in FINAL_STATUSES), 0)
    if status == 413 or TOO_LARGE in message:
        return ExchangeRefused(
            "The portal does not take what was recorded, because it is too large: it takes at most 2 GB at"
            " once, and a reverse proxy in front of it may take less. Have .gitignore name large files that"
            " are no part of the result."
        )
    if found := _NOT_TAKEN.search(message):
        return ExchangeRefused(f"The portal does not take what was recorded: {found[1]}.")
    if status:
        return ExchangeRefused(f"The portal refuses to exchange files (HTTP {status}).")
    return None


if TYPE_CHECKING:
    from requests import PreparedRequest, Response

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: A task's id and the epoch of its lease.
Key = tuple[int, int]
#: The URL under which a worker host reaches the portal: a proxy may change the Host of a request.
URL_HEADER = "X-Cat-Herder-Url"
#: The folder of what was pushed and is named by no other reference yet.
INCOMING = "refs/cat-herder-incoming"
#: What a portal says of itself.
_FACTS = (("data_dir", str), ("rehearsal", bool), ("git_filters", list), ("queue_secret", str))
#: Seconds to connect to the portal, and to wait for its answer.
_TIMEOUT = (5.0, 60.0)
#: Seconds that a task waits in its slot while another one of this host fetches the same repository.
BUSY_SECONDS = 2.0
#: Seconds before each further attempt at fetching. After that another host may try.
_FETCH_PAUSES = (1.0, 4.0, 15.0)
#: The same for pushing, for a day. No other host has what this one has made: going on elsewhere would mean to
#: pay the agent again. The queue and `doctor` show what is in the way, and a task can be cancelled meanwhile.
_PUSH_PAUSES = (1.0, 4.0, *(15.0,) * 20, *(60.0,) * 30, *(600.0,) * 140)

#: Seconds for one call of git or git-lfs, and for silence in it: the portal checks what came, and writes it.
_EXCHANGE_SECONDS = 4 * 3600.0
_SILENT_SECONDS = 300
#: The number of contents that are named in one call of git-lfs.
_LFS_BATCH = 1000
_held: ContextVar[Key | None] = ContextVar("held", default=None)
#: By task: why its last attempt at a push has failed. The next attempt is still to come.
_failed_pushes: dict[Key, str] = {}


def push_problem() -> str:
    """Return why this host cannot send to the portal what it has recorded, or ""."""
    failed = sorted(_failed_pushes.copy().items())
    if not failed:
        return ""
    (task_id, _), reason = failed[0]
    return f"It cannot send recorded work to the portal, now of task {task_id}: {reason}"


def incoming_folder(task_id: int) -> str:
    """Return the folder of what was pushed for a task and waits for the references that shall name it."""
    return f"{INCOMING}/{task_id}"


def incoming_ref(key: Key) -> str:
    """Return the only reference that the holder of a lease may push to; the portal sets all others."""
    return f"{incoming_folder(key[0])}/{key[1]}"


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

    def prepare_contents(self, key: Key) -> str:
        """Let the portal fetch the contents of Git LFS from the source; return what went wrong, or ""."""
        while True:
            answer = self._call("POST", f"{_task_path(key)}/contents")
            if answer.status_code != 202:
                return _problem_in(answer)

    def git_lfs(self, repository: Repository, key: Key, *words: str) -> Finished:
        """Run git-lfs with the token, so that it exchanges contents with the portal and with nobody else."""
        git = self.git(repository)
        settings = (
            *git.settings,
            *endpoint_settings(endpoint_of(self.repository_url(key))),
            "lfs.basictransfersonly=true",
            f"lfs.activitytimeout={_SILENT_SECONDS}",
            "lfs.concurrenttransfers=3",
            # A `.lfsconfig` of the repository would be read otherwise.
            "lfs.fetchinclude=",
            "lfs.fetchexclude=",
        )
        return replace(git, settings=settings).finish_with_server("lfs", *words, timeout=_EXCHANGE_SECONDS)

    def git(self, repository: Repository) -> Git:
        """Return git that shows the token to the portal. It is in the environment: arguments can be read."""
        return Git(
            repository.path,
            settings=(
                "protocol.http.allow=always",
                "http.followRedirects=false",
                f"http.lowSpeedTime={_SILENT_SECONDS}",
            ),
            variables=(
                ("GIT_ALLOW_PROTOCOL", "http:https"),
                ("GIT_CONFIG_COUNT", "2"),
                ("GIT_CONFIG_KEY_0", f"http.{self.url}/.extraHeader"),
                ("GIT_CONFIG_VALUE_0", f"Authorization: Bearer {self.token}"),
                ("GIT_CONFIG_KEY_1", f"http.{self.url}/.extraHeader"),
                ("GIT_CONFIG_VALUE_1", f"{URL_HEADER}: {self.url}"),
                *authorities.of_portal().variables_of_git,
            ),
        )

    def _call(self, method: str, path: str, **values: Any) -> Response:
        import requests  # every process imports this module, and few of them are on a worker host

        trusted = authorities.of_portal()
        try:
            answer = requests.request(
                method,
                f"{self.url}/worker/{path}",
                auth=self._sign,
                timeout=_TIMEOUT,
                allow_redirects=False,
                verify=str(trusted.path),
                **values,
            )
        except (requests.RequestException, OSError) as error:  # OSError: the list of authorities is missing
            raise TemporaryFault(authorities.reason_of_failure(self.url, error, trusted)) from error
        if answer.status_code == 401:
            raise TokenRefused(f"The portal at {self.url} does not accept CATHERDER_WORKER_TOKEN")
        if answer.status_code == 403:
            raise LeaseLost(answer.text.strip()[:300])
        if method != "GET" and answer.status_code in (400, *FINAL_STATUSES):
            raise ExchangeRefused(f"The portal at {self.url} refuses {path}: {answer.text.strip()[:300]}")
        missing = answer.status_code == 404 and path.endswith("/refs")
        if not (answer.ok or missing):
            raise TemporaryFault(f"The portal at {self.url} answers {path} with {answer.status_code}")
        return answer

    def _sign(self, request: PreparedRequest) -> PreparedRequest:
        """Add the token. requests would replace a plain header by what it finds in ~/.netrc."""
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def _problem_in(answer: Response) -> str:
    try:
        return str(answer.json()["problem"])
    except (ValueError, KeyError, TypeError):
        raise TemporaryFault("The portal does not say whether it has fetched the contents") from None


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
        key = self._key()
        try:
            self._exchange(
                key,
                lambda: self._set_at_portal(key, commit, refs),
                _PUSH_PAUSES,
                failed=lambda reason: _failed_pushes.update({key: reason}),
            )
        finally:
            _failed_pushes.pop(key, None)
        super().set_refs(commit, *refs)

    def _fetch_task(self, key: Key, branch: str) -> Fetched:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.locked_within(BUSY_SECONDS) as locked:
            if not locked:  # a large first copy may last for hours
                raise InUse(
                    f"This worker host is fetching the repository of {self.name} for another task already"
                )
            if self.path.exists() and not is_readable(self.path):
                remove_tree(self.path)
            made = self._make_if_missing()
            # What git keeps of fetches that broke. A recording has its own pack open.
            for path in (self.path / "objects" / "pack").glob("tmp_pack_*"):
                with suppress(OSError), path.open("rb") as file:
                    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # fails while a process has it open
                    path.unlink()
            name = valid_branch(branch)
            folders = ("refs/source", f"refs/cat-herder/{name}", f"refs/cat-herder-ignored/{name}")
            self.portal.git(self).run(
                "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-recurse-submodules", "--update-shallow", "--", self.portal.repository_url(key),
                *(f"+{folder}/*:{folder}/*" for folder in folders),
                f"+refs/cat-herder-base/{name}:refs/cat-herder-base/{name}",
                timeout=_EXCHANGE_SECONDS,
            )  # fmt: skip
        return Fetched(made)

    def fetch_contents(self, commit: str) -> str:
        """Fetch what the portal has of the contents that the commit names. Raises TemporaryFault."""
        key = self._key()
        return self._exchange(key, lambda: self._fetch_contents(key, commit), _FETCH_PAUSES)

    def _fetch_contents(self, key: Key, commit: str) -> str:
        if not is_installed():
            return "git-lfs is not installed on this worker host."
        problem = self.portal.prepare_contents(key)
        done = self.portal.git_lfs(self, key, "fetch", self.portal.repository_url(key), valid_commit(commit))
        if done.code != 0 and NOT_KEPT not in done.messages:
            raise WorkspaceError(f"git lfs fetch failed: {done.messages}")
        return problem

    def _key(self) -> Key:
        key = _held.get()
        if key is None:
            raise WorkspaceError("A worker host records only work on tasks that it holds.")
        return key

    def _set_at_portal(self, key: Key, target: str, refs: tuple[str, ...]) -> None:
        if self.portal.set_refs(key, target, refs):
            return
        # git-lfs leaves out contents that the portal has, so what arrived before a break stays.
        names = added_contents(self, target)
        for start in range(0, len(names), _LFS_BATCH):
            url, some = self.portal.repository_url(key), names[start : start + _LFS_BATCH]
            done = self.portal.git_lfs(self, key, "push", "--object-id", url, *some)
            if done.code != 0:
                raise WorkspaceError(f"git lfs push failed: {done.messages}")
        words = ("push", "--quiet", "--force", "--", self.portal.repository_url(key))
        self.portal.git(self).run(*words, f"{target}:{incoming_ref(key)}", timeout=_EXCHANGE_SECONDS)
        if not self.portal.set_refs(key, target, refs):
            raise WorkspaceError(f"The portal has not received {target[:10]}.")

    def _exchange(
        self,
        key: Key,
        action: Callable[[], T],
        pauses: tuple[float, ...],
        *,
        failed: Callable[[str], None] = lambda reason: None,
    ) -> T:
        """Return what `action` returns, with an attempt after each of these `pauses` if it fails.

        `failed` is called with the reason before each pause, and the log has it, too.
        Raises LeaseLost; InUse, and ExchangeRefused for what would fail again, at once; else TemporaryFault,
        because the task is not to blame for a route that fails.
        """
        fault: Exception
        for pause in (*pauses, None):
            try:
                return action()
            except InUse:
                raise  # without its slot the task can wait as long
            except (WorkspaceError, TemporaryFault) as error:
                fault, final = error, refusal(error)
            try:
                self.portal.require_held(key)  # git does not say whether it was refused, and why
            except TokenRefused:
                raise
            except TemporaryFault as error:
                fault = error
            if final is not None:
                raise final from fault
            if pause is not None:
                reason = " ".join(str(fault).replace(f" in {self.path}", "").split())
                logger.warning("task %s: tried again in %g seconds: %s", key[0], pause, reason)
                failed(reason)
                time.sleep(pause)
        if isinstance(fault, TemporaryFault):
            raise fault
        raise TemporaryFault(f"Files cannot be exchanged with the portal: {fault}") from fault
