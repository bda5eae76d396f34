"""What agents leave for the portal becomes rows: replies, unfit and followed decisions (D3, V4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.agent.fake import FakeAgent
from tasks_app.agent.fake_script import Call, Turn, say
from tasks_app.core.phases import Phase
from tasks_app.engine.decisions import followed_in
from tasks_app.models import Decision, DecisionEventKind, Project, ReviewReason, Task, ThreadComment
from tests.factories import DecisionFactory, ProjectFactory, ThreadFactory
from tests.without_git import Rows

pytestmark = pytest.mark.django_db(transaction=True)

#: An argument that is no UTF-8, as Python reads it, and a NUL.
BROKEN = "yen \udcff and \x00"
STORED = "yen \ufffd and \ufffd"


@pytest.fixture
def rows(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    return Rows.of(tmp_path, monkeypatch)


@pytest.fixture
def project() -> Project:
    return ProjectFactory.create()


Leaves = Callable[..., None]


@pytest.fixture
def agent_leaves(rows: Rows, project: Project) -> Leaves:
    """Let an agent of a new task leave documents and say something at its end; the task is then done."""

    def run(
        *documents: tuple[str, dict[str, object]], closing: str = "Done.", task: Task | None = None
    ) -> None:
        def write(workspace: Path) -> str:
            for folder, content in documents:
                home = workspace.parent / "home" / folder
                home.mkdir(parents=True, exist_ok=True)
                (home / "one.json").write_text(json.dumps(content))
            return "noted"

        rows.agent = FakeAgent(
            lambda prompt: [Turn(calls=(Call("Bash", {"command": "x"}, write),)), say(closing)]
        )
        task = task or rows.rows("do", project=project, queued_at=timezone.now())
        assert rows.advance(task).phase == Phase.DONE

    return run


def unfit(number: int, why: str = "Invoices are in yen.") -> tuple[str, dict[str, object]]:
    return "unfit", {"decision": number, "why": why}


def kinds(decision: Decision) -> list[str]:
    return list(decision.events.order_by("pk").values_list("kind", flat=True))


def fresh(decision: Decision) -> Decision:
    decision.refresh_from_db()
    return decision


class TestTextsThatNoDatabaseAccepts:
    def test_d3_in_what_an_agent_says_of_a_decision(self, project: Project, agent_leaves: Leaves) -> None:
        decision = DecisionFactory.create(project=project)
        agent_leaves(unfit(1, BROKEN))
        assert decision.events.get(kind=DecisionEventKind.UNFIT).note == STORED
        assert fresh(decision).review_note == STORED

    def test_v4_in_what_an_agent_replies(self, rows: Rows, project: Project, agent_leaves: Leaves) -> None:
        task = rows.rows("do", project=project, queued_at=timezone.now())
        ThreadFactory.create(task=task)
        agent_leaves(("replies", {"thread": 1, "text": BROKEN}), task=task)
        assert ThreadComment.objects.exclude(run=None).get().text == STORED
