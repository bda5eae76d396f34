"""One suite for all forges (V7): the fake, and the adapters against servers that check each word."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tasks_app.core.allowed_networks import IpAddressRefused
from tasks_app.forges import http
from tasks_app.forges.github import AppKey, installation_token
from tasks_app.forges.port import (
    CheckState,
    Forge,
    ForgeAddress,
    ForgeError,
    ForgeKind,
    NewPullRequest,
    PullRequestState,
    connect,
)
from tests.forges.fake import FakeForge
from tests.forges.servers import FORK, LOOPBACK, REPOSITORY, TOKEN, ForgeServer, forge_server

NEW = NewPullRequest("work", "main", "Paint it", "In some colour.")


@dataclass
class Both:
    """A forge, and what people do there."""

    forge: Forge
    people: FakeForge


@pytest.fixture(params=["fake", *ForgeKind])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    if request.param == "fake":
        fake = FakeForge()
        yield Both(fake, fake)
        return
    with forge_server(ForgeKind(request.param)) as server:
        yield Both(server.forge, server.people)
        assert server.description.problems == []


@pytest.fixture(params=list(ForgeKind))
def server(request: pytest.FixtureRequest) -> Iterator[ForgeServer]:
    with forge_server(request.param) as made:
        yield made


def test_a_pull_request_is_opened_and_found(both: Both) -> None:
    made = both.forge.open(NEW)
    assert (made.number, made.state, made.draft) == (1, PullRequestState.OPEN, False)
    assert (made.title, made.body) == ("Paint it", "In some colour.")
    assert both.forge.find("work", "main") == both.forge.read(1) == made
    assert both.forge.find("other", "main") is None


def test_it_can_be_a_draft_whose_title_is_as_it_was(both: Both) -> None:
    made = both.forge.open(replace(NEW, draft=True))
    assert (made.draft, made.title) == (True, "Paint it")


def test_its_description_is_replaced(both: Both) -> None:
    both.forge.open(NEW)
    assert both.forge.update(1, body="In blue.").body == both.people.pull_requests[1].body == "In blue."


def test_reviewers_are_asked_besides_those_asked_before(both: Both) -> None:
    both.forge.open(NEW)
    both.forge.request_reviews(1, ("octocat",))
    both.forge.request_reviews(1, ("ann",))
    assert both.people.reviewers[1] == ["octocat", "ann"]


def test_comments_come_with_their_places_and_discussions(both: Both) -> None:
    both.forge.open(NEW)
    line = both.people.comment(1, "Why?", path="paint.txt", line=2, commit="a" * 40)
    both.people.comment(
        1, "Yes, why?", author="ann", path="paint.txt", line=2, commit="a" * 40, discussion=line.discussion
    )
    both.people.comment(1, "Nice.")
    found = {comment.text: comment for comment in both.forge.comments(1)}
    first, second, whole = found["Why?"], found["Yes, why?"], found["Nice."]
    assert (first.path, first.line, first.commit, first.author) == ("paint.txt", 2, "a" * 40, "octocat")
    assert second.discussion == first.discussion != whole.discussion
    assert (second.author, whole.path, whole.line) == ("ann", "", None)
    assert len({comment.id for comment in found.values()}) == 3


def test_a_comment_on_a_removed_line_is_on_the_old_side(both: Both) -> None:
    both.forge.open(NEW)
    both.people.comment(1, "Keep it.", path="paint.txt", line=1, old_side=True)
    (found,) = both.forge.comments(1)
    assert (found.old_side, found.line) == (True, 1)


def test_many_comments_are_all_read(both: Both) -> None:
    both.forge.open(NEW)
    for number in range(120):
        both.people.comment(1, f"Comment {number}")
    assert len(both.forge.comments(1)) == 120


def test_texts_of_reviews_are_comments_on_the_whole(both: Both) -> None:
    both.forge.open(NEW)
    both.people.review(1, "Good.", author="ann")
    (found,) = both.forge.comments(1)
    assert (found.text, found.author, found.path) == ("Good.", "ann", "")


def test_of_many_reviews_all_are_read(both: Both) -> None:
    both.forge.open(NEW)
    for number in range(120):
        both.people.review(1, f"Review {number}")
    assert len({comment.id for comment in both.forge.comments(1)}) == 120


def test_a_pull_request_is_found_among_many(both: Both) -> None:
    for number in range(60):
        both.people.open(replace(NEW, head=f"work-{number}"))
    both.people.open(NEW)
    found = both.forge.find("work", "main")
    assert found is not None and found.number == 61


def test_a_branch_of_the_same_name_in_a_strangers_fork_is_another(both: Both) -> None:
    """Else its description would be replaced, and its end would be that of the task."""
    both.people.open_from_fork(NEW, "stranger/shop")
    assert both.forge.find("work", "main") is None
    made = both.forge.open(NEW)
    found = both.forge.find("work", "main")
    assert found is not None and found.number == made.number == 2


def test_a_pull_request_can_come_from_a_fork(server: ForgeServer) -> None:
    server.people.open(NEW)
    server.people.open_from_fork(NEW, "stranger/shop")
    forge = server.connect(fork=FORK)
    assert forge.find("work", "main") is None
    made = forge.open(NEW)
    assert server.people.forks[made.number] == FORK and server.people.branches[made.number] == (
        "work",
        "main",
    )
    assert forge.find("work", "main") == made == forge.read(3)
    assert forge.update(3, body="In blue.").body == "In blue."
    server.people.report("a" * 40, "tests", CheckState.PASSED)
    assert [check.name for check in forge.checks("a" * 40)] == ["tests"]
    assert server.description.problems == []


def test_a_fork_of_the_same_owner_is_named_to_github() -> None:
    with forge_server(ForgeKind.GITHUB) as server:
        made = server.description.example("pull-request", number=1)
        server.answers = [(201, {}, _json(made))]
        server.connect(fork="team/shop-fork").open(NEW)
        assert server.bodies[-1]["head"] == "team:work" and server.bodies[-1]["head_repo"] == "shop-fork"


def test_a_discussion_in_a_long_path_has_a_name_that_can_be_stored(both: Both) -> None:
    both.forge.open(NEW)
    path = f"{'deep/' * 60}paint"
    first = both.people.comment(1, "Why?", path=f"{path}.txt", line=2, commit="a" * 40)
    both.people.comment(1, "Why?", path=f"{path}.txt", line=2, commit="a" * 40, discussion=first.discussion)
    both.people.comment(1, "And here?", path=f"{path}.css", line=2, commit="a" * 40)
    names = [comment.discussion for comment in both.forge.comments(1)]
    assert all(len(name) <= 200 for name in names)
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("path", ["paint.txt", ""])
def test_a_reply_joins_the_discussion(both: Both, path: str) -> None:
    both.forge.open(NEW)
    both.people.comment(1, "Why?", path=path, line=2 if path else None, commit="a" * 40 if path else "")
    (asked,) = both.forge.comments(1)
    made = both.forge.reply(1, asked, "Because.")
    answer = next(comment for comment in both.forge.comments(1) if comment.id == made)
    assert answer.text == "Because."
    if path:
        assert answer.discussion == asked.discussion


@pytest.mark.parametrize("state", [PullRequestState.MERGED, PullRequestState.CLOSED])
def test_how_it_ended_and_by_whom(both: Both, state: PullRequestState) -> None:
    both.forge.open(NEW)
    both.people.end(1, state, by="ann")
    found = both.forge.read(1)
    # Forgejo does not say who closed a pull request.
    unknown = both.forge.kind == ForgeKind.FORGEJO and state == PullRequestState.CLOSED
    assert (found.state, found.ended_by) == (state, "" if unknown else "ann")
    assert both.forge.find("work", "main") is None


def test_results_of_ci(both: Both) -> None:
    for state in CheckState:
        both.people.report("a" * 40, f"job {state}", state)
        both.people.report("a" * 40, f"ci/{state}", state)
    found = both.forge.checks("a" * 40)
    assert {check.name: check.state for check in found} == {
        f"{prefix}{state}": state for state in CheckState for prefix in ("job ", "ci/")
    }
    assert all(check.url.startswith("https://") for check in found)


@pytest.mark.parametrize(
    ("status", "may_fail", "state"),
    [
        ("manual", True, CheckState.SKIPPED),
        ("manual", False, CheckState.PENDING),
        ("failed", True, CheckState.SKIPPED),
        ("failed", False, CheckState.FAILED),
        ("canceled", False, CheckState.SKIPPED),
        ("canceling", False, CheckState.PENDING),
        ("created", False, CheckState.PENDING),
        ("scheduled", False, CheckState.PENDING),
        ("waiting_for_resource", True, CheckState.PENDING),
        ("success", True, CheckState.PASSED),
    ],
)
def test_a_job_of_gitlab_that_need_not_run_does_not_keep_the_checks_waiting(
    status: str, may_fail: bool, state: CheckState
) -> None:
    with forge_server(ForgeKind.GITLAB) as server:
        path = f"/projects/team%2Fshop/repository/commits/{'a' * 40}/statuses"
        job = server.description.example("CommitStatus", status=status, allow_failure=may_fail)
        operation = server.description.operation("GET", path)
        assert operation is not None
        server.description.check_answer(operation, 200, [job])
        server.answers = [(200, {}, _json([job]))]
        assert [check.state for check in server.forge.checks("a" * 40)] == [state]
        assert server.description.problems == []


def test_what_gitlab_does_not_describe_is_a_problem() -> None:
    with forge_server(ForgeKind.GITLAB) as server:
        reading = server.description.operation("GET", "/projects/1/merge_requests/one")
        assert reading is not None
        server.description.check_request(reading, "", None)
        made = server.description.example("MergeRequest", colour="blue")
        server.description.check_answer(reading, 200, made)
        assert len(server.description.problems) == 2
        assert "merge_request_iid" in server.description.problems[0]
        assert "colour" in server.description.problems[1]


@pytest.mark.parametrize("prefix", ["job ", "ci/"])
def test_of_many_results_all_are_read(both: Both, prefix: str) -> None:
    for number in range(120):
        both.people.report("a" * 40, f"{prefix}{number}", CheckState.PASSED)
    assert len({check.name for check in both.forge.checks("a" * 40)}) == 120


_LATER = "Sun, 03 May 2099 09:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": _LATER}, 24 * 3600),
        ({"Retry-After": "Sun, 03 May 2009 09:00:00 GMT"}, 0),
        ({"Retry-After": "9" * 15}, 24 * 3600),
        ({"Retry-After": "soon"}, 60),
        ({"Retry-After": "\xb2"}, 60),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "1"}, 0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 15}, 24 * 3600),
        ({}, 60),
    ],
)
def test_it_is_known_how_long_a_rate_limit_holds(
    server: ForgeServer, headers: dict[str, str], wait: float
) -> None:
    server.answers = [(429, headers, b"{}")]
    with pytest.raises(ForgeError, match="rate limit") as caught:
        server.forge.read(1)
    assert caught.value.retry_after == wait


_TRICKLES = {
    "headers": (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", b" "),
    "body without length": (b"HTTP/1.1 200 OK\r\n\r\n{}", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "TLS": (b"\x16\x03\x03\x40\x00", b"\x02"),
}


@contextmanager
def _slow_server(begin: bytes, piece: bytes) -> Iterator[int]:
    """A server that never ends its answer, and never pauses for long either."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(begin)
                    while True:
                        connection.sendall(piece)
                        time.sleep(0.02)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("trickle", _TRICKLES)
