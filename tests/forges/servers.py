"""Forges on loopback that speak the APIs of GitHub, GitLab and Forgejo.

What people do there is done to `people`, a forge in memory; the server shows it in the words of the API. Each
request and each answer is held against the description of that API.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tasks_app.forges.port import (
    CheckState,
    Forge,
    ForgeAddress,
    ForgeKind,
    NewPullRequest,
    PullRequestState,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
    connect,
)
from tests.forges.description import Description, Operation, description
from tests.forges.fake import FakeForge

TOKEN = "ghp-a-secret/token+of-the-project"
LOOPBACK = (ip_network("127.0.0.0/8"),)
REPOSITORY = "team/shop"
#: A fork of it, and the number that GitLab gives each.
FORK = "herder/shop"
_PROJECTS = {REPOSITORY: 1, FORK: 2, "stranger/shop": 3}
_PREFIX = {ForgeKind.GITHUB: "/api/v3", ForgeKind.GITLAB: "/api/v4", ForgeKind.FORGEJO: "/api/v1"}
_OLD, _COMMIT = "b" * 40, "a" * 40
_THEN = "2026-05-03T09:00:00Z"


@dataclass
class Request:
    """What an operation gets: the values in its path, the query, and the body."""

    values: dict[str, str]
    query: dict[str, str]
    body: Any

    @property
    def number(self) -> int:
        found = [
            self.values[name]
            for name in ("pull_number", "issue_number", "index", "merge_request_iid")
            if name in self.values
        ]
        return int(found[0])


@dataclass
class ForgeServer:
    """`answers` are given to the next requests instead: status, headers, and what is sent."""

    kind: ForgeKind
    people: FakeForge = field(default_factory=FakeForge)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    port: int = 0

    @property
    def description(self) -> Description:
        return description(self.kind)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PREFIX[self.kind]}"

    @property
    def forge(self) -> Forge:
        return self.connect()

    def connect(self, *, token: str = TOKEN, listed: Any = LOOPBACK, fork: str = "") -> Forge:
        return connect(ForgeAddress(self.kind, self.url, REPOSITORY, fork), token, listed=listed)

    def answer(self, operation: Operation, request: Request) -> tuple[int, Any]:
        api = {ForgeKind.GITHUB: _GITHUB, ForgeKind.GITLAB: _GITLAB, ForgeKind.FORGEJO: _FORGEJO}[self.kind]
        status = next(int(status) for status in operation.spec["responses"])
        return status, api[f"{operation.verb} {operation.path}"](self, request)


@contextmanager
def forge_server(kind: ForgeKind) -> Iterator[ForgeServer]:
    made = ForgeServer(kind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    made.port = server.server_port
    made.description.problems.clear()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(forge: ForgeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            forge.seen.append(f"{self.command} {self.path}")
            forge.bodies.append(body)
            if forge.answers:
                status, headers, sent = forge.answers.pop(0)
                return self._send(status, sent, **headers)
            if TOKEN not in f"{self.headers.get('Authorization')} {self.headers.get('PRIVATE-TOKEN')}":
                return self._send(401, b'{"message": "Bad credentials"}')
            status, made = _made(forge, self.command, self.path, body)
            return self._send(status, json.dumps(made).encode())

        do_GET = do_POST = do_PATCH = do_PUT = _handle

        def _send(self, status: int, sent: bytes, **headers: str) -> None:
            etag = f'"{sha256(sent).hexdigest()[:16]}"'
            if status == 200 and self.headers.get("If-None-Match") == etag:
                status, sent = 304, b""
            forge.statuses.append(status)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "ETag": etag, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *args: Any) -> None:
            """Be silent."""

    return Handler


def _made(forge: ForgeServer, verb: str, url: str, body: Any) -> tuple[int, Any]:
    """Return the answer to a request; both are held against the description."""
    parts = urlsplit(url.removeprefix(_PREFIX[forge.kind]))
    operation = forge.description.operation(verb, parts.path)
    if operation is None:
        forge.description.problems.append(f"there is no operation {verb} {parts.path}")
        return 404, {"message": "Not Found"}
    forge.description.check_request(operation, parts.query, body)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    values = {name: unquote(value) for name, value in operation.values.items()}
    status, made = forge.answer(operation, Request(values, query, body))
    forge.description.check_answer(operation, status, made)
    return status, made


_Answer = Callable[[ForgeServer, Request], Any]


def _page(request: Request, items: list[Any], *, most: int = 100) -> list[Any]:
    """Return a page; a forge never sends more entries than its limit, whatever is asked for."""
    size = min(int(request.query.get("per_page") or request.query.get("limit") or 20), most)
    first = (int(request.query.get("page", 1)) - 1) * size
    return items[first : first + size]


def _found(forge: ForgeServer, request: Request) -> RemotePullRequest:
    return forge.people.pull_requests[request.number]


def _created(
    forge: ForgeServer, *, head: str, base: str, title: str, body: str, draft: bool
) -> RemotePullRequest:
    """Open it; `head` is a branch, at GitHub and Forgejo also `OWNER:BRANCH` of a fork."""
    owner, _, branch = head.rpartition(":")
    new = NewPullRequest(branch, base, title, body, draft)
    return forge.people.open_from_fork(new, f"{owner}/shop") if owner else forge.people.open(new)


def _open_ones(forge: ForgeServer, head: str, base: str) -> list[RemotePullRequest]:
    """Return the open pull requests of these branches, whichever repository has the first."""
    found = [forge.people.pull_requests[n] for n, at in forge.people.branches.items() if at == (head, base)]
    return [one for one in found if one.state == PullRequestState.OPEN]


def _head_of(forge: ForgeServer, pull: RemotePullRequest) -> str:
    return forge.people.forks.get(pull.number, REPOSITORY)


def _written(forge: ForgeServer, request: Request) -> list[tuple[int, RemoteComment]]:
    return list(enumerate(forge.people.written.get(request.number, []), start=1))


def _first_of(forge: ForgeServer, request: Request, comment: RemoteComment) -> int:
    """Return the id of the first comment of the discussion."""
    return next(id for id, one in _written(forge, request) if one.discussion == comment.discussion)


# GitHub.


def _hub_user(forge: ForgeServer, name: str) -> Any:
    return forge.description.example("simple-user", login=name) if name else None


def _hub_pull(forge: ForgeServer, pull: RemotePullRequest) -> Any:
    made = forge.description.example("pull-request")
    head = {**made["head"], "sha": pull.head_commit or _COMMIT, "ref": forge.people.branches[pull.number][0]}
    merged = pull.state == PullRequestState.MERGED
    return {
        **made,
        "number": pull.number,
        "html_url": pull.url,
        "title": pull.title,
        "body": pull.body,
        "draft": pull.draft,
        "state": "open" if pull.state == PullRequestState.OPEN else "closed",
        "merged": merged,
        "merged_at": "2026-05-03T09:00:00Z" if merged else None,
        "head": head,
        "merged_by": _hub_user(forge, pull.ended_by) if merged else None,
    }


def _hub_pulls(forge: ForgeServer, request: Request) -> Any:
    owner, _, head = request.query["head"].partition(":")
    found = [
        _hub_simple(forge, one)
        for one in _open_ones(forge, head, request.query["base"])
        if _head_of(forge, one).split("/")[0] == owner
    ]
    return _page(request, found)


def _hub_simple(forge: ForgeServer, pull: RemotePullRequest) -> Any:
    whole = _hub_pull(forge, pull)
    simple = forge.description.example("pull-request-simple")
    return {**simple, **{name: whole[name] for name in simple if name in whole}, "draft": whole["draft"]}


def _hub_open(forge: ForgeServer, request: Request) -> Any:
    return _hub_pull(forge, _created(forge, **request.body))


def _hub_update(forge: ForgeServer, request: Request) -> Any:
    return _hub_pull(forge, forge.people.update(request.number, body=request.body["body"]))


def _hub_reviewers(forge: ForgeServer, request: Request) -> Any:
    forge.people.request_reviews(request.number, tuple(request.body["reviewers"]))
    return _hub_simple(forge, _found(forge, request))


def _hub_comment(forge: ForgeServer, request: Request, id: int, comment: RemoteComment) -> Any:
    first = _first_of(forge, request, comment)
    values = {
        "id": id,
        "user": _hub_user(forge, comment.author),
        "body": comment.text,
        "path": comment.path,
        "line": comment.line,
        "start_line": comment.first_line,
        "commit_id": comment.commit or _COMMIT,
        "original_commit_id": comment.commit or _COMMIT,
        "side": "LEFT" if comment.old_side else "RIGHT",
        "subject_type": "line" if comment.line else "file",
        **({"in_reply_to_id": first} if first != id else {}),
    }
    return forge.description.example("pull-request-review-comment", **values)


def _hub_comments(forge: ForgeServer, request: Request) -> Any:
    rows = [_hub_comment(forge, request, id, one) for id, one in _written(forge, request) if one.path]
    return _page(request, rows)


def _hub_reply(forge: ForgeServer, request: Request) -> Any:
    asked = forge.people.written[request.number][int(request.values["comment_id"]) - 1]
    forge.people.reply(request.number, asked, request.body["body"])
    id, comment = _written(forge, request)[-1]
    return _hub_comment(forge, request, id, comment)


def _hub_issue_comments(forge: ForgeServer, request: Request) -> Any:
    rows = [
        forge.description.example("issue-comment", id=id, user=_hub_user(forge, one.author), body=one.text)
        for id, one in _written(forge, request)
        if not one.path and one.id not in forge.people.reviews
    ]
    return _page(request, rows)


def _hub_reviews(forge: ForgeServer, request: Request) -> Any:
    """Besides those with a text: one that is not sent yet, and one that only has comments on lines."""
    user, at = _hub_user(forge, "octocat"), "2026-05-03T09:00:00Z"
    rows = [
        {"id": 9001, "user": user, "body": "Not sent.", "state": "PENDING"},
        {"id": 9002, "user": user, "body": "", "state": "COMMENTED", "submitted_at": at},
    ]
    for id, one in _written(forge, request):
        if one.id in forge.people.reviews:
            by = _hub_user(forge, one.author)
            rows.append({"id": id, "user": by, "body": one.text, "state": "APPROVED", "submitted_at": at})
    return _page(request, [forge.description.example("pull-request-review", **row) for row in rows])


def _hub_issue_comment(forge: ForgeServer, request: Request) -> Any:
    forge.people.comment(request.number, request.body["body"], author="cat-herder[bot]")
    return _hub_issue_comments(forge, Request(request.values, {"per_page": "100"}, None))[-1]


def _hub_issue(forge: ForgeServer, request: Request) -> Any:
    found = _found(forge, request)
    return forge.description.example("issue", closed_by=_hub_user(forge, found.ended_by))


_HUB_RUNS = {
    CheckState.PENDING: ("in_progress", None),
    CheckState.PASSED: ("completed", "success"),
    CheckState.FAILED: ("completed", "failure"),
    CheckState.SKIPPED: ("completed", "skipped"),
}


def _hub_runs(forge: ForgeServer, request: Request) -> Any:
    runs = []
    for check in forge.people.results.get(request.values["ref"], []):
        if _is_hub_status(check):
            continue
        status, conclusion = _HUB_RUNS[check.state]
        values = {"name": check.name, "html_url": check.url, "status": status, "conclusion": conclusion}
        runs.append(forge.description.example("check-run", **values))
    return {"total_count": len(runs), "check_runs": _page(request, runs)}


_HUB_STATUSES = {
    CheckState.PENDING: "pending",
    CheckState.PASSED: "success",
    CheckState.FAILED: "failure",
}


def _is_hub_status(check: RemoteCheck) -> bool:
    """Some services report statuses, by the older of GitHub's two ways, which has no skipped ones."""
    return check.name.startswith("ci/") and check.state in _HUB_STATUSES


