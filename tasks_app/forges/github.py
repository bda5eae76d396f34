"""GitHub, and GitHub Enterprise: REST through PyGithub, with a token or as an app."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from github import Auth, Github, GithubException
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester

from tasks_app.core.allowed_networks import Network
from tasks_app.forges.http import Json, RestForge, guard, login, readable, text, wanted_reviewers, web_url
from tasks_app.forges.port import (
    CheckState,
    ForgeAddress,
    ForgeKind,
    NewPullRequest,
    PullRequestState,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
)

_CONCLUSIONS = {
    "success": CheckState.PASSED,
    "neutral": CheckState.PASSED,
    "skipped": CheckState.SKIPPED,
    "cancelled": CheckState.SKIPPED,
    "stale": CheckState.SKIPPED,
}
_STATES = {"success": CheckState.PASSED, "pending": CheckState.PENDING}
_NAME = "GitHub"


@dataclass(frozen=True)
class AppKey:
    """The private key of a GitHub app, which is exchanged for a token that is valid for an hour."""

    app_id: str
    private_key: str = field(repr=False)


class _Api(RestForge):
    """GitHub's API as a user or as an app."""

    name = _NAME

    def __init__(self, api_url: str, auth: Auth.Auth, listed: Iterable[Network]) -> None:
        self._requester = _requester(api_url, auth, tuple(listed))

    def _send(self, verb: str, path: str, query: Json | None, body: Json | None) -> Any:
        try:
            return self._requester.requestJsonAndCheck(verb, path, parameters=query, input=body)[1]
        except GithubException as error:
            raise self._refused(error.status, _error_message(error.data), error.headers or {}) from None

    @staticmethod
    def _read_pull_request(raw: Json) -> RemotePullRequest:
        return _pull_request(raw)

    def installation_token(self, repository: str) -> str:
        """Return a token of the app's installation at the repository."""
        installation = self._call("GET", f"/repos/{repository}/installation")
        made = self._call("POST", f"/app/installations/{int(installation['id'])}/access_tokens", {})
        return str(made["token"])


class GitHub(_Api):
    """A repository at GitHub. Its API is at https://api.github.com, or https://HOST/api/v3."""

    kind = ForgeKind.GITHUB

    def __init__(self, address: ForgeAddress, token: str, *, listed: Iterable[Network] = ()) -> None:
        super().__init__(address.api_url, Auth.Token(token), listed)
        self._repo = f"/repos/{address.repository}"
        self._owner = address.repository.partition("/")[0]
        self._head_owner, _, self._fork = address.fork.partition("/")

    def find(self, head: str, base: str) -> RemotePullRequest | None:
        query = {"head": f"{self._head_owner or self._owner}:{head}", "base": base, "state": "open"}
        found = self._list(f"{self._repo}/pulls", query)
        with readable(_NAME):
            return _pull_request(found[0]) if found else None

    def open(self, new: NewPullRequest) -> RemotePullRequest:
        body = {
            "head": new.head, "base": new.base, "title": new.title, "body": new.body, "draft": new.draft,
        }  # fmt: skip
        if self._fork:
            body["head"] = f"{self._head_owner}:{new.head}"
        if self._head_owner == self._owner:  # the owner does not say then which repository it is
            body["head_repo"] = self._fork
        return self._pull_request(self._call("POST", f"{self._repo}/pulls", body))

    def update(self, number: int, *, body: str) -> RemotePullRequest:
        return self._pull_request(self._call("PATCH", self._pull(number), {"body": body}))

    def request_reviews(self, number: int, reviewers: tuple[str, ...]) -> None:
        self._call("POST", f"{self._pull(number)}/requested_reviewers", wanted_reviewers(reviewers))

    def read(self, number: int) -> RemotePullRequest:
        found = self._pull_request(raw := self._call("GET", self._pull(number)))
        if found.state == PullRequestState.CLOSED:
            issue = self._call("GET", f"{self._repo}/issues/{number}")
            with readable(_NAME):
                return _pull_request(raw, closed_by=login(issue.get("closed_by")))
        return found

    def comments(self, number: int) -> list[RemoteComment]:
        on_lines = self._list(f"{self._pull(number)}/comments")
        of_reviews = self._list(f"{self._pull(number)}/reviews")
        on_all = self._list(f"{self._repo}/issues/{number}/comments")
        with readable(_NAME):
            whole = [("r", raw) for raw in of_reviews if raw.get("submitted_at") and text(raw.get("body"))]
            whole += [("i", raw) for raw in on_all]
            return [
                *map(_line_comment, on_lines),
                *(
                    RemoteComment(
                        f"{kind}{raw['id']}", f"{kind}{raw['id']}", login(raw["user"]), text(raw["body"])
                    )
                    for kind, raw in whole
                ),
            ]

    def checks(self, commit: str) -> list[RemoteCheck]:
        at = f"{self._repo}/commits/{commit}"
        runs = self._list(f"{at}/check-runs", {"filter": "latest"}, of=lambda answer: answer["check_runs"])
        statuses = self._list(f"{at}/status", of=lambda answer: answer["statuses"])
        with readable(_NAME):
            return [
                *(RemoteCheck(text(raw["name"]), _run_state(raw), web_url(raw["html_url"])) for raw in runs),
                *(
                    RemoteCheck(
                        text(raw["context"]),
                        _STATES.get(raw["state"], CheckState.FAILED),
                        web_url(raw["target_url"]),
                    )
                    for raw in statuses
                ),
            ]

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        kind, place = "i", f"{self._repo}/issues/{number}/comments"
        if comment.discussion.startswith("d"):  # on lines
            kind, place = "d", f"{self._pull(number)}/comments/{comment.discussion[1:]}/replies"
        made = self._call("POST", place, {"body": text})
        with readable(_NAME):
            return f"{kind}{made['id']}"

    def _pull(self, number: int) -> str:
        return f"{self._repo}/pulls/{number}"


