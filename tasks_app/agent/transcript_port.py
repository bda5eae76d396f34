"""The port's interface for storing the transcripts of sessions. Nothing here needs the agent's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Key = Mapping[str, str]
Entries = list[dict[str, Any]]
Transcript = Mapping[str, Entries]


class TranscriptStore(Protocol):
    """Stores transcripts. A key has project_key and session_id, for a sub-agent's transcript also subpath."""

    def append_transcript(self, key: Key, entries: Entries) -> None: ...

    def load_transcript(self, key: Key) -> Entries | None:
        """Return the entries in the order appended; None for a key that was never written."""

    def transcript_subpaths(self, key: Key) -> list[str]: ...
