"""Where a run reports to: events and transcript into the database, fenced by the lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from django.db import connection

from tasks_app.agent.port import AgentEvent
from tasks_app.agent.questions import ask_from_call
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.core.types import Usage
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.faults import PATIENCE, patiently
from tasks_app.engine.lease import SECONDS, Lease
from tasks_app.engine.stopping import Stopped, StopReason, StopSignal
from tasks_app.engine.transcript_store import DatabaseTranscriptStore
from tasks_app.history.events.append import NewEvent, append
from tasks_app.models import EventKind, Run, SessionEntry

T = TypeVar("T")


class RunRecorder(DatabaseTranscriptStore):
    """The one writer of a run's events. Stops the run when it must not go on."""

    def __init__(
        self,
        lease: Lease,
        run: Run,
        *,
        stop_signal: StopSignal,
        timeout: float,
        turned_down: Mapping[str, str] | None = None,
    ) -> None:
        """`turned_down`: the calls that are refused because a human said so, and who said what."""
        self._lease = lease
        self._run = run
        self._stop_signal = stop_signal
        self._turned_down = turned_down or {}
        self._seq = run.next_seq()
        self._deadline = time.monotonic() + timeout
        self.spoke = False

    def record(self, events: Sequence[AgentEvent]) -> None:
        self.spoke = self.spoke or any(event.kind in {"text", "thinking", "tool_use"} for event in events)
        self.write(*(NewEvent(EventKind(e.kind), self._judged(e), e.raw, e.at) for e in events))
        for event in events:
            reached("event-recorded")
            if event.kind == "tool_use" and ask_from_call("", event.payload["name"], event.payload["input"]):
                reached("ask-recorded")
            if event.kind == "tool_result" and self._run.resumed:
                reached("answer-recorded")

    def _judged(self, event: AgentEvent) -> dict[str, Any]:
        """What people read of it: a call that a human turned down is no error of the agent's."""
        said = self._turned_down.get(str(event.payload.get("tool_use_id")))
        refused = said and event.kind == "tool_result" and event.payload.get("is_error")
        return {**event.payload, "turned_down": said} if refused else event.payload

    def write(self, *events: NewEvent) -> None:
        """Store events, the portal's own too. Waits for a database that is locked or away."""
        self._seq = self._wait_for(lambda: self._append(events), lambda: self._append_once(events))

    def _append(self, events: Sequence[NewEvent]) -> int:
        with self._lease.fenced():
            return append(self._run, events, seq=self._seq)

    def _append_once(self, events: Sequence[NewEvent]) -> int:
        """The commit of the first attempt may have been made although its answer never came."""
        stored = self._run.next_seq()
        return stored if stored > self._seq else self._append(events)

    def record_usage(self, usage: Usage, model: str) -> None:
        self._wait_for(partial(self._store_usage, usage, model))

    def _store_usage(self, usage: Usage, model: str) -> None:
        with self._lease.fenced():
            Run.objects.filter(pk=self._run.pk).update(
                metered=True, model=storable_text(model)[:100], **asdict(usage)
            )

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        self._wait_for(
            lambda: self._append_entries(key, entries),
            lambda: (
                None if SessionEntry.objects.ends_with(key, entries) else self._append_entries(key, entries)
            ),
        )
        reached("transcript-stored")

    def _append_entries(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        with self._lease.fenced():
            super().append_transcript(key, entries)

    def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        return self._wait_for(partial(super().load_transcript, key))

    def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
        return self._wait_for(partial(super().transcript_subpaths, key))

    def _wait_for(self, do: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """What was said is not lost: the agent waits while the database does not take it.

        Nobody else can take the task from a process of this machine without ending its agent first. With a
        database that other machines use the lease must be sure: then the agent is ended when it has lapsed.
        """
        patience = PATIENCE if connection.vendor == "sqlite" else SECONDS
        return patiently(do, again=again, look=self._look, patience=patience)

    def tick(self) -> None:
        """Raises Stopped or LeaseLost if the run must not go on. A plain read: no lock, no write."""
        self._look()
        if self._wait_for(self._lease.phase) != Phase.RUNNING:
            raise Stopped(StopReason.CANCELLED)

    def _look(self) -> None:
        """Whatever can be known without the database."""
        if reason := self._stop_signal():
            raise Stopped(reason)
        if time.monotonic() > self._deadline:
            raise Stopped(StopReason.TIMEOUT)
