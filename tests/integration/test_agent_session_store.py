"""The SDK's own conformance suite for session stores, on ours in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from claude_agent_sdk import SessionKey, project_key_for_directory
from claude_agent_sdk.testing import run_session_store_conformance

from tasks_app.agent.bridge import Bridge
from tasks_app.agent.transcripts import SdkSessionStore, stored_transcript
from tasks_app.engine.runs.run_recorder import DatabaseTranscriptStore
from tasks_app.models import SessionEntry

#: What the mirror does not need: sessions are listed and deleted with their tasks.
UNUSED = frozenset({"list_sessions", "list_session_summaries", "delete"})


def test_the_store_keeps_the_contracts_of_the_sdk(transactional_db: None) -> None:
    bridge = Bridge(tick=lambda: None)

    class Emptied(DatabaseTranscriptStore):
        """The suite wants a fresh store for each contract; ours are all in one table."""

        def __init__(self, number: int) -> None:
            self._number = number

        def _own(self, key: Mapping[str, str]) -> dict[str, str]:
            return {**key, "project_key": f"{self._number}-{key['project_key']}"}

        def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
            super().append_transcript(self._own(key), entries)

        def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
            return super().load_transcript(self._own(key))

        def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
            return super().transcript_subpaths(self._own(key))

    numbers = iter(range(1000))

    def store() -> Any:
        return SdkSessionStore(Emptied(next(numbers)), bridge.call)

    async def main() -> None:
        await run_session_store_conformance(store, skip_optional=UNUSED)

    bridge.run(main, stop=lambda error: None)
    assert SessionEntry.objects.count() > 10


def test_a_whole_session_comes_back_with_its_sub_agents(transactional_db: None, tmp_path: Any) -> None:
    transcripts = DatabaseTranscriptStore()
    bridge = Bridge(tick=lambda: None)
    store = SdkSessionStore(transcripts, bridge.call)
    key: SessionKey = {"project_key": project_key_for_directory(tmp_path), "session_id": "s"}
    entry = {"type": "user", "uuid": "1", "message": {"content": "hi"}}

    async def main() -> None:
        await asyncio.gather(
            store.append(key, [entry]),  # type: ignore[list-item] # the SDK declares only fields that it knows
            store.append({**key, "subpath": "subagents/a"}, [{"type": "x", "uuid": "2"}]),
        )

    bridge.run(main, stop=lambda error: None)
    found = stored_transcript(transcripts, cwd=tmp_path, session_id="s")
    assert {subpath: [entry["uuid"] for entry in entries] for subpath, entries in found.items()} == {
        "": ["1"],
        "subagents/a": ["2"],
    }