def _hub_status(forge: ForgeServer, request: Request) -> Any:
    rows = [
        forge.description.example(
            "simple-commit-status",
            context=one.name, state=_HUB_STATUSES[one.state], target_url=one.url,
        )
        for one in forge.people.results.get(request.values["ref"], [])
        if _is_hub_status(one)
    ]  # fmt: skip
    return forge.description.example("combined-commit-status", statuses=_page(request, rows))


_HUB = "/repos/{owner}/{repo}"
_GITHUB: dict[str, _Answer] = {
    f"GET {_HUB}/pulls": _hub_pulls,
    f"POST {_HUB}/pulls": _hub_open,
    f"GET {_HUB}/pulls/{{pull_number}}": lambda forge, request: _hub_pull(forge, _found(forge, request)),
    f"PATCH {_HUB}/pulls/{{pull_number}}": _hub_update,
    f"POST {_HUB}/pulls/{{pull_number}}/requested_reviewers": _hub_reviewers,
    f"GET {_HUB}/pulls/{{pull_number}}/comments": _hub_comments,
    f"GET {_HUB}/pulls/{{pull_number}}/reviews": _hub_reviews,
    f"POST {_HUB}/pulls/{{pull_number}}/comments/{{comment_id}}/replies": _hub_reply,
    f"GET {_HUB}/issues/{{issue_number}}/comments": _hub_issue_comments,
    f"POST {_HUB}/issues/{{issue_number}}/comments": _hub_issue_comment,
    f"GET {_HUB}/issues/{{issue_number}}": _hub_issue,
    f"GET {_HUB}/commits/{{ref}}/check-runs": _hub_runs,
    f"GET {_HUB}/commits/{{ref}}/status": _hub_status,
    f"GET {_HUB}/installation": lambda forge, request: forge.description.example("installation", id=7),
    "POST /app/installations/{installation_id}/access_tokens": lambda forge, request: (
        forge.description.example(
            "installation-token", token=f"{TOKEN}-of-{request.values['installation_id']}"
        )
    ),
}


