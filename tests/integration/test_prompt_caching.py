"""What the model has read once it finds in its cache again: the prefix of its requests never changes.

The real agent program at the scripted Messages API: a provider's prompt cache matches tools, system text and
messages from the first byte on, so one byte that differs is paid for as if everything were new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import Recorder, RunOrder, RunResult
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Task
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.questions.answers import decide
from tasks_app.services.tasks import change_threshold
from tests.people import acting
from tests.runner import ONE_STEP, Runner, results, runs

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

APPROVING = f'{ONE_STEP}      askBefore: ["Bash(*git tag*)"]\n'
PLANNING = f"{ONE_STEP}      planApproval: true\n"
CHECKED = f'{ONE_STEP}      check: {{type: shell, command: "test -e never"}}\n      retry: 1\n'


def turns(server: RehearsalServer) -> list[dict[str, Any]]:
    """The requests of the agent itself, oldest first; those for titles and the like offer no tools."""
    return [_plain(request) for request in server.requests if request.get("tools")]


def _plain(value: Any) -> Any:
    """Without the marks of the cache, which move along as a conversation grows, and with every text as a
    block: the API takes a bare string for a block of text."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    plain = {key: _plain(one) for key, one in value.items() if key != "cache_control"}
    if isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain


#: Parts of a request that the model does not read: who calls, and what a plan's calls are judged by.
BESIDE_THE_PROMPT = ("metadata", "safeguards")


def beginning(request: Mapping[str, Any], messages: int) -> str:
    """All that the model reads, with so many of the messages: what the provider's cache matches."""
    parts = {key: part for key, part in request.items() if key not in ("messages", *BESIDE_THE_PROMPT)}
    return json.dumps([parts, request["messages"][:messages]], ensure_ascii=False)


def assert_each_continues_the_last(requests: list[dict[str, Any]]) -> None:
    for earlier, later in pairwise(requests):
        count = len(earlier["messages"])
        assert len(later["messages"]) > count
        assert beginning(later, count) == beginning(earlier, count)


def playing(scenario: str) -> str:
    return f"# Paint it\n\nrehearsal: {scenario}\n"


def halted(real: Runner, scenario: str, *, config: str = ONE_STEP, threshold: int = 3) -> Task:
    task = real.advance(real.task(text=playing(scenario), config=config, threshold=threshold))
    assert task.phase == Phase.WAITING_FOR_INPUT
    return task


def settle(real: Runner, task: Task, *, answer: str = "Left") -> Task:
    """A human replies, of whatever kind the question is, and the task goes on to its end."""
    question = task.questions.open().get()
    if question.kind == "clarification":
        real.answer_all(task, answer)
    else:
        decide(question, "approved", by=acting(real.user), via=Channel.WEB)
    assert real.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert first.session_id == second.session_id
    return task


@dataclass
class _Then:
    """An agent after whose every run something happens."""

    agent: ClaudeAgent
    then: Callable[[], Any]
    name: str = "then"
    sandboxed: bool = True

    def run(self, order: RunOrder, recorder: Recorder) -> RunResult:
        result = self.agent.run(order, recorder)
        self.then()
        return result


@pytest.mark.parametrize(
    ("scenario", "config"),
    [
        ("ask-and-end", ONE_STEP),
        ("ask-command", ONE_STEP),
        ("ask-beside-tools", ONE_STEP),
        ("approve", APPROVING),
        ("plan-first", PLANNING),
    ],
)
def test_the_request_after_a_halt_begins_with_what_was_sent_before(
    real: Runner, server: RehearsalServer, scenario: str, config: str
) -> None:
    """H7: a question by tool, by command, beside other work; an approval; a plan."""
    settle(real, halted(real, scenario, config=config))
    assert len(turns(server)) >= 2
    assert_each_continues_the_last(turns(server))


@pytest.mark.parametrize(("before", "after"), [(3, 0), (3, 5)])
@pytest.mark.parametrize("scenario", ["ask-and-end", "ask-command"])
def test_a_threshold_that_changes_meanwhile_leaves_the_beginning_as_it_was(
    real: Runner, server: RehearsalServer, scenario: str, before: int, after: int
) -> None:
    task = halted(real, scenario, threshold=before)
    change_threshold(task, after, by=acting(real.user))
    settle(real, task)
    assert f"threshold is now {after}" in json.dumps(turns(server)[-1]["messages"])
    assert_each_continues_the_last(turns(server))


