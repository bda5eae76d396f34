"""`manage.py` with the agents of `test_day_of_a_lead.py`: a line of the task's text says what each does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks_app.agent.port import Agent
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, End, Fail, Hang, Turn, ask, say, shell, write
from tests.manage_with_fake_agent import main

_WRITES = Turn("I write.", (write("notes.txt", "one\n"),))
DAYS: dict[str, Sequence[Act]] = {
    "ask": [Turn("I ask.", (ask("Which way, left or right?"),)), _WRITES, say("I went there.")],
    "deploy": [Turn("I deploy.", (shell("touch deployed.txt"),)), say("It is deployed.")],
    "result": [
        _WRITES,
        say("Done."),
        End(),
        Turn("Again.", (write("more.txt", "two\n"),)),
        say("Better now."),
    ],
    "fail": [Fail("API Error: 400 It broke."), _WRITES, say("It works now.")],
    "fail-again": [Fail("API Error: 400 It broke."), Fail("API Error: 400 It broke again.")],
    "work": [Hang(shell("true"))],
}


def script(prompt: str) -> Sequence[Act]:
    found = re.search(r"^day: (.+)$", prompt, re.MULTILINE)
    assert found, prompt
    return DAYS[found[1]]


def agent() -> Agent:
    return FakeAgent(script)


if __name__ == "__main__":
    main(agent)
