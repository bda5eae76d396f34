"""Forgejo, and Gitea, of which it is a fork: their REST API. No client for it is well kept."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import requests

from tasks_app.core.allowed_networks import Network
from tasks_app.forges.http import Json, RestForge, login, readable, session, text, wanted_reviewers, web_url
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

_CHECKS = {
    "success": CheckState.PASSED,
    "warning": CheckState.PASSED,
    "skipped": CheckState.SKIPPED,
    "pending": CheckState.PENDING,
}
_NAME = "Forgejo"
#: Characters of a discussion's name that are stored.
_LONGEST_DISCUSSION = 200


class Forgejo(RestForge):
    """A repository at Forgejo. Its API is at https://HOST/api/v1."""

    kind = ForgeKind.FORGEJO
    name = _NAME
    page_size = 50
    size_parameter = "limit"

    def __init__(self, address: ForgeAddress, token: str, *, listed: Iterable[Network] = ()) -> None:
        self._session = session(listed)
        self._session.headers.update({"Authorization": f"token {token}", "User-Agent": "Cat-Herder"})
        self._api_url = address.api_url
        self._repo = f"/repos/{quote(address.repository)}"
        self._fork = address.fork
        self._head_repository = address.fork or address.repository

    def find(self, head: str, base: str) -> RemotePullRequest | None:
        for raw in self._list(f"{self._repo}/pulls", {"state": "open"}):
            with readable(_NAME):
                # Without a repository: its fork was deleted.
                repository = text((raw["head"].get("repo") or {}).get("full_name"))
                is_ours = repository.lower() == self._head_repository.lower()
                if is_ours and (raw["head"]["ref"], raw["base"]["ref"]) == (head, base):
                    return self._read_pull_request(raw)
        return None

    def open(self, new: NewPullRequest) -> RemotePullRequest:
        title, head = new.title, new.head
        if new.draft:
            title = f"WIP: {title}"
        if self._fork:
            head = f"{self._fork.partition('/')[0]}:{head}"
        body = {"head": head, "base": new.base, "title": title, "body": new.body}
        return self._pull_request(self._call("POST", f"{self._repo}/pulls", body))

    def update(self, number: int, *, body: str) -> RemotePullRequest:
        return self._pull_request(self._call("PATCH", self._pull(number), {"body": body}))

    def request_reviews(self, number: int, reviewers: tuple[str, ...]) -> None:
        self._call("POST", f"{self._pull(number)}/requested_reviewers", wanted_reviewers(reviewers))

    def read(self, number: int) -> RemotePullRequest:
        return self._pull_request(self._call("GET", self._pull(number)))

    def comments(self, number: int) -> list[RemoteComment]:
        found: list[RemoteComment] = []
        for review in self._list(f"{self._pull(number)}/reviews"):
            with readable(_NAME):
                found += self._of_review(number, review)
        for raw in self._call("GET", f"{self._repo}/issues/{number}/comments") or []:  # without pages
            with readable(_NAME):
                name = f"i{raw['id']}"
                found.append(RemoteComment(name, name, login(raw["user"]), text(raw["body"])))
        return found

    def _of_review(self, number: int, review: Json) -> list[RemoteComment]:
        if review.get("state") == "PENDING":
            return []
        found = []
        if text(review.get("body")):
            name = f"r{review['id']}"
            found.append(RemoteComment(name, name, login(review["user"]), text(review["body"])))
        if review.get("comments_count"):
            comments = self._call("GET", f"{self._pull(number)}/reviews/{int(review['id'])}/comments")
            found += map(_line_comment, comments)
        return found

    def checks(self, commit: str) -> list[RemoteCheck]:
        found = self._list(
            f"{self._repo}/commits/{commit}/status", of=lambda answer: answer.get("statuses") or []
        )
        with readable(_NAME):
            return [
                RemoteCheck(
                    text(raw["context"]),
                    _CHECKS.get(raw["status"], CheckState.FAILED),
                    web_url(raw.get("target_url")),
                )
                for raw in found
            ]

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        """Comment on the same line, which Forgejo shows in the same conversation; else on the whole."""
        if not (comment.path and comment.line):
            made = self._call("POST", f"{self._repo}/issues/{number}/comments", {"body": text})
            with readable(_NAME):
                return f"i{made['id']}"
        side = "old_position" if comment.old_side else "new_position"
        body = {
            "event": "COMMENT",
            "commit_id": comment.commit,
            "comments": [{"path": comment.path, "body": text, side: comment.line}],
        }
        review = self._call("POST", f"{self._pull(number)}/reviews", body)
        with readable(_NAME):
            comments = self._call("GET", f"{self._pull(number)}/reviews/{int(review['id'])}/comments")
            return f"d{comments[0]['id']}"

    def _pull(self, number: int) -> str:
        return f"{self._repo}/pulls/{number}"

    def _send(self, verb: str, path: str, query: Json | None, body: Json | None) -> Any:
        response = self._session.request(
            verb, f"{self._api_url}{path}", params=query, json=body, allow_redirects=False
        )
        if not 200 <= response.status_code < 300:
            raise self._refused(response.status_code, _message(response), response.headers)
        with readable(_NAME):
            return response.json()

    @staticmethod
    def _read_pull_request(raw: Json) -> RemotePullRequest:
        state = PullRequestState.OPEN if raw["state"] == "open" else PullRequestState.CLOSED
        if raw.get("merged"):
            state = PullRequestState.MERGED
        title = text(raw["title"])
        return RemotePullRequest(
            number=int(raw["number"]),
            url=web_url(raw["html_url"]),
            state=state,
            draft=bool(raw.get("draft")) or title.startswith("WIP:"),
            title=title.removeprefix("WIP: "),
            body=text(raw["body"]),
            head_commit=text(raw["head"]["sha"]),
            ended_by=login(raw.get("merged_by")),
        )


def _message(response: requests.Response) -> str:
    try:
        return text(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _line_comment(raw: Json) -> RemoteComment:
    """Read a comment on a line. Comments on the same line of a file are one conversation."""
    line, old_side = raw.get("position"), False
    commit = raw.get("commit_id")
    if not line:
        line, commit = raw.get("original_position"), raw.get("original_commit_id")
        old_side = bool(line)
    path, side = text(raw["path"]), "old" if old_side else "new"
    discussion = f"{path}:{side}:{line}"
    if len(discussion) > _LONGEST_DISCUSSION:
        discussion = f"{sha256(path.encode()).hexdigest()}:{side}:{line}"
    return RemoteComment(
        id=f"d{raw['id']}",
        discussion=discussion,
        author=login(raw["user"]),
        text=text(raw["body"]),
        path=path,
        line=line or None,
        old_side=old_side,
        commit=text(commit),
    )
