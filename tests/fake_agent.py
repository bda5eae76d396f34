"""A quick agent behind the port: it plays a script in this process, without a model or a sandbox.

It sends the messages of the real agent, so that everything behind the port is the same:
`tasks_app.agent.stream` can read its events, its transcript shows how far it is, and its calls really
happen. The conformance suite runs on both agents.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from claude_agent_sdk import project_key_for_directory

from tasks_app.agent.gate.hook import NOBODY, approval, decide
from tasks_app.agent.gate.patterns import WRITING
from tasks_app.agent.outcome import run_result
from tasks_app.agent.port import Ending, Recorder, RunOrder, RunResult, Stop, require_session_id
from tasks_app.agent.spools import clear_replies, clear_said, clear_spool
from tasks_app.agent.stream import Stream
from tasks_app.agent.transcripts import deferred_call, stored_transcript
from tests.fake_script import (
    Act,
    Call,
    Die,
    End,
    Fail,
    Hang,
    Limit,
    Script,
    Turn,
    UnknownMessage,
    run_in_shell,
)

MODEL = "fake-1"
#: What each turn of the script uses and costs.
USAGE = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 200,
}
TURN_COST = 0.01
TICK_SECONDS = 0.02

Block = dict[str, Any]


@dataclass
class FakeAgent:
    """Plays what `script` returns. `runs` collects the orders that it was given, for tests to look at."""

    script: Script
    name: str = "fake"
    sandboxed: bool = False
    runs: list[RunOrder] = field(default_factory=list)

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        require_session_id(order.session_id)
        clear_spool(order.paths.home)
        clear_replies(order.paths.home)
        clear_said(order.paths.home)
        self.runs.append(order)
        return _FakeRun(self.script, order, recorder).run()


class _RunEnded(Exception):
    """The run has ended; `problem` is what went wrong outside the stream."""

    def __init__(self, problem: str = "", exit_code: int = 1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.exit_code = exit_code


class _FakeRun:
    """One run of the fake agent."""

    def __init__(self, script: Script, order: RunOrder, recorder: Recorder) -> None:
        self._script = script
        self._order = order
        self._recorder = recorder
        self._stream = Stream()
        self._workspace = order.paths.workspace
        self._key = {
            "project_key": project_key_for_directory(self._workspace),
            "session_id": order.session_id,
        }
        #: What the session's transcript holds: read once, as the real agent does.
        self._entries: list[dict[str, Any]] = []
        self._turns = 0
        self._answer = ""
        self._planning = order.planning

    def run(self) -> RunResult:
        try:
            self._play()
        except _RunEnded as ended:
            return self._conclude(ended.problem, ended.exit_code)
        except Stop as stop:
            stop.partial = replace(self._conclude(""), ending=Ending.STOPPED, error="")
            raise
        return self._conclude("")

    def _play(self) -> None:
        transcript = self._stored_transcript() if self._order.resume else {}
        if self._order.resume and not transcript:
            raise _RunEnded("No conversation found with this session id.")
        self._entries = list(transcript.get("", []))
        self._emit({"type": "system", "subtype": "init", "model": MODEL})
        if self._order.prompt is None:
            self._resume_deferred_call(transcript)
        else:
            self._store({"type": "user", "message": {"role": "user", "content": self._order.prompt}})
        for number, act in self._remaining_acts():
            self._recorder.tick()
            self._perform(act, f"msg_{number}")
        self._emit_result("end_turn")

    def _stored_transcript(self) -> dict[str, list[dict[str, Any]]]:
        return stored_transcript(self._recorder, cwd=self._workspace, session_id=self._order.session_id)

    def _remaining_acts(self) -> Iterator[tuple[int, Act]]:
        """Yield the acts that the transcript does not hold yet, without asks if nobody may be asked."""
        done = {entry["act"] for entry in self._entries if "act" in entry}
        prompt = next(str(e["message"]["content"]) for e in self._entries if e.get("type") == "user")
        acts = [act for act in self._script(prompt) if self._has_tools_for(act)]
        for number, act in enumerate(acts):
            if f"msg_{number}" not in done:
                yield number, act

    def _has_tools_for(self, act: Act) -> bool:
        offered, may_ask = self._order.tools_for_halting.ask, self._order.may_ask
        asks = [call for call in act.calls if call.asks] if isinstance(act, Turn) else []
        return all(offered or (may_ask and call.name == "Bash") for call in asks)

    def _resume_deferred_call(self, transcript: dict[str, list[dict[str, Any]]]) -> None:
        """Decide the call at which the session waits, as the real agent does without a prompt."""
        call = deferred_call(transcript)
        if not call:
            raise _RunEnded("No conversation found to continue.")
        permission = self._order.permissions.get(call)
        name, tool_input = _find_call(transcript, call)
        if permission is None:
            self._end_deferred({"id": call, "name": name, "input": tool_input})
        text, failed = permission.reason, True
        if permission.allow:
            text, failed = _execute_tool(name, permission.updated_input or tool_input, self._workspace)
        self._planning = self._planning and not (name == "ExitPlanMode" and permission.allow)
        self._answer = text
        self._send_tool_result(call, text, is_error=failed)
        if permission.context:
            message = {"role": "user", "content": permission.context}
            self._store({"type": "user", "beside": call, "message": message})

    def _perform(self, act: Act, act_id: str) -> None:
        match act:
            case Turn():
                self._play_turn(act, act_id)
            case Fail(text, subtype):
                self._send_message(act_id, [{"type": "text", "text": text}])
                self._emit_result("stop_sequence", is_error=True, text=text, subtype=subtype)
                raise _RunEnded
            case Limit(resets_at):
                self._reach_limit(resets_at, act_id)
            case Die(exit_code):
                self._send_message(act_id, [{"type": "text", "text": "Half a "}])
                raise _RunEnded(f"The agent's process ended with exit code {exit_code}.", exit_code)
            case Hang(call):
                self._hang(call, act_id)
            case End():
                self._store({"type": "end", "act": act_id})
                self._emit_result("end_turn")
                raise _RunEnded
            case UnknownMessage(kind):
                self._store({"type": kind, "act": act_id})
                self._emit({"type": kind, "words": "…"})

    def _play_turn(self, turn: Turn, act_id: str) -> None:
        text = turn.text.replace("{result}", self._answer)
        calls = {f"toolu_{self._order.session_id[:8]}_{act_id}_{n}": c for n, c in enumerate(turn.calls)}
        blocks: list[Block] = [{"type": "text", "text": text}] if text else []
        blocks += [
            {"type": "tool_use", "id": call_id, "name": call.name, "input": dict(call.input)}
            for call_id, call in calls.items()
        ]
        self._send_message(act_id, blocks)
        deferred = [call_id for call_id, call in calls.items() if self._gate_defers(call)]
        for call_id, call in calls.items():
            if call_id not in deferred:
                self._make_call(call_id, call)
        if deferred:
            for call_id in deferred:
                waiting = {
                    "type": "hook_deferred_tool",
                    "toolUseID": call_id,
                    "toolName": calls[call_id].name,
                }
                self._store({"type": "attachment", "attachment": waiting})
            call_id, call = deferred[-1], calls[deferred[-1]]
            self._end_deferred({"id": call_id, "name": call.name, "input": dict(call.input)})

    def _gate_defers(self, call: Call) -> bool:
        """Return whether the gate halts the run at this call."""
        given = {"tool_name": call.name, "tool_input": dict(call.input)}
        orders = {
            "workspace": str(self._workspace),
            "ask_before": self._order.ask_before,
            "plans": "plans" if self._planning else "",
        }
        return (call.asks and self._order.may_ask) or approval(given, orders) is not None

    def _make_call(self, call_id: str, call: Call) -> None:
        refusal = decide({"tool_name": call.name, "tool_input": dict(call.input)}, {})
        if refusal and self._order.asks_no_more:
            self._send_tool_result(call_id, NOBODY, is_error=True)
        elif refusal and self._order.may_ask:
            self._send_tool_result(call_id, refusal["permissionDecisionReason"], is_error=True)
        elif self._planning and call.name in WRITING:
            self._send_tool_result(call_id, "Only a plan may be written now.", is_error=True)
        else:
            self._send_tool_result(call_id, call.work(self._workspace))

    def _hang(self, call: Call, act_id: str) -> NoReturn:
        block = {"type": "tool_use", "id": f"toolu_{act_id}", "name": call.name, "input": dict(call.input)}
        self._send_message(act_id, [block])
        call.work(self._workspace)
        while True:
            self._recorder.tick()
            time.sleep(TICK_SECONDS)

    def _send_message(self, act_id: str, blocks: Sequence[Block]) -> None:
        """Send one message of the model, like the real agent in one line for each block."""
        self._turns += 1
        for block in blocks:
            message = {
                "id": act_id,
                "role": "assistant",
                "model": MODEL,
                "content": [block],
                "usage": USAGE,
            }
            self._store({"type": "assistant", "act": act_id, "message": message})
            self._emit({"type": "assistant", "message": message})

    def _send_tool_result(self, call: str, text: str, *, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
        message = {"role": "user", "content": [block]}
        self._store({"type": "user", "message": message})
        self._emit({"type": "user", "message": message})

    def _end_deferred(self, call: dict[str, Any]) -> NoReturn:
        """End at the deferred call, and report what it asks before that."""
        self._emit_result("tool_deferred", deferred=call)
        result = self._conclude("")
        if result.asks:
            self._recorder.asked(result)
        raise _RunEnded

    def _reach_limit(self, resets_at: int | None, act_id: str) -> None:
        text = "API Error: Request rejected (429): the usage limit is reached"
        if resets_at is not None:
            info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
            self._emit({"type": "rate_limit_event", "rate_limit_info": info})
        self._send_message(act_id, [{"type": "text", "text": text}])
        self._emit_result("stop_sequence", is_error=True, text=text, api_error_status=429)
        raise _RunEnded

    def _emit_result(
        self,
        stop_reason: str,
        *,
        is_error: bool = False,
        text: str = "",
        deferred: Mapping[str, Any] | None = None,
        api_error_status: int | None = None,
        subtype: str = "success",
    ) -> None:
        turns_of_session = len({e["act"] for e in self._entries if "message" in e and "act" in e})
        self._emit(
            {
                "type": "result",
                "subtype": subtype,
                "is_error": is_error,
                "api_error_status": api_error_status,
                "stop_reason": stop_reason,
                "result": text or self._stream.text,
                "num_turns": self._turns,
                "duration_ms": 1,
                "total_cost_usd": turns_of_session * TURN_COST,
                "usage": {name: count * self._turns for name, count in USAGE.items()},
                "deferred_tool_use": deferred,
            }
        )

    def _emit(self, message: dict[str, Any]) -> None:
        # Through JSON and back: the script must not hold what could not be a line of the real agent's output.
        self._recorder.record(self._stream.read(json.loads(json.dumps(message))))

    def _store(self, entry: dict[str, Any]) -> None:
        stored = {**entry, "uuid": str(uuid.uuid4())}
        self._recorder.append_transcript(self._key, [stored])
        self._entries.append(stored)

    def _conclude(self, problem: str, exit_code: int = 1) -> RunResult:
        code = exit_code if problem else 0
        return run_result(self._stream, self._order, problem=problem, exit_code=code)


def _find_call(transcript: Mapping[str, list[dict[str, Any]]], call: str) -> tuple[str, Mapping[str, Any]]:
    """Return name and input of a call that the session holds."""
    blocks = (
        block
        for entry in transcript.get("", [])
        if entry.get("type") == "assistant"
        for block in entry["message"]["content"]
    )
    found = next(block for block in blocks if block.get("id") == call)
    return str(found["name"]), found["input"]


def _execute_tool(name: str, tool_input: Mapping[str, Any], workspace: Path) -> tuple[str, bool]:
    """Execute the tool with the decided input. Return its result, and whether it failed."""
    if name == "AskUserQuestion":
        notes = {question: one["notes"] for question, one in tool_input.get("annotations", {}).items()}
        answers = ", ".join(
            f'"{question}"="{answer}"' + (f" notes: {notes[question]}" if question in notes else "")
            for question, answer in tool_input["answers"].items()
        )
        return f"The user answered: {answers}. Go on from there.", False
    if name == "ExitPlanMode":
        return "User has approved exiting plan mode. You can now proceed.", False
    if name == "Write":
        (workspace / tool_input["file_path"]).write_text(tool_input["content"], encoding="utf-8")
        return f"{tool_input['file_path']} was written", False
    return run_in_shell(str(tool_input["command"]), workspace)
