"""What the API returns and what `--json` prints is made by the same models, with real types (W5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.utils import timezone
from pydantic import BaseModel

from tasks_app.api.app import document
from tasks_app.models import Question, Run, Task
from tasks_app.schemas.questions import AnswerOutcome
from tasks_app.schemas.sequences import SequenceWithTasks
from tasks_app.schemas.tasks import TaskOut, TaskOutcome, TaskWithSteps
from tasks_app.schemas.workers import Status
from tests.api import Script
from tests.factories import QuestionFactory, SequenceFactory, UserFactory, WorkerBeatFactory
from tests.integration.conftest import Manage

pytestmark = pytest.mark.django_db

#: Hours of a day, which are no moments.
CLOCKS = {"digest_at"}
#: Time goes on between two looks.
MOVING = ("seconds", "working_seconds", "paused_seconds")


@pytest.fixture
def question() -> Question:
    """Of a task with a value in every field that has one only sometimes."""
    admin = UserFactory.create(username="admin", is_superuser=True)
    question = QuestionFactory.create(task__created_by=admin, task__phase="waiting_for_input")
    now = timezone.now()
    sequence = SequenceFactory.create(project=question.task.project, created_by=admin, started_at=now)
    Task.objects.update(sequence=sequence, head_commit="a" * 40, started_at=now, resets_at=now)
    Run.objects.update(ended_at=now, outcome="asked", model="opus", input_tokens=5, cost_usd=0.5)
    question.refresh_from_db()
    return question


@pytest.fixture
def api(question: Question) -> Callable[[str], Any]:
    script = Script(question.task.created_by)

    def returned(address: str) -> Any:
        answer = script.get(address)
        assert answer.status_code == 200, answer.content
        return answer.json()

    return returned


def printed(manage: Manage, *words: object) -> Any:
    _, out, err = manage(*words, "--json")
    assert not err
    return json.loads(out)


def still(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [still(one) for one in value] if name == "tasks" else value
        for name, value in facts.items()
        if name not in MOVING
    }


def test_every_moment_is_a_date_time_in_the_openapi_document() -> None:
    moments = list(fields(lambda name: (name == "at" or name.endswith("_at")) and name not in CLOCKS))
    assert len(moments) > 30
    for where, described in moments:
        kinds = described.get("anyOf", [described])
        assert kinds[0].get("format") == "date-time" and kinds[0].get("type") == "string", where


def test_every_day_is_a_date_in_the_openapi_document() -> None:
    days = dict(fields(lambda name: name in ("day", "since", "until")))
    assert {"UsageReport.since", "UsageReport.until", "DayPart.day"} <= set(days)
    assert {described["format"] for described in days.values()} == {"date"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Phase", {"pending", "running", "waiting_for_input", "waiting_for_reset", "interrupted", "done"}),
        ("QuestionState", {"open", "answered", "dismissed", "withdrawn"}),
        ("Scope", {"read", "answer", "write", "manage"}),
        ("Outcome", {"finished", "asked", "failed", "limit", "interrupted", "crashed", "lost"}),
        ("DeliveryState", {"waiting", "sent", "failed", "dropped"}),
    ],
)
def test_a_field_with_a_list_of_values_says_so(name: str, values: set[str]) -> None:
    assert values <= set(document()["components"]["schemas"][name]["enum"])


def fields(wanted: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in document()["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            if wanted(field):
                yield f"{name}.{field}", described


def test_a_task_is_the_same_in_the_api_and_in_the_terminal(
    manage: Manage, question: Question, api: Any
) -> None:
    in_terminal = printed(manage, "status", question.task_id)
    assert in_terminal.pop("steps") == api(f"/tasks/{question.task_id}/steps")["items"]
    by_api = api(f"/tasks/{question.task_id}")
    assert by_api.pop("text") == question.task.text
    assert still(in_terminal) == still(by_api)


def test_a_sequence_is_the_same_in_the_api_and_in_the_terminal(
    manage: Manage, question: Question, api: Any
) -> None:
    number = question.task.sequence_id
    by_api = api(f"/sequences/{number}")
    read_from_git = {"to_come", "trouble", "more_open", "allow_key"}
    assert read_from_git <= set(by_api)
    assert still(printed(manage, "status", f"sequence:{number}")) == {
        name: value for name, value in still(by_api).items() if name not in read_from_git
    }


def test_moments_are_iso_8601_with_microseconds_and_offset(
    manage: Manage, question: Question, api: Any
) -> None:
    """As they have always been: scripts compare them as texts."""
    task = question.task
    for facts in (printed(manage, "status", task.pk), api(f"/tasks/{task.pk}")):
        assert facts["created_at"] == task.created_at.isoformat()
        assert facts["created_at"].endswith("+00:00")
        assert facts["question"]["asked_at"] == question.asked_at.isoformat()


def printed_as(model: type[BaseModel], facts: Any) -> None:
    """Nothing is missing, nothing is left over, and everything is of its type."""
    assert model.model_validate(facts).model_dump(mode="json") == facts


def test_what_commands_print_is_what_their_models_say(manage: Manage, question: Question) -> None:
    WorkerBeatFactory.create()
    task = question.task
    printed_as(Status, printed(manage, "status"))
    printed_as(TaskWithSteps, printed(manage, "status", task.pk))
    printed_as(SequenceWithTasks, printed(manage, "status", f"sequence:{task.sequence_id}"))
    printed_as(AnswerOutcome, printed(manage, "answer", question.pk, "Half up", "--as", "admin"))
    printed_as(TaskOutcome, printed(manage, "cancel", task.pk, "--as", "admin"))


def test_a_value_of_another_type_is_no_task(question: Question) -> None:
    facts = TaskOut.from_row(question.task).model_dump(mode="json")
    for name, wrong in {"created_at": "yesterday", "phase": "asleep", "threshold": "high"}.items():
        with pytest.raises(ValueError, match=name):
            TaskOut.model_validate({**facts, name: wrong})
