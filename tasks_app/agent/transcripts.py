"""Transcripts of sessions: storing them through the SDK's session store, and writing them back to disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from claude_agent_sdk import SessionKey, SessionListSubkeysKey, SessionStoreEntry, project_key_for_directory

from tasks_app.agent.tools import REJECTED, was_broken_off
from tasks_app.agent.transcript_port import Entries, Key, Transcript, TranscriptStore
from tasks_app.core.errors import TranscriptDamaged

#: Types of entries that the model has read or written. The others are the CLI's own notes.
_MESSAGES = {"user", "assistant"}


class OwnSession:
    """A transcript store that accepts only entries of the run's own session.

    Processes in the sandbox can write into the agent's output, and could name any other session there.
    """

    def __init__(self, store: TranscriptStore, *, cwd: Path, session_id: str) -> None:
        self._store = store
        self._own = {"project_key": project_key_for_directory(cwd), "session_id": session_id}

    def append_transcript(self, key: Key, entries: Entries) -> None:
        if self._is_own(key):
            self._store.append_transcript(key, entries)

    def load_transcript(self, key: Key) -> Entries | None:
        return self._store.load_transcript(key) if self._is_own(key) else None

    def transcript_subpaths(self, key: Key) -> list[str]:
        if self._is_own(key):
            return self._store.transcript_subpaths(key)
        return []

    def _is_own(self, key: Key) -> bool:
        return all(key[name] == value for name, value in self._own.items())


class SdkSessionStore:
    """The SDK's `SessionStore` for a transcript store; `call` runs each call in the store's thread."""

    def __init__(self, store: TranscriptStore, call: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._call = call

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await self._call(self._store.append_transcript, dict(key), [dict(entry) for entry in entries])

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        found: list[SessionStoreEntry] | None = await self._call(self._store.load_transcript, dict(key))
        return found

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        found: list[str] = await self._call(self._store.transcript_subpaths, dict(key))
        return found


def stored_transcript(store: TranscriptStore, *, cwd: Path, session_id: str) -> dict[str, Entries]:
    """Return a whole session: entries by subpath ("" for the session itself). Empty if nothing is stored.

    Raises TranscriptDamaged if the CLI would refuse the session, or would resume it without a part.
    """
    key = {"project_key": project_key_for_directory(cwd), "session_id": session_id}
    main = store.load_transcript(key)
    if not main:
        return {}
    require_intact(main)
    subpaths = store.transcript_subpaths(key)
    return {"": main} | {path: store.load_transcript({**key, "subpath": path}) or [] for path in subpaths}


def require_intact(entries: Sequence[Any]) -> None:
    """Raise TranscriptDamaged unless each entry is complete and each message follows an existing one."""
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


def write_transcript(transcript: Transcript, *, config_dir: Path, cwd: Path, session_id: str) -> None:
    """Write a stored session to the folder from which the CLI resumes. Existing files are replaced.

    The agent can write in that folder, so links in it are removed and not followed.
    """
    folder = PurePath("projects", project_key_for_directory(cwd))
    for subpath, entries in transcript.items():
        inside = PurePath(f"{session_id}/{subpath}.jsonl" if subpath else f"{session_id}.jsonl")
        if ".." in inside.parts:
            continue  # the agent chose the subpath
        path = _clear_path(config_dir, folder / inside)
        ordered = entries if subpath else in_order_to_resume(entries)
        lines = (json.dumps(entry, separators=(",", ":")) for entry in ordered)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def in_order_to_resume(entries: Entries) -> Entries:
    """Return a session with each deferral behind the results of the calls that stood beside the deferred one.

    The program writes a deferral at once, and the results of the message's other calls when they are there.
    A session that ends with a result is an interrupted turn for it: when it resumes, it tells the model that
    the deferred call has no result, and what really comes of the call is never read.

    Of several calls of one message that wait, the session keeps the last; the others get no result. Their
    deferrals are left out: with the next prompt the program would go back to such a call, and leave behind
    whatever has been done since.
    """
    ordered = list(entries)
    deferrals = [entry["uuid"] for entry in entries if _deferred_by(entry) and entry.get("uuid")]
    for uuid in deferrals:
        start = next(place for place, entry in enumerate(ordered) if entry.get("uuid") == uuid)
        deferral = ordered[start]  # another deferral before it may have changed its parent
        end = start + 1
        while end < len(ordered) and not _concerns(ordered[end], _deferred_by(deferral)):
            end += 1
        beside, last = [], deferral
        for entry in ordered[start + 1 : end]:
            if entry.get("parentUuid") == deferral["uuid"]:
                entry = {**entry, "parentUuid": deferral.get("parentUuid")}
            beside.append(entry)
            last = entry if entry.get("uuid") else last
        if end == len(ordered) and uuid != deferrals[-1]:
            ordered[start:end] = beside
        elif last is not deferral:
            ordered[start:end] = [*beside, {**deferral, "parentUuid": last["uuid"]}]
    return ordered


def _deferred_by(entry: dict[str, Any]) -> str:
    """Return the tool_use_id of the call that the entry says was deferred; "" for any other entry."""
    attachment = entry.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "hook_deferred_tool":
        return ""
    return str(attachment.get("toolUseID", ""))


def _concerns(entry: dict[str, Any], tool_use_id: str) -> bool:
    """Return whether the entry tells what became of the call: the gate's decision or a result."""
    attachment = entry.get("attachment")
    if isinstance(attachment, dict) and attachment.get("toolUseID") == tool_use_id:
        return True
    return any(block.get("tool_use_id") == tool_use_id for block in _message_blocks(entry))


