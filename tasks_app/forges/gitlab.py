"""GitLab: merge requests, through python-gitlab, with a project or personal access token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import requests
from gitlab import Gitlab
from gitlab.exceptions import GitlabError

from tasks_app.core.allowed_networks import Network
from tasks_app.forges.http import Json, RestForge, login, readable, session, text, web_url
from tasks_app.forges.port import (
    CheckState,
    ForgeAddress,
    ForgeError,
    ForgeKind,
    NewPullRequest,
    PullRequestState,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
)

_STATES = {"merged": PullRequestState.MERGED, "closed": PullRequestState.CLOSED}
_CHECKS = {
    "success": CheckState.PASSED,
    "failed": CheckState.FAILED,
    "canceled": CheckState.SKIPPED,
    "skipped": CheckState.SKIPPED,
}
_NAME = "GitLab"


class GitLab(RestForge):
    """A project at GitLab. Its API is at https://HOST/api/v4."""

    kind = ForgeKind.GITLAB
    name = _NAME

    def __init__(self, address: ForgeAddress, token: str, *, listed: Iterable[Network] = ()) -> None:
        own = session(listed)
        own.hooks["response"].append(self._keep_headers)
        self._headers: Mapping[str, str] = {}
        self._client = Gitlab(
            address.api_url.removesuffix("/api/v4"), private_token=token, session=own,
            user_agent="Cat-Herder", retry_transient_errors=False, keep_base_url=True,
        )  # fmt: skip
        self._project = f"/projects/{quote(address.repository, safe='')}"
        self._source = self._project
        if address.fork:
            self._source = f"/projects/{quote(address.fork, safe='')}"

    def find(self, head: str, base: str) -> RemotePullRequest | None:
        query = {"source_branch": head, "target_branch": base, "state": "opened"}
        found = self._list(f"{self._project}/merge_requests", query)
        if not found:
            return None
        source = self._id_of(self._source)
        with readable(_NAME):
            ours = [raw for raw in found if raw["source_project_id"] == source]
        return self._pull_request(ours[0]) if ours else None

    def _id_of(self, project: str) -> int:
        found = self._call("GET", project)
        with readable(_NAME):
            return int(found["id"])

    def open(self, new: NewPullRequest) -> RemotePullRequest:
        title = new.title
        if new.draft:
            title = f"Draft: {title}"
        body: Json = {
            "source_branch": new.head, "target_branch": new.base, "title": title, "description": new.body,
        }  # fmt: skip
        if self._source != self._project:
            body["target_project_id"] = self._id_of(self._project)
        return self._pull_request(self._call("POST", f"{self._source}/merge_requests", body))

    def update(self, number: int, *, body: str) -> RemotePullRequest:
        return self._pull_request(self._call("PUT", self._at(number), {"description": body}))

    def request_reviews(self, number: int, reviewers: tuple[str, ...]) -> None:
        present = self._call("GET", self._at(number))
        with readable(_NAME):
            wanted = [int(one["id"]) for one in present.get("reviewers") or []]
        for name in reviewers:
            found = self._list("/users", {"username": name})
            if not found:
                raise ForgeError(f"{_NAME} has no user {name}.")
            wanted.append(int(found[0]["id"]))
        self._call("PUT", self._at(number), {"reviewer_ids": list(dict.fromkeys(wanted))})

    def read(self, number: int) -> RemotePullRequest:
        return self._pull_request(self._call("GET", self._at(number)))

    def comments(self, number: int) -> list[RemoteComment]:
        discussions = self._list(f"{self._at(number)}/discussions")
        with readable(_NAME):
            return [
                _comment(text(discussion["id"]), note)
                for discussion in discussions
                for note in discussion["notes"]
                if not note.get("system")
            ]

    def checks(self, commit: str) -> list[RemoteCheck]:
        found = self._list(f"{self._source}/repository/commits/{commit}/statuses")
        with readable(_NAME):
            return [
                RemoteCheck(text(raw["name"]), _check_state(raw), web_url(raw.get("target_url")))
                for raw in found
            ]

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        path = f"{self._at(number)}/discussions/{quote(comment.discussion, safe='')}/notes"
        made = self._call("POST", path, {"body": text})
        with readable(_NAME):
            return str(made["id"])

    def _at(self, number: int) -> str:
        return f"{self._project}/merge_requests/{number}"

    def _send(self, verb: str, path: str, query: Json | None, body: Json | None) -> Any:
        try:
            response = self._client.http_request(
                verb.lower(), path, query_data=query, post_data=body, obey_rate_limit=False
            )
        except GitlabError as error:
            raise self._refused(error.response_code or 0, str(error.error_message), self._headers) from None
        with readable(_NAME):
            return response.json()

    def _keep_headers(self, response: requests.Response, **_: object) -> None:
        """Keep what an error of the client does not have: how long a rate limit holds."""
        self._headers = response.headers

    @staticmethod
    def _read_pull_request(raw: Json) -> RemotePullRequest:
        merged_by = raw.get("merge_user") or raw.get("merged_by")
        return RemotePullRequest(
            number=int(raw["iid"]),
            url=web_url(raw["web_url"]),
            state=_STATES.get(raw["state"], PullRequestState.OPEN),
            draft=bool(raw.get("draft")),
            title=text(raw["title"]).removeprefix("Draft: "),
            body=text(raw["description"]),
            head_commit=text(raw["sha"]),
            ended_by=login(merged_by) or login(raw.get("closed_by")),
        )


def _check_state(raw: Json) -> CheckState:
    # A job that may fail does not fail the pipeline, and one to be started by hand does not block it.
    if raw["status"] in ("failed", "manual") and raw.get("allow_failure"):
        return CheckState.SKIPPED
    return _CHECKS.get(raw["status"], CheckState.PENDING)


def _comment(discussion: str, note: Json) -> RemoteComment:
    position = note.get("position") or {}
    names, old_side = ("new_line", "new_path", "head_sha"), False
    if position.get("new_line") is None and position.get("old_line"):
        names, old_side = ("old_line", "old_path", "base_sha"), True
    line, path, commit = map(position.get, names)
    return RemoteComment(
        id=str(note["id"]),
        discussion=discussion,
        author=login(note["author"]),
        text=text(note["body"]),
        path=text(path),
        line=line,
        old_side=old_side,
        commit=text(commit),
    )
