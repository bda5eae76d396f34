"""The table of answers at the Messages API, for what the portal does: replay, retry, undo, merge (H7, R1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Task
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.bulk import retry_from
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.questions.answers import undo_answer
from tasks_app.services.tasks import cancel_task
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, file_in, step
from tests.soft_limits import without_undo

pytestmark = [pytest.mark.bubblewrap, pytest.mark.django_db(transaction=True)]
Arrived = Callable[[str, object], None]
ROW = "quick [question] slow, later message"


@pytest.fixture
def waiting(real: Runner) -> Task:
    task = real.advance(real.task(text="# Paint it\n\nrehearsal: ask-in-a-row\n"))
    assert task.phase == Phase.WAITING_FOR_INPUT
    return task


def next_request(real: Runner, task: Task, server: RehearsalServer) -> dict[str, Any]:
    """The first request of the agent that goes on with the task."""
    before = [request for request in server.requests if request.get("tools")]
    assert real.advance(task).phase == Phase.DONE
    request: dict[str, Any] = [one for one in server.requests if one.get("tools")][len(before)]
    for sign in ("[Tool result missing", "[Tool call ", "No response requested."):
        assert sign not in str(request["messages"])
    return request


def results(request: dict[str, Any]) -> list[str]:
    contents = [message["content"] for message in request["messages"]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_an_answer_in_place_of_one_that_was_taken_back(
    real: Runner, server: RehearsalServer, waiting: Task, settings: Any, record_property: Arrived
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    (question,) = waiting.questions.all()
    real.answer(question, "Red")
    question.refresh_from_db()
    undo_answer(question, by=acting(real.user))
    question.refresh_from_db()
    without_undo(settings)
    real.answer(question, "Blue")
    request = next_request(real, waiting, server)
    assert [text for text in results(request) if '"Which one?"="Blue"' in text]
    assert '"Which one?"="Red"' not in str(request["messages"])
    assert {"early", "quickly", "slowly"} <= set(results(request))
    record_property("arrived", f"{ROW}, after undo")


def test_an_answer_in_a_step_that_is_retried(
    real: Runner, server: RehearsalServer, waiting: Task, record_property: Arrived
) -> None:
    cancel_task(waiting, by=acting(real.user))
    waiting.refresh_from_db()
    retry_from(waiting, step(waiting), by=acting(real.user))
    assert real.advance(waiting).phase == Phase.WAITING_FOR_INPUT
    real.answer_all(waiting, "Blue")
    request = next_request(real, waiting, server)
    assert len([text for text in results(request) if '"Which one?"="Blue"' in text]) == 1
    assert len(results(request)) == 4
    record_property("arrived", f"{ROW}, retry")


def test_an_answer_in_a_new_session(
    real: Runner, server: RehearsalServer, waiting: Task, record_property: Arrived
) -> None:
    """H9."""
    Task.objects.filter(pk=waiting.pk).update(resume="replay")
    waiting.refresh_from_db()
    real.answer_all(waiting, "Blue")
    request = next_request(real, waiting, server)
    feedback = str(request["messages"][0]["content"]).split("--- FEEDBACK ---")[1]
    assert "Which one?" in feedback and "> Blue" in feedback
    assert results(request) == []
    record_property("arrived", f"{ROW}, replay")


def test_an_answer_while_the_projects_branch_is_merged(
    real: Runner, server: RehearsalServer, record_property: Arrived
) -> None:
    """V6: the session of a done task goes on with the conflict, and asks about it."""
    task = real.advance(real.task(text="# Paint it\n\nrehearsal: ask-while-merging\n"))
    assert task.phase == Phase.DONE
    GitRepository(Path(task.project.source)).commit(**{"paint.txt": "red\n"})
    let_agent_merge(task, by=acting(real.user), via=Channel.WEB)
    assert real.advance(task).phase == Phase.WAITING_FOR_INPUT
    real.answer_all(task, "Blue")
    request = next_request(real, task, server)
    assert len([text for text in results(request) if '"Which one?"="Blue"' in text]) == 1
    assert {"early", "quickly", "slowly"} <= set(results(request))
    assert file_in(task, "paint.txt").read_text() == "red\nblue\n"
    record_property("arrived", f"{ROW}, merge")