# GitLab.


def _lab_user(forge: ForgeServer, name: str) -> Any:
    if not name:
        return None
    return {
        "id": len(name),
        "username": name,
        "name": name.title(),
        "state": "active",
        "locked": False,
        "avatar_url": None,
        "web_url": f"https://forge.example.org/{name}",
    }


def _lab_request(forge: ForgeServer, pull: RemotePullRequest) -> Any:
    head, base = forge.people.branches[pull.number]
    merged = pull.state == PullRequestState.MERGED
    by = _lab_user(forge, pull.ended_by)
    return {
        "id": 100 + pull.number,
        "iid": pull.number,
        "project_id": _PROJECTS[REPOSITORY],
        "created_at": _THEN,
        "updated_at": _THEN,
        "author": _lab_user(forge, "herder"),
        "labels": [],
        "title": f"Draft: {pull.title}" if pull.draft else pull.title,
        "description": pull.body,
        "web_url": pull.url,
        "sha": pull.head_commit or _COMMIT,
        "draft": pull.draft,
        "state": {"open": "opened"}.get(pull.state, str(pull.state)),
        "source_branch": head,
        "target_branch": base,
        "source_project_id": _PROJECTS[_head_of(forge, pull)],
        "target_project_id": _PROJECTS[REPOSITORY],
        "merged_by": by if merged else None,
        "merge_user": by if merged else None,
        "merged_at": _THEN if merged else None,
        "closed_at": _THEN if pull.state == PullRequestState.CLOSED else None,
        "closed_by": None if merged else by,
        "reviewers": [_lab_user(forge, name) for name in forge.people.reviewers.get(pull.number, [])],
    }


