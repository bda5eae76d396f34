"""Where the transcripts of sessions are kept: a part of the port. Nothing here needs the agent's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Key = Mapping[str, str]
Entries = list[dict[str, Any]]
Transcript = Mapping[str, Entries]


class TranscriptStore(Protocol):
    """Where transcripts are kept. A key has project_key and session_id, and subpath for a sub-agent's."""

    def append_transcript(self, key: Key, entries: Entries) -> None: ...

    def load_transcript(self, key: Key) -> Entries | None:
        """The entries in the order appended; None for a key never written."""

    def transcript_subpaths(self, key: Key) -> list[str]: ...