def _clear_path(config_dir: Path, inside: PurePath) -> Path:
    """Make real folders for a new file, remove what is in its place, and return its path."""
    path = config_dir
    for part in inside.parts:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)
        path /= part
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


class CallResult(StrEnum):
    """The result of a tool call according to the session."""

    GOOD = "good"
    ERROR = "error"
    BROKEN_OFF = "broken off"


def result_in(transcript: Transcript, tool_use_id: str) -> CallResult | None:
    """Return the call's first result, or None before it has one.

    A call that died with its process gets a result from the program when the session is resumed.
    """
    for entry in transcript.get("", []):
        for block in _message_blocks(entry):
            if block.get("type") == "tool_result" and block.get("tool_use_id") == tool_use_id:
                if was_broken_off(_content_text(block.get("content"))):
                    return CallResult.BROKEN_OFF
                return CallResult.ERROR if block.get("is_error") is True else CallResult.GOOD
    return None


def was_rejected(transcript: Transcript, tool_use_id: str) -> bool:
    """Return whether the program rejected the call; it dropped what the gate had said beside it then."""
    blocks = (block for entry in transcript.get("", []) for block in _message_blocks(entry))
    results = (block for block in blocks if block.get("tool_use_id") == tool_use_id)
    return any(_content_text(block.get("content")).startswith(REJECTED) for block in results)


def was_read(transcript: Transcript, tool_use_id: str) -> bool:
    """Return whether the model has written anything since the session holds a result of the call."""
    has_result = False
    for entry in transcript.get("", []):
        message = entry.get("message")
        model = str(message.get("model") or "") if isinstance(message, dict) else ""
        if has_result and model and not model.startswith("<"):  # that is how the program marks its own words
            return True
        blocks = _message_blocks(entry)
        has_result = has_result or any(block.get("tool_use_id") == tool_use_id for block in blocks)
    return False


def has_prompt(transcript: Transcript, prompt: str) -> bool:
    """Return whether the session holds that prompt, so that the agent has read it."""
    messages = (entry.get("message") for entry in transcript.get("", []) if entry.get("type") == "user")
    return any(
        isinstance(message, dict) and _content_text(message.get("content")) == prompt for message in messages
    )


def deferred_call(transcript: Transcript) -> str:
    """Return the tool_use_id at which the session waits, or ""."""
    for entry in reversed(transcript.get("", [])):
        if call := _deferred_by(entry):
            return call if result_in(transcript, call) is None else ""
    return ""


def deferred_calls(transcript: Transcript) -> list[str]:
    """Return the tool_use_ids of all calls that were deferred and have no result, in their order."""
    calls = dict.fromkeys(filter(None, map(_deferred_by, transcript.get("", []))))
    return [call for call in calls if result_in(transcript, call) is None]


def _message_blocks(entry: dict[str, Any]) -> list[dict[str, Any]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))