def _lab_requests(forge: ForgeServer, request: Request) -> Any:
    found = _open_ones(forge, request.query["source_branch"], request.query["target_branch"])
    return _page(request, [_lab_request(forge, one) for one in found])


def _lab_open(forge: ForgeServer, request: Request) -> Any:
    title = request.body["title"]
    draft = title.startswith("Draft: ")
    source = request.values["id"]
    assert request.body.get("target_project_id", _PROJECTS[source]) == _PROJECTS[REPOSITORY]
    owner = "" if source == REPOSITORY else f"{source.split('/')[0]}:"
    made = _created(
        forge,
        head=f"{owner}{request.body['source_branch']}",
        base=request.body["target_branch"],
        title=title.removeprefix("Draft: "),
        body=request.body["description"],
        draft=draft,
    )
    return _lab_request(forge, made)


def _lab_change(forge: ForgeServer, request: Request) -> Any:
    if "description" in request.body:
        forge.people.update(request.number, body=request.body["description"])
    if "reviewer_ids" in request.body:
        names = {len(name): name for name in ("octocat", "ann")}
        forge.people.reviewers[request.number] = [names[id] for id in request.body["reviewer_ids"]]
    return _lab_request(forge, _found(forge, request))


def _lab_note(forge: ForgeServer, id: int, comment: RemoteComment) -> Any:
    made = {
        "id": id,
        "type": "DiffNote" if comment.path else None,
        "body": comment.text,
        "system": False,
        "author": _lab_user(forge, comment.author),
        "created_at": _THEN,
    }
    if comment.path:
        made["position"] = {
            "base_sha": _OLD,
            "start_sha": _OLD,
            "head_sha": comment.commit or _COMMIT,
            "position_type": "text",
            "old_path": comment.path,
            "new_path": comment.path,
            "old_line": comment.line if comment.old_side else None,
            "new_line": None if comment.old_side else comment.line,
        }
    return made