def installation_token(api_url: str, repository: str, key: AppKey, *, listed: Iterable[Network] = ()) -> str:
    """Exchange the key of an app for a token of its installation at the repository. Raises ForgeError."""
    with readable("The key of the GitHub app or an answer"):
        return _Api(api_url, Auth.AppAuth(key.app_id, key.private_key), listed).installation_token(repository)


def _requester(api_url: str, auth: Auth.Auth, listed: tuple[Network, ...]) -> Requester:
    class Plain(HTTPRequestsConnectionClass):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            guard(self.session, listed)

    class Secure(HTTPSRequestsConnectionClass):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            guard(self.session, listed)

    # The classes belong to the library as a whole. An installation has one list of networks.
    Requester.injectConnectionClasses(Plain, Secure)
    client = Github(
        base_url=api_url, auth=auth, retry=None, user_agent="Cat-Herder",
        seconds_between_requests=None, seconds_between_writes=None,
    )  # fmt: skip
    return client.requester


def _error_message(data: object) -> str:
    """Return GitHub's message, and the message of each error."""
    if not isinstance(data, dict):
        return text(data)
    errors = data.get("errors")
    if not isinstance(errors, list):
        errors = [errors]
    said = [text(one.get("message") if isinstance(one, dict) else one) for one in errors]
    return ": ".join(filter(None, [text(data.get("message")), "; ".join(filter(None, said))]))


def _pull_request(raw: Json, *, closed_by: str = "") -> RemotePullRequest:
    state = PullRequestState.OPEN if raw["state"] == "open" else PullRequestState.CLOSED
    if raw.get("merged_at"):
        state = PullRequestState.MERGED
    return RemotePullRequest(
        number=int(raw["number"]),
        url=web_url(raw["html_url"]),
        state=state,
        draft=bool(raw.get("draft")),
        title=text(raw["title"]),
        body=text(raw["body"]),
        head_commit=text(raw["head"]["sha"]),
        ended_by=login(raw.get("merged_by")) or closed_by,
    )


def _line_comment(raw: Json) -> RemoteComment:
    # A comment whose line was changed has no `line` any more. It is anchored where it was written.
    line, commit = raw.get("line"), raw["commit_id"]
    first, side = raw.get("start_line"), raw.get("side")
    if line is None and raw.get("subject_type") != "file":
        line, commit, first = (
            raw.get("original_line"),
            raw["original_commit_id"],
            raw.get("original_start_line"),
        )
    return RemoteComment(
        id=f"d{raw['id']}",
        discussion=f"d{raw.get('in_reply_to_id') or raw['id']}",
        author=login(raw["user"]),
        text=text(raw["body"]),
        path=text(raw["path"]),
        line=line,
        first_line=first,
        old_side=side == "LEFT",
        commit=text(commit),
    )


def _run_state(raw: Json) -> CheckState:
    if raw["status"] != "completed":
        return CheckState.PENDING
    return _CONCLUSIONS.get(raw["conclusion"], CheckState.FAILED)
