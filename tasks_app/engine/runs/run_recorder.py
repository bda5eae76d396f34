"""A run as it is stored while its agent works: events, figures, and the transcript of its session."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from django.db import IntegrityError, connection

from tasks_app.agent.port import AgentEvent, DollarsLeft, RunResult
from tasks_app.agent.questions import ask_from_call
from tasks_app.agent.spools import Spooled, SpooledReply, spooled_replies
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.core.types import Usage, main_model
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import SECONDS, Lease
from tasks_app.engine.seen_tokens import revoke_tokens_in
from tasks_app.engine.stopping import Stopped, StopReason, StopSignal
from tasks_app.engine.temporary_faults import PATIENCE, retry_during_faults
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import EventKind, Run, SessionEntry, Task, paths
from tasks_app.models.run import stored_by_model
from tasks_app.services.accounts import has_secret
from tasks_app.services.review_threads import AgentReply, store_agent_replies
from tasks_app.services.usage.cost_limits import dollars_for_run, with_limits

T = TypeVar("T")


class Reader(Protocol[T]):
    """Reads what is not `known` from a folder of the home."""

    def __call__(self, home: Path, *, known: Collection[str] = ()) -> Spooled[T]: ...


class SpoolCollector(Generic[T]):
    """Stores what one run leaves in a folder, each once, however often it is read.

    `store` must be harmless if it is called twice: a worker may die in between.
    """

    def __init__(
        self, run: Run, lease: Lease, read: Reader[T], store: Callable[[Run, Sequence[T]], object]
    ) -> None:
        self._run, self._lease = run, lease
        self._read, self._store = read, store
        self._home = paths.home(run.step.task)
        self._seen: set[str] = set()

    def collect(self) -> None:
        """Store what is new. Cheap if nothing is: it lists one folder."""
        spooled = self._read(self._home, known=self._seen)
        if spooled.found:
            revoke_tokens_in(str(spooled.found), self._run, self._lease)
            with self._lease.locked():
                self._store(self._run, spooled.found)
        self._seen |= spooled.keys


def last_run_of(task: Task) -> Run | None:
    """Return the task's last run, whose worker may have died before it had read what the run left."""
    runs = Run.objects.filter(step__task=task).select_related("step__task__project")
    return runs.order_by("pk").last()


def reply_collector(run: Run, lease: Lease) -> SpoolCollector[SpooledReply]:
    return SpoolCollector(run, lease, spooled_replies, _store_replies)


def _store_replies(run: Run, replies: Sequence[SpooledReply]) -> None:
    store_agent_replies(run, [AgentReply(reply.number, reply.text, reply.key) for reply in replies])


class DatabaseTranscriptStore:
    """Stores transcripts for `tasks_app.agent.transcripts`, with keys and entries as the SDK defines them."""

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        SessionEntry.objects.append(key, entries)

    def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        return SessionEntry.objects.entries(key)

    def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
        return SessionEntry.objects.subpaths(key)


# The recorder of a run: it stores events and transcript in the database, fenced by the lease.


#: Events of one message in one transaction, which nobody else can write meanwhile on SQLite.
EVENTS_AT_ONCE = 200


