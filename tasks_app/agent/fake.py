"""A quick agent behind the same port: it plays a script in this very process, without a model or a sandbox.

It speaks the real one's messages, so that everything after the port is the same: its events can be read
again by `tasks_app.agent.stream`, its transcript says where it stands, and its calls really happen. The
conformance suite runs on both.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from claude_agent_sdk import project_key_for_directory

from tasks_app.agent.ask_spool import clear_spool
from tasks_app.agent.gate.hook import NOBODY, approval
from tasks_app.agent.gate.patterns import WRITING
from tasks_app.agent.outcome import run_result
from tasks_app.agent.port import Ending, Recorder, RunOrder, RunResult, Stop, require_session_id
from tasks_app.agent.questions import ask_from_call
from tasks_app.agent.stream import Stream
from tasks_app.agent.transcripts import deferred_call, stored_transcript

MODEL = "fake-1"
#: What each turn of the script uses and costs.
USAGE = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 200,
}
TURN_COST = 0.01
LOOK_SECONDS = 0.02

Block = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call. `work` gets the workspace, does what the tool would do, and returns its result."""

    name: str
    input: Mapping[str, Any]
    work: Callable[[Path], str] = lambda workspace: ""

    @property
    def asks(self) -> bool:
        return ask_from_call("", self.name, self.input) is not None


