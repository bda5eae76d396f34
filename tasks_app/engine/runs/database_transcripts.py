"""Session transcripts in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks_app.models import SessionEntry


class DatabaseTranscriptStore:
    """Stores transcripts for `tasks_app.agent.transcripts`, with keys and entries as the SDK defines them."""

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        SessionEntry.objects.append(key, entries)

    def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        return SessionEntry.objects.entries(key)

    def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
        return SessionEntry.objects.subpaths(key)