def _lab_discussions(forge: ForgeServer, request: Request) -> Any:
    found: dict[str, list[Any]] = {}
    for id, comment in _written(forge, request):
        found.setdefault(comment.discussion, []).append(_lab_note(forge, id, comment))
    system = {**_lab_note(forge, 999, RemoteComment("", "", "octocat", "changed the title")), "system": True}
    whole = [*found.items(), ("system", [system])]
    return _page(request, [{"id": id, "individual_note": False, "notes": notes} for id, notes in whole])


def _lab_reply(forge: ForgeServer, request: Request) -> Any:
    written = forge.people.written[request.number]
    asked = next(one for one in written if one.discussion == request.values["discussion_id"])
    forge.people.reply(request.number, asked, request.body["body"])
    return _lab_note(forge, *_written(forge, request)[-1])


_LAB_STATES = {
    CheckState.PENDING: "running",
    CheckState.PASSED: "success",
    CheckState.FAILED: "failed",
    CheckState.SKIPPED: "skipped",
}


def _lab_statuses(forge: ForgeServer, request: Request) -> Any:
    def shown(check: RemoteCheck) -> Any:
        return {
            "id": 1,
            "sha": request.values["sha"],
            "status": _LAB_STATES[check.state],
            "name": check.name,
            "target_url": check.url,
            "ref": "work",
            "description": None,
            "created_at": _THEN,
            "started_at": _THEN,
            "finished_at": None,
            "coverage": None,
            "pipeline_id": 1,
            "author": _lab_user(forge, "herder"),
            "allow_failure": False,
        }

    return _page(request, [shown(one) for one in forge.people.results.get(request.values["sha"], [])])


def _lab_users(forge: ForgeServer, request: Request) -> Any:
    name = request.query["username"]
    return [_lab_user(forge, name)] if name in ("octocat", "ann") else []


_LAB = "/projects/{id}"
_GITLAB: dict[str, _Answer] = {
    f"GET {_LAB}": lambda forge, request: {"id": _PROJECTS[request.values["id"]]},
    f"GET {_LAB}/merge_requests": _lab_requests,
    f"POST {_LAB}/merge_requests": _lab_open,
    f"GET {_LAB}/merge_requests/{{merge_request_iid}}": lambda forge, request: _lab_request(
        forge, _found(forge, request)
    ),
    f"PUT {_LAB}/merge_requests/{{merge_request_iid}}": _lab_change,
    f"GET {_LAB}/merge_requests/{{merge_request_iid}}/discussions": _lab_discussions,
    f"POST {_LAB}/merge_requests/{{merge_request_iid}}/discussions/{{discussion_id}}/notes": _lab_reply,
    f"GET {_LAB}/repository/commits/{{sha}}/statuses": _lab_statuses,
    "GET /users": _lab_users,
}


# Forgejo.


def _jo_user(forge: ForgeServer, name: str) -> Any:
    return {"id": len(name), "login": name}


def _jo_pull(forge: ForgeServer, pull: RemotePullRequest) -> Any:
    head, base = forge.people.branches[pull.number]
    merged = pull.state == PullRequestState.MERGED
    made = {
        "id": pull.number,
        "number": pull.number,
        "html_url": pull.url,
        "body": pull.body,
        "merged": merged,
        "title": f"WIP: {pull.title}" if pull.draft else pull.title,
        "state": "open" if pull.state == PullRequestState.OPEN else "closed",
        "head": {
            "ref": head,
            "sha": pull.head_commit or _COMMIT,
            "repo": {"full_name": _head_of(forge, pull)},
        },
        "base": {"ref": base, "sha": _OLD},
    }
    return {**made, "merged_by": _jo_user(forge, pull.ended_by)} if merged else made


def _jo_pulls(forge: ForgeServer, request: Request) -> Any:
    wanted = [one for one in forge.people.pull_requests.values() if one.state == PullRequestState.OPEN]
    return _jo_page(request, [_jo_pull(forge, one) for one in wanted])


