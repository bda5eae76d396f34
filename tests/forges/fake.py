"""A forge in memory, for tests. It holds what a real one would, and does what people do there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tasks_app.forges.port import (
    CheckState,
    ForgeError,
    ForgeKind,
    NewPullRequest,
    PullRequestState,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
)


@dataclass
class FakeForge:
    """`faults` are raised by the next calls, one each; `calls` has the names of all calls."""

    kind: ForgeKind = ForgeKind.GITHUB
    url: str = "https://forge.example.org/team/shop"
    pull_requests: dict[int, RemotePullRequest] = field(default_factory=dict)
    branches: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: Repositories that have the branch, where that is a fork.
    forks: dict[int, str] = field(default_factory=dict)
    reviewers: dict[int, list[str]] = field(default_factory=dict)
    #: Ids of comments that are the text of a review.
    reviews: set[str] = field(default_factory=set)
    written: dict[int, list[RemoteComment]] = field(default_factory=dict)
    results: dict[str, list[RemoteCheck]] = field(default_factory=dict)
    faults: list[ForgeError] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    # The port.

    def find(self, head: str, base: str) -> RemotePullRequest | None:
        self._called("find")
        for number, branches in self.branches.items():
            found = self.pull_requests[number]
            is_own = number not in self.forks
            if is_own and branches == (head, base) and found.state == PullRequestState.OPEN:
                return found
        return None

    def open(self, new: NewPullRequest) -> RemotePullRequest:
        self._called("open")
        number = len(self.pull_requests) + 1
        self.branches[number] = (new.head, new.base)
        self.pull_requests[number] = RemotePullRequest(
            number, f"{self.url}/pull/{number}", PullRequestState.OPEN, new.draft, new.title, new.body, ""
        )
        return self.pull_requests[number]

    def update(self, number: int, *, body: str) -> RemotePullRequest:
        self._called("update")
        return self._change(number, body=body)

    def request_reviews(self, number: int, reviewers: tuple[str, ...]) -> None:
        self._called("request_reviews")
        asked = self.reviewers.setdefault(number, [])
        asked += [name for name in reviewers if name not in asked]

    def read(self, number: int) -> RemotePullRequest:
        self._called("read")
        if number not in self.pull_requests:
            raise ForgeError(f"{self.kind.label} has no pull request {number}.")
        return self.pull_requests[number]

    def comments(self, number: int) -> list[RemoteComment]:
        self._called("comments")
        return list(self.written.get(number, []))

    def checks(self, commit: str) -> list[RemoteCheck]:
        self._called("checks")
        return list(self.results.get(commit, []))

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        self._called("reply")
        answer = replace(comment, id=self._next_id(number), author="cat-herder[bot]", text=text)
        self.written[number].append(answer)
        return answer.id

    # What people and CI do there.

    def comment(self, number: int, text: str, *, author: str = "octocat", **place: object) -> RemoteComment:
        """Write a comment; `place` are fields of RemoteComment, such as `path` and `line`."""
        name = self._next_id(number)
        values: dict[str, object] = {"id": name, "discussion": name, **place}
        made = RemoteComment(author=author, text=text, **values)  # type: ignore[arg-type]
        self.written.setdefault(number, []).append(made)
        return made

    def open_from_fork(self, new: NewPullRequest, fork: str) -> RemotePullRequest:
        made = self.open(new)
        self.forks[made.number] = fork
        return made

    def review(self, number: int, text: str, *, author: str = "octocat") -> RemoteComment:
        """Send a review with this text and without comments on lines."""
        made = self.comment(number, text, author=author)
        self.reviews.add(made.id)
        return made

    def end(self, number: int, state: PullRequestState, *, by: str = "octocat") -> None:
        self._change(number, state=state, ended_by=by)

    def report(self, commit: str, name: str, state: CheckState) -> None:
        """Let CI report a result."""
        others = [check for check in self.results.get(commit, []) if check.name != name]
        self.results[commit] = [*others, RemoteCheck(name, state, f"{self.url}/checks/{name}")]

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.faults:
            raise self.faults.pop(0)

    def _change(self, number: int, **values: object) -> RemotePullRequest:
        self.pull_requests[number] = replace(self.pull_requests[number], **values)  # type: ignore[arg-type]
        return self.pull_requests[number]

    def _next_id(self, number: int) -> str:
        return f"c{len(self.written.get(number, [])) + 1}"
