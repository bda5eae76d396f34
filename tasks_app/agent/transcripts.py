"""The SDK's session store on top of a recorder, and the way back: a transcript onto the disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from claude_agent_sdk import SessionKey, SessionListSubkeysKey, SessionStoreEntry, project_key_for_directory

from tasks_app.agent.tools import was_broken_off
from tasks_app.agent.transcript_store import Entries, Key, Transcript, TranscriptStore
from tasks_app.core.errors import TranscriptDamaged

#: Types of entries that the model has read or said; the others are notes of the CLI's own.
_MESSAGES = {"user", "assistant"}


class OwnSession:
    """A shelf on which a run can put entries of its own session only.

    What runs in the sandbox can write into the agent's output, and so name any other session there.
    """

    def __init__(self, shelf: TranscriptStore, *, cwd: Path, session_id: str) -> None:
        self._shelf = shelf
        self._own = {"project_key": project_key_for_directory(cwd), "session_id": session_id}

    def append_transcript(self, key: Key, entries: Entries) -> None:
        if self._is_own(key):
            self._shelf.append_transcript(key, entries)

    def load_transcript(self, key: Key) -> Entries | None:
        return self._shelf.load_transcript(key) if self._is_own(key) else None

    def transcript_subpaths(self, key: Key) -> list[str]:
        return self._shelf.transcript_subpaths(key) if self._is_own(key) else []

    def _is_own(self, key: Key) -> bool:
        return all(key[name] == value for name, value in self._own.items())


class MirroredStore:
    """The SDK's `SessionStore` protocol on top of a shelf; `call` brings each call to the shelf's thread."""

    def __init__(self, shelf: TranscriptStore, call: Callable[..., Awaitable[Any]]) -> None:
        self._shelf = shelf
        self._call = call

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await self._call(self._shelf.append_transcript, dict(key), [dict(entry) for entry in entries])

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        found: list[SessionStoreEntry] | None = await self._call(self._shelf.load_transcript, dict(key))
        return found

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        found: list[str] = await self._call(self._shelf.transcript_subpaths, dict(key))
        return found


def stored_transcript(shelf: TranscriptStore, *, cwd: Path, session_id: str) -> dict[str, Entries]:
    """A whole session, subpath ('' is the session itself) to its entries; empty if nothing is kept.

    Raises TranscriptDamaged for what the CLI would refuse, or would take up as if it had forgotten a part.
    """
    key = {"project_key": project_key_for_directory(cwd), "session_id": session_id}
    main = shelf.load_transcript(key)
    if not main:
        return {}
    require_sound(main)
    subpaths = shelf.transcript_subpaths(key)
    return {"": main} | {path: shelf.load_transcript({**key, "subpath": path}) or [] for path in subpaths}


def require_sound(entries: Sequence[Any]) -> None:
    """Raise TranscriptDamaged unless each entry is whole and each message follows one that is there."""
    known: set[str | None] = {None}
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise TranscriptDamaged(f"entry {number} is not an object with a type")
        if entry["type"] in _MESSAGES and not _is_message(entry):
            raise TranscriptDamaged(f"entry {number} holds no message")
        if entry.get("parentUuid") not in known:
            raise TranscriptDamaged(f"entry {number} follows one that is missing")
        known.add(entry.get("uuid"))


def _is_message(entry: dict[str, Any]) -> bool:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(entry.get("uuid"), str) and isinstance(content, str | list)


def restore(transcript: Transcript, *, config_dir: Path, cwd: Path, session_id: str) -> None:
    """Write a stored session to where the CLI resumes from. The database is the truth: a file is replaced.

    The folder is the agent's to write, so links in it are removed rather than followed.
    """
    folder = PurePath("projects", project_key_for_directory(cwd))
    for subpath, entries in transcript.items():
        inside = PurePath(f"{session_id}/{subpath}.jsonl" if subpath else f"{session_id}.jsonl")
        if ".." in inside.parts:
            continue  # a subpath is the agent's word
        path = _way_cleared(config_dir, folder / inside)
        lines = (json.dumps(entry, separators=(",", ":")) for entry in entries)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _way_cleared(config_dir: Path, inside: PurePath) -> Path:
    """The place for a new file, in folders that are real ones."""
    folder = config_dir
    for part in inside.parts:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        folder /= part
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    folder.unlink(missing_ok=True)
    return folder


class CallResult(StrEnum):
    """What a session holds as the result of a tool call."""

    GOOD = "good"
    ERROR = "error"
    BROKEN_OFF = "broken off"


def result_in(transcript: Transcript, tool_use_id: str) -> CallResult | None:
    """The call's first result; None if there is none yet.

    A call that died with its process gets one from the program when the session is taken up again.
    """
    results = (
        _kind_of(block)
        for entry in transcript.get("", [])
        for block in _blocks(entry)
        if block.get("type") == "tool_result" and block.get("tool_use_id") == tool_use_id
    )
    return next(results, None)


def _kind_of(result: dict[str, Any]) -> CallResult:
    if was_broken_off(_words(result.get("content"))):
        return CallResult.BROKEN_OFF
    return CallResult.ERROR if result.get("is_error") is True else CallResult.GOOD


def has_prompt(transcript: Transcript, prompt: str) -> bool:
    """Whether the session holds that prompt: then the agent was told what stands in it."""
    messages = (entry.get("message") for entry in transcript.get("", []) if entry.get("type") == "user")
    return any(isinstance(message, dict) and _words(message.get("content")) == prompt for message in messages)


def deferred_call(transcript: Transcript) -> str:
    """The tool_use_id at which the session waits, by its own notes; empty if it waits at none."""
    for entry in reversed(transcript.get("", [])):
        attachment = entry.get("attachment")
        if isinstance(attachment, dict) and attachment.get("type") == "hook_deferred_tool":
            call = str(attachment.get("toolUseID", ""))
            return call if result_in(transcript, call) is None else ""
    return ""


def _blocks(entry: dict[str, Any]) -> list[dict[str, Any]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))
