"""A worker host's copy of one of the portal's repositories: a cache, which may vanish at any time.

The portal's repository stays the truth. Before work on a task, what it needs is fetched from there; whatever
is recorded is pushed there before a row says so. Both go through git's smart HTTP, under the task's lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tasks_app.core.errors import InUse, LeaseLost, TemporaryFault, WorkspaceError
from tasks_app.git import authorities
from tasks_app.git.exchange_faults import (
    FINAL_STATUSES,
    ExchangeRefused,
    TokenRefused,
    UploadDamaged,
    refusal,
)
from tasks_app.git.lfs import (
    NOT_KEPT,
    added_contents,
    endpoint_of,
    endpoint_settings,
    is_installed,
    path_of,
)
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.program import NETWORK_SECONDS, Finished, Git
from tasks_app.git.recording import remove_tree
from tasks_app.git.repairing import is_readable
from tasks_app.git.repository import Fetched, Repository
from tasks_app.git.transfers import (
    RECEIVED,
    BundleId,
    fetch_bundles,
    has_download,
    is_large,
    push_in_pieces,
    push_messages,
    send_content,
)

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

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
#: The same for pushing. No other host has what this one has made, so it waits as for a database that is away.
_PUSH_PAUSES = (1.0, 4.0, *(15.0,) * 20)

#: Seconds for one call of git-lfs, and the number of contents that are named in one.
LFS_SECONDS = 1800.0
_LFS_BATCH = 1000
_held: ContextVar[Key | None] = ContextVar("held", default=None)


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

    def bundle(self, key: Key, have: list[str]) -> BundleId | None:
        """Return a bundle with what lacks beside the commits `have`, or None. Waits until it is made."""
        while True:
            answer = self._call("POST", f"{_task_path(key)}/bundles", json={"have": have})
            if answer.status_code != 202:
                return BundleId.parse(answer.content) if answer.status_code == 200 else None

    def bundle_piece(self, key: Key, bundle: BundleId, start: int, end: int) -> Response | None:
        """Return these bytes of a bundle, still to be read, or None if the portal has it no more."""
        headers = {"Range": f"bytes={start}-{end - 1}", "If-Range": f'"{bundle.checksum}"'}
        headers["Accept-Encoding"] = "identity"
        path = f"{_task_path(key)}/bundles/{bundle.name}"
        answer = self._call("GET", path, headers=headers, stream=True, may_lack=True)
        if answer.status_code == 206:
            return answer
        answer.close()
        return None

    def upload_state(self, key: Key, name: str) -> tuple[int, int] | None:
        """Return how much of an upload has arrived, and the size of the largest one that is taken.

        None if the portal takes no uploads of this kind, because it is of an earlier version.
        """
        answer = self._call("GET", f"{_task_path(key)}/uploads/{name}", may_lack=True)
        if answer.status_code == 404:
            return None
        try:
            found = answer.json()
            return int(found["size"]), int(found["limit"])
        except (ValueError, KeyError, TypeError):
            raise TemporaryFault(f"The portal at {self.url} does not say how much it has received") from None

    def upload_piece(self, key: Key, name: str, piece: bytes, *, start: int, total: int) -> None:
        """Send a piece of an upload; what has arrived of it stays, also if this fails."""
        headers = {"Content-Range": f"bytes {start}-{start + len(piece) - 1}/{total}"}
        self._call("PUT", f"{_task_path(key)}/uploads/{name}", data=piece, headers=headers)

    def push_upload(self, key: Key, name: str, target: str) -> str:
        """Let the portal push what was uploaded; return what its git says. Waits until that has ended.

        `target` is the commit of a pack; a content of Git LFS has none. Raises UploadDamaged.
        """
        while True:
            answer = self._call("POST", f"{_task_path(key)}/uploads/{name}", json={"target": target})
            if answer.status_code != 202:
                return push_messages(answer.content)

    def prepare_contents(self, key: Key) -> str:
        """Let the portal fetch the contents of Git LFS from the source; return what went wrong, or ""."""
        while True:
            answer = self._call("POST", f"{_task_path(key)}/contents")
            if answer.status_code == 404:  # a portal of an earlier version
                return ""
            if answer.status_code != 202:
                return _problem_in(answer)

    def git_lfs(self, repository: Repository, key: Key, *words: str) -> Finished:
        """Run git-lfs with the token, so that it exchanges contents with the portal and with nobody else."""
        git = self.git(repository)
        settings = (
            *git.settings,
            *endpoint_settings(endpoint_of(self.repository_url(key))),
            "lfs.basictransfersonly=true",
            # A `.lfsconfig` of the repository would be read otherwise.
            "lfs.fetchinclude=",
            "lfs.fetchexclude=",
        )
        return replace(git, settings=settings).finish_with_server("lfs", *words, timeout=LFS_SECONDS)

    def git(self, repository: Repository) -> Git:
        """Return git that shows the token to the portal. It is in the environment: arguments can be read."""
        return Git(
            repository.path,
            settings=("protocol.http.allow=always", "http.followRedirects=false"),
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

    def _call(self, method: str, path: str, *, may_lack: bool = False, **values: Any) -> Response:
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
        if answer.status_code == 409 and method == "POST":
            raise UploadDamaged(f"The portal at {self.url} has received something else than was sent")
        missing = answer.status_code == 404 and (method == "POST" or may_lack)
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
        attempts = count()
        # In one go first: that is one request less, and most fetches are small.
        fetch = lambda: self._fetch_task(key, branch, in_pieces=next(attempts) > 0)  # noqa: E731
        self._exchange(key, fetch, _FETCH_PAUSES)
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
        self._exchange(key, lambda: self._set_at_portal(key, commit, refs), _PUSH_PAUSES)
        super().set_refs(commit, *refs)

    def _fetch_task(self, key: Key, branch: str, *, in_pieces: bool) -> Fetched:
        """Fetch what the task needs: `in_pieces`, which stay if the connection breaks, or in one go.

        What the portal got since the pieces were put together comes in one go, too.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._for_this_task_only():
            if self.path.exists() and not is_readable(self.path):
                remove_tree(self.path)
            made = self._make_if_missing()
            name = valid_branch(branch)
            if in_pieces or has_download(self.path) or not self.refs("refs/source"):
                fetch_bundles(self, key, name)
            folders = ("refs/source", f"refs/cat-herder/{name}", f"refs/cat-herder-ignored/{name}")
            self.portal.git(self).run(
                "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-recurse-submodules", "--update-shallow", "--", self.portal.repository_url(key),
                *(f"+{folder}/*:{folder}/*" for folder in folders),
                f"+refs/cat-herder-base/{name}:refs/cat-herder-base/{name}",
                timeout=NETWORK_SECONDS,
            )  # fmt: skip
            self.remove_refs(f"{RECEIVED}/")
        return Fetched(made)

    @contextmanager
    def _for_this_task_only(self) -> Iterator[None]:
        """Lock the mirror. Raises InUse if that takes long: a large first copy may last for hours."""
        with self.locked_within(BUSY_SECONDS) as locked:
            if not locked:
                raise InUse(
                    f"This worker host is fetching the repository of {self.name} for another task already"
                )
            yield

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

    def _send_contents(self, key: Key, target: str) -> None:
        """Send contents of Git LFS that the commit has, the source has not, and this host keeps.

        Large ones go in pieces first. git-lfs then finds them at the portal, and sends the others at once.
        """
        names = added_contents(self, target)
        for name in names:
            content = path_of(self.path, name)
            if is_large(content) and not send_content(self, key, content):
                break
        for start in range(0, len(names), _LFS_BATCH):
            url, some = self.portal.repository_url(key), names[start : start + _LFS_BATCH]
            done = self.portal.git_lfs(self, key, "push", "--object-id", url, *some)
            if done.code != 0:
                raise WorkspaceError(f"git lfs push failed: {done.messages}")

    def _key(self) -> Key:
        key = _held.get()
        if key is None:
            raise WorkspaceError("A worker host records only work on tasks that it holds.")
        return key

    def _set_at_portal(self, key: Key, target: str, refs: tuple[str, ...]) -> None:
        if self.portal.set_refs(key, target, refs):
            return
        self._send_contents(key, target)
        messages = push_in_pieces(self, key, target)
        if messages is None:
            url, ref = self.portal.repository_url(key), incoming_ref(key)
            words = ("push", "--quiet", "--no-thin", "--force", "--", url, f"{target}:{ref}")
            self.portal.git(self).run(*words, timeout=NETWORK_SECONDS)
        if not self.portal.set_refs(key, target, refs):
            raise WorkspaceError(f"The portal has not received {target[:10]}. {messages or ''}".strip())

    def _exchange(self, key: Key, action: Callable[[], T], pauses: tuple[float, ...]) -> T:
        """Return what `action` returns, with an attempt after each of these `pauses` if it fails.

        Raises LeaseLost; InUse, and ExchangeRefused for what would fail again, at once; else TemporaryFault,
        because a route that fails is no fault of the task.
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
                time.sleep(pause)
        if isinstance(fault, TemporaryFault):
            raise fault
        raise TemporaryFault(f"Files cannot be exchanged with the portal: {fault}") from fault
