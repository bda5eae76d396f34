"""`manage.py` with an agent that waits as many seconds as the task's text says, and then writes a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks_app.agent.fake_script import Act, Turn, say, shell, write
from tests.manage_with_fake_agent import main


def script(prompt: str) -> Sequence[Act]:
    found = re.search(r"^bench: ([0-9.]+)$", prompt, re.MULTILINE)
    assert found, prompt
    return [
        Turn("I look around.", (shell(f"sleep {found[1]}"),)),
        Turn("I write a file.", (write("notes.txt", "one\n" * 100),)),
        say("`notes.txt` is written."),
    ]


if __name__ == "__main__":
    main(script)