def test_who_is_not_to_ask_any_more_keeps_the_tools_and_is_refused(
    real: Runner, server: RehearsalServer
) -> None:
    """H1: in the very session that began with them; the second question is never put to anybody."""
    task = halted(real, "ask-then-ask")
    change_threshold(task, 0, by=acting(real.user))
    settle(real, task)
    assert task.questions.count() == 1
    assert "nobody can be asked" in results(task)[-1]
    assert_each_continues_the_last(turns(server))


def test_the_tools_stay_in_the_runs_after_the_answer(real: Runner, server: RehearsalServer) -> None:
    """Sent back by a check, at a threshold that was lowered while it waited."""
    task = halted(real, "ask-and-end", config=CHECKED)
    change_threshold(task, 0, by=acting(real.user))
    real.answer_all(task, "Stop")
    assert real.advance(task).phase == Phase.FAILED
    assert len(runs(task)) == 3
    assert_each_continues_the_last(turns(server))


def test_a_session_that_began_without_asking_keeps_its_tools_when_asking_is_allowed(
    real: Runner, server: RehearsalServer
) -> None:
    """H1: asked by the command then, since the tool would be a new one."""
    task = real.task(text=playing("ask-when-sent-back"), config=CHECKED, threshold=0)
    sink = real.agent
    assert isinstance(sink, ClaudeAgent)

    real.agent = _Then(sink, lambda: change_threshold(Task.objects.get(pk=task.pk), 4, by=acting(real.user)))
    assert real.advance(task).phase == Phase.WAITING_FOR_INPUT
    first, second = runs(task)
    assert (first.session_id, first.threshold) == (second.session_id, 0)
    assert "not among your tools" in second.prompt
    real.answer_all(task, "Left")
    real.advance(task)
    assert "Left" in results(task)[-1]
    assert_each_continues_the_last(turns(server))


def test_a_plan_that_is_approved_leaves_the_tools_as_they_were(real: Runner, server: RehearsalServer) -> None:
    """Also for the runs after it, in which there is nothing to plan any more."""
    config = f'{PLANNING}      check: {{type: shell, command: "test -e never"}}\n      retry: 1\n'
    task = halted(real, "plan-first", config=config)
    decide(task.questions.open().get(), "approved", by=acting(real.user), via=Channel.WEB)
    assert real.advance(task).phase == Phase.FAILED
    assert len(runs(task)) == 3
    assert_each_continues_the_last(turns(server))


def test_two_tasks_share_tools_and_system_text_to_the_byte(real: Runner, server: RehearsalServer) -> None:
    """No path of a task is in it: what one task had cached serves every other."""
    project = real.project()
    for _ in range(2):
        real.advance(real.task(text=playing("no-questions"), project=project, threshold=0))
    requests = turns(server)
    assert len({beginning(request, 0) for request in requests}) == 1
    assert str(real.folder) not in beginning(requests[0], 0)


def test_the_agent_keeps_no_memory_of_its_own(real: Runner, server: RehearsalServer) -> None:
    """A channel between the steps that no log shows."""
    real.advance(real.task(text=playing("no-questions"), threshold=0))
    for request in turns(server):
        assert "memory" not in json.dumps(request["system"]).lower()
        assert "MEMORY.md" not in json.dumps(request)


def ttls(server: RehearsalServer) -> set[str]:
    """How long the provider is asked to keep what it has read."""
    marks = (_marks(request) for request in server.requests if request.get("tools"))
    return {str(mark.get("ttl", "5m")) for found in marks for mark in found}


def _marks(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [mark for one in value for mark in _marks(one)]
    if not isinstance(value, Mapping):
        return []
    own = [value["cache_control"]] if "cache_control" in value else []
    return own + [mark for one in value.values() for mark in _marks(one)]


@pytest.mark.parametrize(
    ("setting", "threshold", "config", "expected"),
    [
        ("auto", 0, ONE_STEP, "5m"),
        ("auto", 3, ONE_STEP, "1h"),
        ("auto", 0, APPROVING, "1h"),
        ("auto", 0, PLANNING, "1h"),
        ("5m", 3, ONE_STEP, "5m"),
        ("1h", 0, ONE_STEP, "1h"),
    ],
)
def test_what_may_wait_for_a_human_stays_cached_for_an_hour(
    real: Runner, server: RehearsalServer, setting: str, threshold: int, config: str, expected: str
) -> None:
    assert isinstance(real.agent, ClaudeAgent)
    real.agent.prompt_cache = setting  # type: ignore[assignment]
    real.advance(real.task(text=playing("no-questions"), config=config, threshold=threshold))
    assert ttls(server) == {expected}