def _jo_page(request: Request, items: list[Any]) -> list[Any]:
    return _page(request, items, most=50)


def _jo_open(forge: ForgeServer, request: Request) -> Any:
    title = request.body.pop("title")
    draft = title.startswith("WIP: ")
    return _jo_pull(forge, _created(forge, **request.body, title=title.removeprefix("WIP: "), draft=draft))


def _jo_update(forge: ForgeServer, request: Request) -> Any:
    return _jo_pull(forge, forge.people.update(request.number, body=request.body["body"]))


def _jo_reviewers(forge: ForgeServer, request: Request) -> Any:
    forge.people.request_reviews(request.number, tuple(request.body["reviewers"]))
    return []


def _jo_reviews(forge: ForgeServer, request: Request) -> Any:
    """Each comment on a line is a review of its own. One review is not sent yet."""
    rows: list[Any] = [
        {"id": 9001, "user": _jo_user(forge, "octocat"), "body": "Not sent.", "state": "PENDING"}
    ]
    for id, one in _written(forge, request):
        user = _jo_user(forge, one.author)
        if one.path:
            rows.append({"id": id, "user": user, "body": "", "state": "COMMENT", "comments_count": 1})
        elif one.id in forge.people.reviews:
            rows.append({"id": id, "user": user, "body": one.text, "state": "APPROVED", "comments_count": 0})
    return _jo_page(request, rows)


def _jo_review_comments(forge: ForgeServer, request: Request) -> Any:
    id = int(request.values["id"])
    comment = forge.people.written[request.number][id - 1]
    at = (
        {"original_position": comment.line, "original_commit_id": _OLD}
        if comment.old_side
        else {
            "position": comment.line,
            "commit_id": comment.commit or _COMMIT,
        }
    )
    made = {"id": id, "user": _jo_user(forge, comment.author), "body": comment.text, "path": comment.path}
    return [{**made, **at}]


def _jo_review(forge: ForgeServer, request: Request) -> Any:
    wanted = request.body["comments"][0]
    line = wanted.get("new_position") or wanted.get("old_position")
    asked = next(
        one for one in forge.people.written[request.number] if (one.path, one.line) == (wanted["path"], line)
    )
    forge.people.reply(request.number, asked, wanted["body"])
    return {"id": len(forge.people.written[request.number]), "state": "COMMENT"}


def _jo_comments(forge: ForgeServer, request: Request) -> Any:
    return [
        {"id": id, "user": _jo_user(forge, one.author), "body": one.text}
        for id, one in _written(forge, request)
        if not one.path and one.id not in forge.people.reviews
    ]


def _jo_comment(forge: ForgeServer, request: Request) -> Any:
    forge.people.comment(request.number, request.body["body"], author="cat-herder[bot]")
    return _jo_comments(forge, request)[-1]


_JO_STATES = {
    CheckState.PENDING: "pending",
    CheckState.PASSED: "success",
    CheckState.FAILED: "failure",
    CheckState.SKIPPED: "skipped",
}


def _jo_status(forge: ForgeServer, request: Request) -> Any:
    results = forge.people.results.get(request.values["ref"], [])
    return {
        "sha": request.values["ref"],
        "statuses": [
            {"context": one.name, "status": _JO_STATES[one.state], "target_url": one.url}
            for one in _jo_page(request, results)
        ],
    }


_FORGEJO: dict[str, _Answer] = {
    f"GET {_HUB}/pulls": _jo_pulls,
    f"POST {_HUB}/pulls": _jo_open,
    f"GET {_HUB}/pulls/{{index}}": lambda forge, request: _jo_pull(forge, _found(forge, request)),
    f"PATCH {_HUB}/pulls/{{index}}": _jo_update,
    f"POST {_HUB}/pulls/{{index}}/requested_reviewers": _jo_reviewers,
    f"GET {_HUB}/pulls/{{index}}/reviews": _jo_reviews,
    f"POST {_HUB}/pulls/{{index}}/reviews": _jo_review,
    f"GET {_HUB}/pulls/{{index}}/reviews/{{id}}/comments": _jo_review_comments,
    f"GET {_HUB}/issues/{{index}}/comments": _jo_comments,
    f"POST {_HUB}/issues/{{index}}/comments": _jo_comment,
    f"GET {_HUB}/commits/{{ref}}/status": _jo_status,
}
