"""A fake agent for benchmarks that does what a line of the task's text says.

`bench: 2.5` waits as many seconds, and then writes a file. `bench: ask` asks a question.
`bench: write 500 60 50` writes 500 events a second for 60 seconds, 50 in each message. With a fourth number
it writes nothing for so many seconds afterwards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import timezone

from tasks_app.agent.port import AgentEvent, Recorder, RunOrder, RunResult
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Turn, ask, say, shell, write

#: Seconds between two looks whether the run must end, as the real agent has them.
TICK_SECONDS = 1.0
WORDS = "word " * 40
MESSAGE = {
    "type": "assistant",
    "message": {"role": "assistant", "content": [{"type": "text", "text": WORDS}]},
}


def script(prompt: str) -> Sequence[Act]:
    found = re.search(r"^bench: (.+)$", prompt, re.MULTILINE)
    assert found, prompt
    match found[1].split():
        case ["ask"]:
            return [Turn("I ask.", (ask("Which way, left or right?"),)), say("I went there.")]
        case ["write", *_]:
            return [say("All is written.")]
        case _:
            return [
                Turn("I look around.", (shell(f"sleep {found[1]}"),)),
                Turn("I write a file.", (write("notes.txt", "one\n" * 100),)),
                say("`notes.txt` is written."),
            ]


class WritingAgent(FakeAgent):
    """The fake agent, which writes events before it plays its script, if the prompt says so."""

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        if found := re.search(
            r"^bench: write ([0-9.]+) ([0-9.]+) ([0-9]+)(?: ([0-9.]+))?$", order.prompt or "", re.MULTILINE
        ):
            _Writing(recorder, float(found[1]), float(found[2]), int(found[3])).run()
            _rest(recorder, float(found[4] or 0))
        return super().run(order, recorder)


def _rest(recorder: Recorder, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, TICK_SECONDS))
        recorder.tick()


@dataclass
class _Writing:
    """Events at a pace: `rate` a second for so many seconds, `batch` of them in each message."""

    recorder: Recorder
    rate: float
    seconds: float
    batch: int

    def run(self) -> None:
        now = due = looked = time.monotonic()
        until = now + self.seconds
        while now < until:
            self.recorder.record([self._event() for _ in range(self.batch)])
            now = time.monotonic()
            if now - looked > TICK_SECONDS:
                looked = now
                self.recorder.tick()
            due += self.batch / self.rate
            time.sleep(max(0.0, due - now))

    @staticmethod
    def _event() -> AgentEvent:
        return AgentEvent("text", {"text": WORDS}, timezone.now(), MESSAGE)