@dataclass(frozen=True)
class Turn:
    """One message of the model. In `text`, `{result}` stands for the last result of an ask."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Fail:
    """The run ends with an error, as the agent itself reports it."""

    text: str = "API Error: 500"


@dataclass(frozen=True)
class Limit:
    """A usage limit is reached; `resets_at` in seconds since 1970, None if the agent is not told."""

    resets_at: int | None = None


@dataclass(frozen=True)
class Die:
    """The process ends in the middle of a line, without a result. Below zero: by that signal."""

    exit_code: int = 1


@dataclass(frozen=True)
class Hang:
    """A call that does its work and never returns. A later run of the session goes on behind it."""

    call: Call


@dataclass(frozen=True)
class End:
    """The agent ends its turn. What follows is played when it is sent back into the session."""


@dataclass(frozen=True)
class Unheard:
    """A message of a kind that nobody knows."""

    type: str = "whisper"


Act: TypeAlias = Turn | Fail | Limit | Die | Hang | End | Unheard
#: What to play for a session's first prompt.
Script = Callable[[str], Sequence[Act]]


def say(text: str) -> Turn:
    return Turn(text)


def write(path: str, content: str) -> Call:
    """Write a file of the workspace."""

    def work(workspace: Path) -> str:
        (workspace / path).write_text(content, encoding="utf-8")
        return f"{path} was written"

    return Call("Write", {"file_path": path, "content": content}, work)


def shell(command: str) -> Call:
    """Run a shell command in the workspace."""
    return Call("Bash", {"command": command}, lambda workspace: _shell(command, workspace))


def plan(text: str) -> Call:
    """Present a plan, which ends the planning once a human approved it."""
    return Call("ExitPlanMode", {"plan": text})


def ask(*questions: str | Mapping[str, Any]) -> Call:
    """Ask by AskUserQuestion; a bare text is a question with the options Yes and No."""
    return Call("AskUserQuestion", {"questions": [_question(question) for question in questions]})


def ask_by_command(question: str, *, before: str = "") -> Call:
    return shell(f'{before}cat-herder ask "{question}"')


def _question(question: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(question, str):
        return question
    options = [{"label": label, "description": f"{label}, please."} for label in ("Yes", "No")]
    return {"question": question, "header": "Fake", "options": options, "multiSelect": False}


@dataclass
class FakeAgent:
    """`script` tells what to play. `runs` keeps the orders that it was given, for tests to look at."""

    script: Script
    name: str = "fake"
    sandboxed: bool = False
    runs: list[RunOrder] = field(default_factory=list)

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        require_session_id(order.session_id)
        clear_spool(order.places.home)
        self.runs.append(order)
        return _Performance(self.script, order, recorder).run()


class _Over(Exception):
    """The run has ended; `problem` is what went wrong outside the stream."""

    def __init__(self, problem: str = "", exit_code: int = 1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.exit_code = exit_code


class _Performance:
    """One run while it lasts."""

    def __init__(self, script: Script, order: RunOrder, recorder: Recorder) -> None:
        self._script = script
        self._order = order
        self._recorder = recorder
        self._stream = Stream()
        self._workspace = order.places.workspace
        self._key = {
            "project_key": project_key_for_directory(self._workspace),
            "session_id": order.session_id,
        }
        self._turns = 0
        self._answer = ""
        self._planning = order.planning

    def run(self) -> RunResult:
        try:
            self._play()
        except _Over as over:
            return self._conclude(over.problem, over.exit_code)
        except Stop as stop:
            stop.partial = replace(self._conclude(""), ending=Ending.STOPPED, error="")
            raise
        return self._conclude("")

    def _play(self) -> None:
        entries = self._stored()
        if self._order.resume and not entries:
            raise _Over("No conversation found with this session id.")
        self._emit({"type": "system", "subtype": "init", "model": MODEL})
        if self._order.prompt is None:
            self._take_up(entries)
        else:
            self._keep(
                {"type": "user", "message": {"role": "user", "content": self._order.prompt}},
            )
        for number, act in self._acts_left():
            self._recorder.tick()
            self._perform(act, f"msg_{number}")
        self._end("end_turn")

    def _stored(self) -> dict[str, list[dict[str, Any]]]:
        return stored_transcript(self._recorder, cwd=self._workspace, session_id=self._order.session_id)

    def _acts_left(self) -> Iterator[tuple[int, Act]]:
        """What the transcript does not hold yet. Where nobody may be asked, no ask is in the script."""
        entries = self._stored().get("", [])
        done = {entry["act"] for entry in entries if "act" in entry}
        prompt = next(str(e["message"]["content"]) for e in entries if e.get("type") == "user")
        acts = [act for act in self._script(prompt) if self._has_tools_for(act)]
        for number, act in enumerate(acts):
            if f"msg_{number}" not in done:
                yield number, act

    def _has_tools_for(self, act: Act) -> bool:
        offered, may_ask = self._order.tools_for_halting.ask, self._order.may_ask
        calls = [call for call in act.calls if call.asks] if isinstance(act, Turn) else []
        return all(offered or (may_ask and call.name == "Bash") for call in calls)

    def _take_up(self, transcript: dict[str, list[dict[str, Any]]]) -> None:
        """Look again at the call that the session waits at, as the real one does without a prompt."""
        call = deferred_call(transcript)
        if not call:
            raise _Over("No conversation found to continue.")
        decision = self._order.decisions.get(call)
        name, tool_input = _call_in(transcript, call)
        if decision is None:
            self._end("tool_deferred", deferred={"id": call, "name": name, "input": tool_input})
            raise _Over
        text, failed = decision.reason, True
        if decision.allow:
            text, failed = _carried_out(name, decision.updated_input or tool_input, self._workspace)
        self._planning = self._planning and not (name == "ExitPlanMode" and decision.allow)
        self._answer = text
        self._result_of(call, text, is_error=failed)
        if decision.context:
            self._keep({"type": "user", "message": {"role": "user", "content": decision.context}})

    def _perform(self, act: Act, identity: str) -> None:
        match act:
            case Turn():
                self._turn(act, identity)
            case Fail(text):
                self._said(identity, [{"type": "text", "text": text}])
                self._end("stop_sequence", is_error=True, text=text)
                raise _Over
            case Limit(resets_at):
                self._limit(resets_at, identity)
            case Die(exit_code):
                self._said(identity, [{"type": "text", "text": "Half a "}])
                raise _Over(f"The agent's process ended with exit code {exit_code}.", exit_code)
            case Hang(call):
                self._hang(call, identity)
            case End():
                self._keep({"type": "end", "act": identity})
                self._end("end_turn")
                raise _Over
            case Unheard(kind):
                self._keep({"type": kind, "act": identity})
                self._emit({"type": kind, "words": "…"})

    def _turn(self, turn: Turn, identity: str) -> None:
        text = turn.text.replace("{result}", self._answer)
        calls = {f"toolu_{self._order.session_id[:8]}_{identity}_{n}": c for n, c in enumerate(turn.calls)}
        blocks: list[Block] = [{"type": "text", "text": text}] if text else []
        blocks += [
            {"type": "tool_use", "id": call_id, "name": call.name, "input": dict(call.input)}
            for call_id, call in calls.items()
        ]
        self._said(identity, blocks)
        asking = [call_id for call_id, call in calls.items() if self._waits(call)]
        for call_id, call in calls.items():
            if call_id not in asking:
                self._make(call_id, call)
        if asking:
            self._defer(asking[-1], calls[asking[-1]])

    def _waits(self, call: Call) -> bool:
        """Whether the gate halts the run at this call."""
        given = {"tool_name": call.name, "tool_input": dict(call.input)}
        orders = {
            "workspace": str(self._workspace),
            "ask_before": self._order.ask_before,
            "plans": "plans" if self._planning else "",
        }
        return (call.asks and self._order.may_ask) or approval(given, orders) is not None

    def _make(self, call_id: str, call: Call) -> None:
        if call.asks and self._order.asks_no_more:
            self._result_of(call_id, NOBODY, is_error=True)
        elif self._planning and call.name in WRITING:
            self._result_of(call_id, "Only a plan may be written now.", is_error=True)
        else:
            self._result_of(call_id, call.work(self._workspace))

    def _hang(self, call: Call, identity: str) -> NoReturn:
        block = {"type": "tool_use", "id": f"toolu_{identity}", "name": call.name, "input": dict(call.input)}
        self._said(identity, [block])
        call.work(self._workspace)
        while True:
            self._recorder.tick()
            time.sleep(LOOK_SECONDS)

    def _said(self, identity: str, blocks: Sequence[Block]) -> None:
        """One message of the model; like the real one, a line for each of its blocks."""
        self._turns += 1
        for block in blocks:
            message = {
                "id": identity,
                "role": "assistant",
                "model": MODEL,
                "content": [block],
                "usage": USAGE,
            }
            self._keep({"type": "assistant", "act": identity, "message": message})
            self._emit({"type": "assistant", "message": message})

    def _result_of(self, call: str, text: str, *, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
        message = {"role": "user", "content": [block]}
        self._keep({"type": "user", "message": message})
        self._emit({"type": "user", "message": message})

    def _defer(self, call_id: str, call: Call) -> None:
        waiting = {"type": "hook_deferred_tool", "toolUseID": call_id, "toolName": call.name}
        self._keep({"type": "attachment", "attachment": waiting})
        self._end("tool_deferred", deferred={"id": call_id, "name": call.name, "input": dict(call.input)})
        raise _Over

    def _limit(self, resets_at: int | None, identity: str) -> None:
        text = "API Error: Request rejected (429): the usage limit is reached"
        if resets_at is not None:
            info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
            self._emit({"type": "rate_limit_event", "rate_limit_info": info})
        self._said(identity, [{"type": "text", "text": text}])
        self._end("stop_sequence", is_error=True, text=text, api_error_status=429)
        raise _Over

    def _end(
        self,
        stop_reason: str,
        *,
        is_error: bool = False,
        text: str = "",
        deferred: Mapping[str, Any] | None = None,
        api_error_status: int | None = None,
    ) -> None:
        turns_of_session = len(
            {e["act"] for e in self._stored().get("", []) if "message" in e and "act" in e}
        )
        self._emit(
            {
                "type": "result",
                "subtype": "success",
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
        # Through JSON and back: what cannot be a line of the real one's output is a fault of the script.
        self._recorder.record(self._stream.read(json.loads(json.dumps(message))))

    def _keep(self, entry: dict[str, Any]) -> None:
        self._recorder.append_transcript(self._key, [{**entry, "uuid": str(uuid.uuid4())}])

    def _conclude(self, problem: str, exit_code: int = 1) -> RunResult:
        code = exit_code if problem else 0
        return run_result(self._stream, self._order, problem=problem, exit_code=code)


def _call_in(transcript: Mapping[str, list[dict[str, Any]]], call: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the input of a call that the session holds."""
    blocks = (
        block
        for entry in transcript.get("", [])
        if entry.get("type") == "assistant"
        for block in entry["message"]["content"]
    )
    found = next(block for block in blocks if block.get("id") == call)
    return str(found["name"]), found["input"]


def _carried_out(name: str, tool_input: Mapping[str, Any], workspace: Path) -> tuple[str, bool]:
    """What the tool itself makes of the input that was decided, and whether it failed."""
    if name == "AskUserQuestion":
        answers = ", ".join(f'"{question}"="{answer}"' for question, answer in tool_input["answers"].items())
        return f"The user answered: {answers}. Go on from there.", False
    if name == "ExitPlanMode":
        return "User has approved exiting plan mode. You can now proceed.", False
    if name == "Write":
        (workspace / tool_input["file_path"]).write_text(tool_input["content"], encoding="utf-8")
        return f"{tool_input['file_path']} was written", False
    return _run(str(tool_input["command"]), workspace)


def _shell(command: str, workspace: Path) -> str:
    return _run(command, workspace)[0]


def _run(command: str, workspace: Path) -> tuple[str, bool]:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.decode("utf-8", errors="replace").removesuffix("\n"), done.returncode != 0
