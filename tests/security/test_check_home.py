"""R4: what an agent leaves in its home directory must not decide how its checks go."""

from __future__ import annotations

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import paths
from tests.fake_script import Call, Turn, say
from tests.runner import Runner

HONEST = """\
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "test ! -e ~/.planted && test -w ~"}}
"""


@pytest.mark.django_db(transaction=True)
def test_checks_have_a_home_that_the_agent_cannot_prepare(runner: Runner) -> None:
    """A planted usercustomize.py or .bashrc would pass any check, and no diff would show it."""
    task = runner.task([], project=runner.project(HONEST))
    home = paths.home(task)

    def plant(workspace: object) -> str:
        (home / ".planted").write_text("")
        return ""

    runner.fake.script = lambda prompt: [
        Turn(calls=(Call("Bash", {"command": "plant"}, plant),)),
        say("Done."),
    ]
    assert runner.advance(task).phase == Phase.DONE
    assert (home / ".planted").exists()
