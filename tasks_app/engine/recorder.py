"""Where a run reports to: events and transcript into the database, fenced by the lease."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tasks_app.agents.asks import ask_in
from tasks_app.agents.port import AgentEvent
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.lease import RENEW_SECONDS, Lease
from tasks_app.engine.shelf import TranscriptShelf
from tasks_app.engine.stopping import Stopped, StopReason, StopSignal
from tasks_app.events.append import NewEvent, append
from tasks_app.models import EventKind, Run
from tasks_app.state.phases import Phase


class RunRecorder(TranscriptShelf):
    """The one writer of a run's events. Renews the lease, and stops the run when it must not go on."""

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
        self._renewed = time.monotonic()
        self.spoke = False

    def record(self, events: Sequence[AgentEvent]) -> None:
        self.spoke = self.spoke or any(event.kind in {"text", "thinking", "tool_use"} for event in events)
        self.write(*(NewEvent(EventKind(e.kind), self._judged(e), e.raw, e.at) for e in events))
        for event in events:
            reached("event-recorded")
            if event.kind == "tool_use" and ask_in("", event.payload["name"], event.payload["input"]):
                reached("ask-recorded")
            if event.kind == "tool_result" and self._run.resumed:
                reached("answer-recorded")

    def _judged(self, event: AgentEvent) -> dict[str, Any]:
        """What people read of it: a call that a human turned down is no error of the agent's."""
        said = self._turned_down.get(str(event.payload.get("tool_use_id")))
        refused = said and event.kind == "tool_result" and event.payload.get("is_error")
        return {**event.payload, "turned_down": said} if refused else event.payload

    def write(self, *events: NewEvent) -> None:
        """Store events of the portal's own beside the agent's."""
        with self._lease.fenced():
            self._seq = append(self._run, events, seq=self._seq)

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        with self._lease.fenced():
            super().append_transcript(key, entries)
        reached("transcript-stored")

    def tick(self) -> None:
        now = time.monotonic()
        if reason := self._stop_signal():
            raise Stopped(reason)
        if now > self._deadline:
            raise Stopped(StopReason.TIMEOUT)
        if now - self._renewed >= RENEW_SECONDS:
            self._lease.renew()
            self._renewed = now
        with self._lease.fenced() as task:
            if task.phase != Phase.RUNNING:
                raise Stopped(StopReason.CANCELLED)
