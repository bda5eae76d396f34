"""`manage.py` with the agent of benchmarks, which does what a line of the task's text says."""

from __future__ import annotations

from tasks_app.agent.port import Agent
from tests.manage_with_fake_agent import main


def agent() -> Agent:
    # Imported for the first task, as a worker imports the real one: it would count as memory at rest.
    from tests.bench.fake_agent import WritingAgent, script

    return WritingAgent(script)


if __name__ == "__main__":
    main(agent)
