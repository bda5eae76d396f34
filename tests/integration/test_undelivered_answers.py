"""R1: an answer that is not in the next request is noticed by the API key proxy, and given in a prompt.

The real agent program. What mends sessions before they resume is switched off, as if a new version of the
program needed something else.
"""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app import composition
from tasks_app.agent import transcripts
from tasks_app.agent.call_permissions import AnswersFolder, GivenAnswer, permission_for
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import Ending
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, EventKind, Outcome, Task, Verdict
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Sandbox
from tasks_app.services.questions.answers import decide
from tasks_app.services.usage.metrics import exposition
from tests.agents import Bench
from tests.people import acting
from tests.runner import ONE_STEP, Runner, file_in, runs

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.django_db(transaction=True),
    pytest.mark.once(on="sqlite"),
]
APPROVING = f'{ONE_STEP}      askBefore: ["Bash(*guarded*)"]\n'
MISSING = "[Tool result missing"


@pytest.fixture(autouse=True)
def unmended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "in_order_to_resume", lambda entries: entries)


def told(server: RehearsalServer) -> str:
    """The feedback of the only prompt that has any."""
    prompts = {str(request["messages"][0]["content"]) for request in server.requests if request.get("tools")}
    (feedback,) = [prompt.split("--- FEEDBACK ---")[1] for prompt in prompts if "--- FEEDBACK ---" in prompt]
    return feedback


def assert_given_once(task: Task, server: RehearsalServer) -> None:
    """Assert that the run was ended, that the log and the metrics say so, and that the task is done."""
    assert task.phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED, Outcome.UNDELIVERED, Outcome.FINISHED]
    assert not [request for request in server.requests if MISSING in str(request["messages"])]
    _, ended, last = runs(task)
    (error,) = ended.events.filter(kind=EventKind.ERROR)
    assert error.payload["text"] == ended.error != ""
    (note,) = last.events.filter(kind=EventKind.NOTE)
    assert "A new session begins" in note.payload["text"]
    assert ended.session_id != last.session_id and ended.step.failures == 0
    assert 'catherder_runs_total{outcome="undelivered"} 1.0' in exposition().decode()
    (question,) = task.questions.all()
    assert question.delivered_at is not None and question.handed_in == last


def test_an_answer_that_is_not_in_the_request_comes_in_a_prompt(
    metered: Runner, server: RehearsalServer
) -> None:
    task = metered.advance(metered.task(text="# Paint it\n\nrehearsal: ask-beside-slow\n"))
    metered.answer_all(task, "Blue ☃")
    metered.advance(task)
    assert_given_once(task, server)
    assert "Which one?" in told(server) and "Blue ☃" in told(server)


@pytest.mark.parametrize("approved", [True, False])
def test_a_verdict_that_is_not_in_the_request_comes_in_a_prompt(
    metered: Runner, server: RehearsalServer, approved: bool
) -> None:
    """An approved call has run by then: it runs no second time, and its output is told."""
    project = metered.project(APPROVING)
    task = metered.task(text="# Paint it\n\nrehearsal: approve-beside-slow\n", project=project)
    metered.advance(task)
    verdict = Verdict.APPROVED if approved else Verdict.DENIED
    decide(task.questions.get(), verdict, by=acting(metered.user), via=Channel.WEB, notes="On a Friday?")
    metered.advance(task)
    assert_given_once(task, server)
    guarded = file_in(task, "guarded.txt")
    assert (guarded.read_text() if guarded.exists() else "") == ("guarded\n" if approved else "")
    feedback, _, output = told(server).partition("The call was made, once.")
    assert ("made it" in output) == approved
    assert "On a Friday?" in feedback


def test_with_the_token_of_a_login_it_is_noticed_too(
    tmp_path: Any, server: RehearsalServer, behind_the_proxy: Any
) -> None:
    behind_the_proxy(server, claude_oauth_token="sk-ant-oat01-token")
    bench = Bench(ClaudeAgent(Sandbox(None), composition.connect), tmp_path / "bench", server)
    asked = bench.start("ask-beside-slow")
    given = GivenAnswer(asked.asks[0], {"Which one?": "Blue"})
    permission = permission_for(given, [], folder=AnswersFolder(bench.answers))
    result = bench.run(bench.order(None, resume=True, permissions={asked.deferred: permission}))
    assert (result.ending, result.delivered) == (Ending.UNDELIVERED, frozenset())
    assert result.undelivered == {asked.deferred}
    log = str([event.payload for event in bench.recorder.events])
    assert "The answer did not reach the model; the portal stopped the run." in log
    assert "Failed to authenticate" not in log
    assert not [request for request in server.requests if MISSING in str(request["messages"])]
