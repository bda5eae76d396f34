"""Many answers posted at once while agents run: `python -m tests.bench.answering`, also with `--postgres`.

The questions are of tasks that halted; their agent is the fake one. When all of them are open, four other
tasks take the worker's four slots, and their agents write events as busy agents do. Then each question is
answered by the form of its card, as a browser sends it: 20 people with a session each, and for each answer a
connection that is open already. The floor is the same request to an application that stores as many rows in
one transaction of the same database, while the same agents run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.bench import processes
from tests.bench.fake_portal import FakePortal, fake_portal
from tests.bench.floors.bare_server import BareServer
from tests.bench.metrics import Metric, quantile, show
from tests.bench.services import own_services

PEOPLE = 20
AGENTS = 4
#: Answers before those that are measured, because some things are loaded only once; and answers one by one.
FIRST, ALONE = 5, 15
#: Events a second of each agent, and seconds after which it would end by itself.
WRITING = "write 20 600 1"
SESSIONS = """
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
project = Project.objects.get(name="bench")
result = []
for number in range(%d):
    user = User.objects.create(username=f"person-{number}", password="!")
    Membership.objects.create(user=user, project=project, role="member")
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    result.append(session.session_key)
"""
OPEN = "result = list(Question.objects.filter(state='open').order_by('pk').values_list('pk', flat=True))"
#: Of each answered question: its answer, and how often the audit log and the log of its run have it.
STORED = """
result = {}
for question in Question.objects.filter(pk__in=%r):
    entries = AuditEntry.objects.filter(task=question.task, action=Action.ANSWERED)
    events = question.run.events.filter(kind=EventKind.ANSWER)
    result[str(question.pk)] = [question.answer_text, entries.count(), events.count()]
"""
#: The task of a question, and how many rows an answer to it inserts, changes and removes.
ROWS = """
from django.db import transaction
from tasks_app.permissions import Principal
from tasks_app.services.questions.answers import Reply, answer_question
from tests.bench.floors.statements import counting_rows
question = Question.objects.get(pk=%d)
admin = Principal.unrestricted(User.objects.get(username="admin"))
with transaction.atomic(), counting_rows() as counted:
    answer_question(question, Reply.to(question, "Left."), by=admin, via=Channel.WEB)
    transaction.set_rollback(True)
