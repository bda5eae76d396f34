"""What agents leave for the portal becomes rows: replies, unfit and followed decisions (D3, V4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.runs.conclude import halt
from tasks_app.engine.runs.decisions import followed_in, note_followed
from tasks_app.models import (
    Decision,
    DecisionEvent,
    DecisionEventKind,
    Event,
    EventKind,
    Project,
    ReviewReason,
    Task,
    ThreadComment,
)
from tasks_app.prompting.decisions import entry
from tasks_app.services.decisions.changes import mark_reviewed
from tasks_app.services.decisions.content import known_decision, listed_in_prompt
from tasks_app.services.results import named_decisions
from tests.factories import (
    DecisionFactory,
    MembershipFactory,
    ProjectFactory,
    RunFactory,
    TaskFactory,
    ThreadFactory,
)
from tests.fake_agent import FakeAgent
from tests.fake_script import Call, Turn, ask, say
from tests.people import acting
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
    return "said", {"decision": number, "why": why}


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


class TestUnfit:
    """D3."""

    @pytest.mark.parametrize(
        "hidden",
        [
            {"scope": "step", "step": "plan"},
            {"state": "superseded"},
            {"state": "proposed", "decided_by": None, "decided_at": None},
        ],
        ids=["another step", "superseded", "proposed"],
    )
    def test_only_decisions_that_the_agent_can_read(
        self, project: Project, agent_leaves: Leaves, hidden: dict[str, Any]
    ) -> None:
        DecisionFactory.create(project=project)
        decision = DecisionFactory.create(project=project, **hidden)
        agent_leaves(unfit(2))
        assert not kinds(decision) and not fresh(decision).review_reason

    def test_d3_later_agents_hear_of_it_and_it_is_no_override(
        self, project: Project, agent_leaves: Leaves
    ) -> None:
        decision = DecisionFactory.create(project=project)
        agent_leaves(unfit(1))
        told = entry(known_decision(fresh(decision)))
        assert fresh(decision).review_note in told and "until a human decides" in told
        task = fresh(decision).events.get(kind="unfit").task
        assert f"in the task “{task}”" in told, "“this task” is not the reader's"
        counted = project.decisions.with_counts().get()
        assert (counted.uses, counted.overrides, counted.doubts) == (0, 0, 1)
        Decision.objects.update(review_reason="", review_note="")  # somebody looked at it
        assert "does not fit" not in entry(known_decision(fresh(decision)))

    def test_d3_later_prompts_of_its_task_say_who_kept_it(
        self, project: Project, agent_leaves: Leaves
    ) -> None:
        decision, ada = (
            DecisionFactory.create(project=project),
            MembershipFactory.create(project=project).user,
        )
        agent_leaves(unfit(1))
        task = fresh(decision).events.get(kind="unfit").task
        assert task and listed_in_prompt([fresh(decision)], task)[0].kept == ""
        mark_reviewed(decision, by=acting(ada), note="Yen have no cents.")
        told = entry(listed_in_prompt([fresh(decision)], task)[0])
        assert f"{ada.shown_name} kept it, and noted: Yen have no cents." in told
        other = TaskFactory.create(project=project)
        assert listed_in_prompt([fresh(decision)], other)[0].kept == ""

    def test_d3_one_that_was_kept_and_then_followed_counts_as_followed(self, project: Project) -> None:
        """The first of the runs that followed it counted, which was before it did not fit."""
        decision = DecisionFactory.create(project=project)
        run = RunFactory.create(task=TaskFactory.create(project=project))
        note_followed(run, "Done.\n\nDecisions followed: D-1")
        DecisionEvent.objects.create(decision=decision, kind="unfit", task=run.step.task, run=run)
        assert [one.is_unfit for one in named_decisions([run.step.task])] == [True]
        note_followed(RunFactory.create(step=run.step, number=2), "Done.\n\nDecisions followed: D-1")
        assert [one.is_unfit for one in named_decisions([run.step.task])] == [False, True]

    def test_d3_one_run_leaves_one_event_of_a_decision(self, rows: Rows, project: Project) -> None:
        decision = DecisionFactory.create(project=project)

        def write(workspace: Path) -> str:
            folder = workspace.parent / "home" / "said"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(3):
                (folder / f"{number}.json").write_text(json.dumps(unfit(1)[1]))
            return "noted"

        rows.agent = FakeAgent(
            lambda prompt: [Turn(calls=(Call("Bash", {"command": "x"}, write),)), say("Done.")]
        )
        assert rows.advance(rows.rows("do", project=project, queued_at=timezone.now())).phase == Phase.DONE
        assert kinds(decision) == ["unfit"]

    def test_a_question_is_seen_after_what_the_agent_said_before_it(
        self, rows: Rows, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decision = DecisionFactory.create(project=project)
        reasons = []

        def watched(*args: Any) -> None:
            reasons.append(fresh(decision).review_note)
            halt(*args)

        def write(workspace: Path) -> str:
            folder = workspace.parent / "home" / "said"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "one.json").write_text(json.dumps(unfit(1)[1]))
            return "noted"

        monkeypatch.setattr("tasks_app.engine.runs.steps.halt", watched)
        rows.agent = FakeAgent(
            lambda prompt: [Turn(calls=(Call("Bash", {"command": "x"}, write), ask("Yen or won?")))]
        )
        task = rows.advance(rows.rows("do", project=project, queued_at=timezone.now()))
        assert (task.phase, reasons) == (Phase.WAITING_FOR_INPUT, ["Invoices are in yen."])

    def test_agents_of_two_tasks_may_choose_the_same_file_name(
        self, project: Project, agent_leaves: Leaves
    ) -> None:
        decision = DecisionFactory.create(project=project)
        agent_leaves(unfit(1, "In yen."))
        agent_leaves(unfit(1, "In won."))
        assert [event.note for event in decision.events.order_by("pk")] == ["In yen.", "In won."]
        assert decision.events.values("task").distinct().count() == 2

    def test_a_decision_whose_code_has_changed_keeps_that_mark(
        self, project: Project, agent_leaves: Leaves
    ) -> None:
        decision = DecisionFactory.create(
            project=project, review_reason=ReviewReason.STALE, review_note="src/a.py"
        )
        for why in ("In yen.", "In won."):
            agent_leaves(unfit(1, why))
        assert fresh(decision).why_review == (
            "the code that it cites has changed: src/a.py; an agent says that it does not fit: In yen."
        )
        assert kinds(decision) == ["unfit", "unfit"]


class TestFollowed:
    """D3: only the line that the prompt asks for counts."""

    @pytest.mark.parametrize(
        ("closing", "numbers"),
        [
            ("Done.\n\nDecisions followed: D-3, D-17", {3, 17}),
            ("**Decisions followed:** `D-3` and d-17.\n", {3, 17}),
            ("Decisions followed: D-1\n…\nDecisions followed: D-3", {3}),
            ("Decisions followed: none. D-17 did not apply.", set()),
            ("Decisions followed: D-3, D-17 did not apply", {3}),
            ("D-17 did not apply, and I followed D-3.", set()),
            ("", set()),
        ],
    )
    def test_the_line(self, closing: str, numbers: set[int]) -> None:
        assert followed_in(closing) == numbers

    def test_it_counts_for_decisions_that_hold_for_the_step(
        self, project: Project, agent_leaves: Leaves
    ) -> None:
        here, mentioned = DecisionFactory.create_batch(2, project=project)
        other = DecisionFactory.create(project=project, scope="step", step="plan")
        agent_leaves(closing="D-2 did not apply.\n\nDecisions followed: D-1, D-3, D-99")
        assert kinds(here) == ["followed"] and not kinds(other) and not kinds(mentioned)
        (note,) = Event.objects.filter(kind=EventKind.NOTE)
        assert "D-99 does not exist" in note.payload["text"] and "D-3" not in note.payload["text"]