class RunRecorder(DatabaseTranscriptStore):
    """The only writer of a run's events. Raises Stopped or LeaseLost when the run must not go on."""

    def __init__(
        self,
        lease: Lease,
        run: Run,
        *,
        stop_signal: StopSignal,
        timeout: float,
        turned_down: Mapping[str, str] | None = None,
        hands_in: bool = True,
        is_new: bool = False,
        halt: Callable[[RunRecorder, RunResult], None] | None = None,
    ) -> None:
        """`turned_down` maps calls that a human refused to a sentence that says who refused them.

        `hands_in`: whether the run may hand in answers or reviews. A new run has no events yet.

        `halt` stores what a run asks. Without it, the caller does so when the run has ended.
        """
        self._lease = lease
        self._run = run
        self._stop_signal = stop_signal
        self._turned_down = turned_down or {}
        self.hands_in = hands_in
        if is_new:
            self._seq = 0
        self._deadline = time.monotonic() + timeout
        self._halt = halt
        self.spoke = False
        #: Whether the questions of the run are stored, and its task waits for their answers.
        self.has_asked = False
        #: They store what programs of the sandbox leave for the portal during the run.
        self.collectors: list[SpoolCollector[Any]] = []

    @cached_property
    def _seq(self) -> int:
        """The number of the next event."""
        return self._run.next_seq()

    def record(self, events: Sequence[AgentEvent]) -> None:
        self.spoke = self.spoke or any(event.kind in {"text", "thinking", "tool_use"} for event in events)
        self.write(*(NewEvent(EventKind(e.kind), self._payload(e), e.raw, e.at) for e in events))
        for event in events:
            crash_point("event-recorded")
            if event.kind == "tool_use" and ask_from_call("", event.payload["name"], event.payload["input"]):
                crash_point("ask-recorded")
            if event.kind == "tool_result" and self._run.resumed:
                crash_point("answer-recorded")

    def _payload(self, event: AgentEvent) -> dict[str, Any]:
        """Return the event's payload, marked if a human refused the call, which is not the agent's error."""
        refusal = self._turned_down.get(str(event.payload.get("tool_use_id")))
        refused = refusal and event.kind == "tool_result" and event.payload.get("is_error")
        if refused:
            return {**event.payload, "turned_down": refusal}
        return event.payload

    def write(self, *events: NewEvent) -> None:
        """Store events, of the agent or of the portal. Waits while the database is locked or away.

        A message of thousands of parts is stored in several transactions: others write between them.
        """
        said = "".join(f"{event.payload}{event.raw}" for event in events)
        if has_secret(said):
            self._wait_for(lambda: revoke_tokens_in(said, self._run, self._lease))
            self._seq = self._run.next_seq()  # it is noted in the run
        for first in range(0, len(events), EVENTS_AT_ONCE):
            part = events[first : first + EVENTS_AT_ONCE]
            try:
                self._seq = self._write(part)
            except IntegrityError:  # noted in this run already, when the answer was taken back
                self._seq = self._run.next_seq()
                self._seq = self._write(part)

    def _write(self, events: Sequence[NewEvent]) -> int:
        return self._wait_for(lambda: self._append(events), lambda: self._append_once(events))

    def _append(self, events: Sequence[NewEvent]) -> int:
        with self._lease.locked():
            return append(self._run, events, seq=self._seq)

    def _append_once(self, events: Sequence[NewEvent]) -> int:
        """Append unless the first attempt was committed although its confirmation was lost."""
        stored = self._run.next_seq()
        return stored if stored > self._seq else self._append(events)

    def record_usage(self, by_model: Mapping[str, Usage]) -> None:
        fields = {
            "metered": True,
            "model": storable_text(main_model(by_model))[:100],
            "by_model": stored_by_model(by_model),
            **asdict(sum(by_model.values(), Usage())),
        }

        def store() -> None:
            with self._lease.locked():
                Run.objects.filter(pk=self._run.pk).update(**fields)

        self._wait_for(store)

    def asked(self, result: RunResult) -> None:
        if self._halt is None:
            return
        self.collect()  # a card must show what the agent said before it asked
        halt = partial(self._halt, self, result)
        self._wait_for(halt, partial(self._halt_once, halt))
        self.has_asked = True
        crash_point("asked")

    def _halt_once(self, halt: Callable[[], None]) -> None:
        """Halt unless the first attempt was committed although its confirmation was lost."""
        if self.has_ended():
            return
        # Of the first attempt the database has nothing any more, but these objects have its values.
        self._run.step.refresh_from_db(fields=["phase"])
        self._seq = self._run.next_seq()
        halt()

    def has_ended(self) -> bool:
        """Whether the run's outcome is stored, and with it what it asks."""
        return not Run.objects.filter(pk=self._run.pk, outcome="").exists()

    def dollars_left(self) -> DollarsLeft:
        return self._wait_for(lambda: dollars_for_run(with_limits(self._lease.task_id)))

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        def append_once() -> None:
            if not SessionEntry.objects.ends_with(key, entries):
                self._append_entries(key, entries)

        self._wait_for(lambda: self._append_entries(key, entries), append_once)
        crash_point("transcript-stored")

    def _append_entries(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        revoke_tokens_in(str(entries), self._run, self._lease)
        with self._lease.locked():
            super().append_transcript(key, entries)

    def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        return self._wait_for(partial(super().load_transcript, key))

    def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
        return self._wait_for(partial(super().transcript_subpaths, key))

    def _wait_for(self, action: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Let the agent wait while the database is locked or away, so that nothing it reports is lost.

        With SQLite another worker of this machine ends the agent before it takes the task, so waiting is safe
        for long. A database that several machines use allows it only as long as the lease is certain.
        """
        patience = PATIENCE if connection.vendor == "sqlite" else SECONDS
        return retry_during_faults(action, again=again, check=self._check_signals, patience=patience)

    def tick(self) -> None:
        """Raise Stopped or LeaseLost if the run must not go on. A plain read, unless the agent wrote."""
        self._check_signals()
        phase = self._wait_for(self._lease.phase)
        if not self.has_asked:  # once it has, its task waits, and its process ends by itself
            if phase == Phase.WAITING_FOR_INPUT:
                raise Stopped(StopReason.TAKEN_BACK)
            if phase != Phase.RUNNING:
                raise Stopped(StopReason.CANCELLED)
        self.collect()

    def collect(self) -> None:
        """Store what the agent has replied to threads and said of decisions so far."""
        for collector in self.collectors:
            self._wait_for(collector.collect)

    def _check_signals(self) -> None:
        """Raise Stopped for every reason that is known without the database."""
        if reason := self._stop_signal():
            raise Stopped(reason)
        if time.monotonic() > self._deadline:
            raise Stopped(StopReason.TIMEOUT)