result = [question.task_id, sum(counted)]
"""
TOKEN = "t" * 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=200, help="that are posted at once (200)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--postgres", action="store_true", help="rows in PostgreSQL, with Redis")
    chosen = parser.parse_args()
    with ExitStack() as cleanup:
        services = cleanup.enter_context(own_services()) if chosen.postgres else {}
        show(measure(chosen.rounds, answers=chosen.answers, **services))


def measure(rounds: int, *, answers: int = 200, **services: str) -> list[Metric]:
    found = _Figures(answers)
    with tempfile.TemporaryDirectory() as folder, fake_portal(Path(folder), services) as running:
        sessions = running.portal.rows(SESSIONS % PEOPLE)
        for _ in range(rounds):
            posts = _opened(running, sessions, FIRST + ALONE + answers)
            task, rows = running.portal.rows(ROWS % posts[0].question)
            with BareServer.storing(running.portal.database_url, task=task, rows=rows) as bare:
                found.rows = rows
                _round(running, bare, posts, found)
            _require_stored_once(running, posts)
            running.cancel_all()
    return found.metrics


def _round(running: FakePortal, bare: BareServer, posts: Sequence[_Post], found: _Figures) -> None:
    portal = _Answerer(running.portal.url.removeprefix("http://"), running.web_server)
    floor = _Answerer(bare.address, bare.pid)
    for number, post in enumerate(posts[: FIRST + ALONE]):
        for answerer, metrics in ((portal, found.portal), (floor, found.floor)):
            took = answerer.post([post])
            metrics.alone.samples += took if number >= FIRST else []
    events, began = _events(running), time.monotonic()
    portal.post_at_once(posts[FIRST + ALONE :], found.portal)
    found.written.samples.append((_events(running) - events) / (time.monotonic() - began))
    floor.post_at_once(posts[FIRST + ALONE :], found.floor)


class _Took:
    """How long answers take: `alone`, and `each` of many at once with what follows from it."""

    def __init__(self, alone: Metric, each: Metric, indent: str = "  ") -> None:
        self.alone, self.each = alone, each
        self.high = Metric(f"{indent}p95 of a round", "ms")
        self.last = Metric(f"{indent}the last one of a round", "ms")
        self.used = Metric(f"{indent}CPU time of the web server for each", "ms")

    @property
    def all(self) -> list[Metric]:
        return [self.alone, self.each, self.high, self.last, self.used]


class _Figures:
    """What is measured, with the floors. `rows` is what an answer stores, once that is known."""

    rows = 0

    def __init__(self, answers: int) -> None:
        running = f"while {AGENTS} agents run"
        self.portal = _Took(
            Metric(f"one answer alone {running}: stored and shown", "ms"),
            Metric(f"{answers} answers at once {running}: stored and shown", "ms"),
        )
        self.portal.high.wanted = "200"
        self.floor = _Took(Metric("", "ms"), Metric("", "ms"), "  floor: ")
        for metric, floor in zip(self.portal.all, self.floor.all, strict=True):
            metric.floor = [floor]
        self.written = Metric("  events of the agents meanwhile", "/s")

    @property
    def metrics(self) -> list[Metric]:
        what = f"floor: {{}} without the portal, {self.rows} rows each"
        self.floor.alone.name, self.floor.each.name = what.format("one POST"), what.format("as many POSTs")
        return [*self.portal.all, self.written, *self.floor.all]


def _opened(running: FakePortal, sessions: list[str], count: int) -> list[_Post]:
    """Return the answers to so many open questions, while the agents of other tasks run."""
    running.until_in("waiting_for_input", running.start_tasks(count, "ask"))
    running.until_in("running", running.start_tasks(AGENTS, WRITING))
    time.sleep(2)  # the runs have begun, and the people of the questions are told
    address = running.portal.url.removeprefix("http://")
    posts = [
        _Post.of(question, sessions[number % len(sessions)], address)
        for number, question in enumerate(running.portal.rows(OPEN))
    ]
    assert len(posts) == count, f"{len(posts)} of {count} questions are open"
    return posts


def _require_stored_once(running: FakePortal, posts: list[_Post]) -> None:
    stored = running.portal.rows(STORED % [post.question for post in posts])
    assert stored == {str(post.question): [post.answer, 1, 1] for post in posts}, stored


def _events(running: FakePortal) -> int:
    return int(running.row("SELECT count(*) FROM tasks_app_event WHERE kind = 'text'")[0])


@dataclass(frozen=True)
class _Post:
    """An answer, and the request that sends it."""

    question: int
    answer: str
    request: bytes

    @classmethod
    def of(cls, question: int, session: str, address: str) -> _Post:
        answer = f"Left, as in question {question}."
        fields = {"known": question, "item-0": "", "item-0-other": answer, "notes": "", "remember": "task"}
        body = urlencode(fields).encode()
        head = (
            f"POST /questions/{question}/answer/ HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n"
            f"Cookie: sessionid={session}; csrftoken={TOKEN}\r\nX-CSRFToken: {TOKEN}\r\nHX-Request: true\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return cls(question, answer, head.encode() + body)


@dataclass(frozen=True)
class _Answerer:
    """A web server that takes answers: its address and its process."""

    address: str
    pid: int

    def post(self, posts: Sequence[_Post]) -> list[float]:
        """Send all of them at once; return the milliseconds until the whole response of each was there."""
        return asyncio.run(_post_all(posts, self.address))

    def post_at_once(self, posts: Sequence[_Post], found: _Took) -> None:
        cpu = processes.cpu_seconds(self.pid)
        took = self.post(posts)
        found.used.samples.append((processes.cpu_seconds(self.pid) - cpu) / len(posts) * 1000)
        found.each.samples += took
        found.high.samples.append(quantile(took, 0.95))
        found.last.samples.append(max(took))


async def _post_all(posts: Sequence[_Post], address: str) -> list[float]:
    host, _, port = address.rpartition(":")
    connections = [await asyncio.open_connection(host, int(port)) for _ in posts]
    try:
        for reader, writer in connections:  # as in a browser that has fetched the page with the card
            writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            await _response(reader)
        sent = time.perf_counter()
        for (_, writer), post in zip(connections, posts, strict=True):
            writer.write(post.request)
        arrived = await asyncio.gather(*(_response(reader) for reader, _ in connections))
        return [(moment - sent) * 1000 for moment in arrived]
    finally:
        for _, writer in connections:
            writer.close()


async def _response(reader: asyncio.StreamReader) -> float:
    """Return when the whole response was there."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:"))
    body = (await reader.readexactly(length)).decode()
    assert " 200 " in head.splitlines()[0], head + body
    return time.perf_counter()


if __name__ == "__main__":
    main()