@pytest.mark.parametrize("kind", ForgeKind)
def test_an_answer_that_comes_slowly_is_given_up(
    kind: ForgeKind, trickle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TOTAL_SECONDS", 0.3)
    scheme = "https" if trickle == "TLS" else "http"
    with _slow_server(*_TRICKLES[trickle]) as port:
        forge = connect(
            ForgeAddress(kind, f"{scheme}://127.0.0.1:{port}", REPOSITORY), TOKEN, listed=LOOPBACK
        )
        with pytest.raises(ForgeError, match="did not finish its answer within"):
            forge.read(1)


def test_a_connection_that_opens_after_the_time_limit_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    class Over:
        """A timer whose time is over as soon as it is started."""

        daemon = False

        def __init__(self, seconds: float, function: Callable[[], None]) -> None:
            self.start, self.cancel = function, lambda: None

    monkeypatch.setattr(threading, "Timer", Over)
    sockets = http._Sockets()
    here, there = socket.socketpair()
    with here, there, pytest.raises(http.AnswerTooSlow), sockets.limited():
        there.settimeout(10)
        duplicate = sockets.add(here)
        sockets.remove(duplicate)
        assert there.recv(1) == b""


@pytest.mark.parametrize(
    ("status", "headers", "sent", "said"),
    [
        (401, {}, b'{"message": "Bad credentials"}', "does not accept the project’s token"),
        (403, {}, b'{"message": "Resource not accessible"}', "Resource not accessible"),
        (404, {}, b'{"message": "Not Found"}', "no such repository"),
        (422, {}, b'{"message": "Validation Failed"}', "Validation Failed"),
        (429, {"Retry-After": "120"}, b"{}", "rate limit"),
        (500, {}, b"oops", "answered 500"),
        (200, {}, b"<html>", "cannot be read"),
        (200, {}, b"[]", "cannot be read"),
        (200, {}, b'{"number": null}', "cannot be read"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said(
    server: ForgeServer, status: int, headers: dict[str, str], sent: bytes, said: str
) -> None:
    server.answers = [(status, headers, sent)]
    with pytest.raises(ForgeError, match=said) as caught:
        server.forge.read(1)
    assert TOKEN not in str(caught.value)
    assert (caught.value.retry_after is not None) == (status == 429)


def test_a_wrong_token_is_not_repeated(server: ForgeServer) -> None:
    with pytest.raises(ForgeError, match="store another") as caught:
        server.connect(token="expired-token").read(1)
    assert "expired-token" not in str(caught.value)


def test_an_answer_that_is_unchanged_is_not_sent_again(server: ForgeServer) -> None:
    forge = server.forge
    forge.open(NEW)
    assert forge.read(1) == forge.read(1)
    assert server.statuses[-2:] == [200, 304]
    server.people.update(1, body="In blue.")
    assert (forge.read(1).body, server.statuses[-1]) == ("In blue.", 200)


def test_another_token_gets_no_kept_answer(server: ForgeServer) -> None:
    server.forge.open(NEW)
    server.forge.read(1)
    with pytest.raises(ForgeError, match="token"):
        server.connect(token="of-somebody-else").read(1)


def test_a_host_inside_the_network_must_be_listed(server: ForgeServer) -> None:
    with pytest.raises(ForgeError, match="CATHERDER_WEBHOOK_ALLOW"):
        server.connect(listed=()).read(1)
    assert server.seen == []


def test_a_token_is_not_sent_to_the_internet_in_clear(
    server: ForgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "resolve", lambda host, port, listed: "93.184.216.34")
    with pytest.raises(ForgeError, match="https only"):
        server.forge.read(1)


def test_redirects_are_not_followed_to_another_host(server: ForgeServer) -> None:
    with forge_server(server.kind) as other:
        server.answers = [(302, {"Location": f"{other.url}/stolen"}, b"{}")] * 3
        with pytest.raises(ForgeError):
            server.forge.read(1)
        assert other.seen == []


def test_an_answer_without_end_is_given_up(server: ForgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_ANSWER", 1000)
    server.answers = [(200, {}, b" " * 2000)]
    with pytest.raises(ForgeError, match="cannot be used"):
        server.forge.read(1)


def test_an_app_gets_a_token_for_its_installation() -> None:
    private = rsa.generate_private_key(65537, 2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    with forge_server(ForgeKind.GITHUB) as server:
        made = server.description.example
        server.answers = [
            (200, {}, _json(made("installation", id=7))),
            (201, {}, _json(made("installation-token", token="ghs-short-lived"))),
        ]
        token = installation_token(server.url, REPOSITORY, AppKey("12", pem), listed=LOOPBACK)
    assert token == "ghs-short-lived"
    assert [line.split("?")[0] for line in server.seen] == [
        f"GET /api/v3/repos/{REPOSITORY}/installation",
        "POST /api/v3/app/installations/7/access_tokens",
    ]


def _json(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


def test_the_refusal_of_an_address_is_for_people() -> None:
    assert "inside" in str(http.unreachable("GitHub", IpAddressRefused("it is inside a network")))
