"""All pairs of phases: what the table of moves allows happens, and nothing else does (R3)."""

from __future__ import annotations

import ast
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import CANCELLABLE, ENDED, MOVES, PHASE_DISPLAYS, RESUMABLE, Phase, allowed
from tasks_app.history import transitions
from tasks_app.history.transitions import move, move_between_tasks
from tasks_app.models import Change, ChangeKind, Sequence, SequenceTransition, Step, Task, Transition
from tests.factories import SequenceFactory, TaskFactory, UserFactory

PAIRS = [pytest.param(*pair, id=f"{pair[0]}-{pair[1]}") for pair in product(Phase, Phase)]
KINDS = pytest.mark.parametrize("kind", ["task", "step"])


def a_thing(kind: str, phase: Phase) -> Task | Step:
    task = TaskFactory.create(phase=phase if kind == "task" else Phase.RUNNING)
    if kind == "task":
        return task
    step: Step = task.steps.get(position=1)
    Step.objects.filter(pk=step.pk).update(phase=phase)
    step.refresh_from_db()
    return step


def row(thing: Task | Step) -> dict[str, Any]:
    return dict(type(thing).objects.filter(pk=thing.pk).values().get())


def writes_of_phases(tree: ast.AST) -> list[int]:
    """The lines at which a phase is assigned, or given to one of the calls that write rows."""
    lines = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Attribute) and target.attr == "phase" for target in targets):
            lines.append(node.lineno)  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            writing = node.func.attr in ("update", "create", "get_or_create", "update_or_create")
            if writing and any(word.arg == "phase" for word in node.keywords):
                lines.append(node.lineno)
    return lines


class TestTheOnlyWriter:
    """R3: the history and the notice are written with each move, so nobody else may make one."""

    @pytest.mark.parametrize(
        "text", ["task.phase = x", "rows.update(a=1, phase=x)", "Task.objects.create(phase=x)"]
    )
    def test_a_write_is_seen(self, text: str) -> None:
        assert writes_of_phases(ast.parse(text)) == [1]

    def test_it_is_transitions(self) -> None:
        code = Path(transitions.__file__).parents[1]
        writers = {
            str(path.relative_to(code))
            for path in code.rglob("*.py")
            if writes_of_phases(ast.parse(path.read_text()))
        }
        assert writers == {"history/transitions.py", "management/demo.py"}, (
            "the demo makes rows that never ran"
        )


class TestTheTable:
    def test_it_has_all_phases(self) -> None:
        assert set(MOVES) == set(Phase)

    @pytest.mark.parametrize("phase", Phase)
    def test_nothing_moves_to_where_it_is(self, phase: Phase) -> None:
        assert not allowed(phase, phase)

    @pytest.mark.parametrize("phase", Phase)
    def test_only_a_worker_who_runs_a_task_can_end_it_well_or_badly(self, phase: Phase) -> None:
        assert (allowed(phase, Phase.DONE), allowed(phase, Phase.FAILED)) == (phase is Phase.RUNNING,) * 2

    @pytest.mark.parametrize("phase", sorted(Phase))
    def test_every_phase_has_a_way_on(self, phase: Phase) -> None:
        assert MOVES[phase]

    @pytest.mark.parametrize("phase", sorted(RESUMABLE))
    def test_what_can_be_resumed_can_become_pending(self, phase: Phase) -> None:
        assert allowed(phase, Phase.PENDING)

    @pytest.mark.parametrize("phase", sorted(CANCELLABLE))
    def test_what_can_be_cancelled_can_become_cancelled(self, phase: Phase) -> None:
        assert allowed(phase, Phase.CANCELLED)


class TestTheDisplay:
    @pytest.mark.parametrize("phase", Phase)
    def test_every_phase_has_a_label_a_sentence_a_tone_and_an_icon(self, phase: Phase) -> None:
        facts = PHASE_DISPLAYS[phase]
        assert facts.label and facts.tone and facts.icon and facts.sentence.endswith(".")

    def test_labels_and_icons_differ(self) -> None:
        assert len({facts.label for facts in PHASE_DISPLAYS.values()}) == len(Phase)
        assert len({facts.icon for facts in PHASE_DISPLAYS.values()}) == len(Phase)

    def test_only_the_phase_that_waits_for_a_human_calls_for_attention(self) -> None:
        """USERS: amber only for "a human is needed", red only for failed."""
        tones = {
            facts.tone: phase for phase, facts in PHASE_DISPLAYS.items() if facts.tone in {"attention", "bad"}
        }
        assert tones == {"attention": Phase.WAITING_FOR_INPUT, "bad": Phase.FAILED}


@pytest.mark.django_db
class TestMoves:
    @KINDS
    @pytest.mark.parametrize(("source", "target"), PAIRS)
    def test_a_move_is_made_and_recorded_just_when_the_table_allows_it(
        self, kind: str, source: Phase, target: Phase
    ) -> None:
        thing = a_thing(kind, source)
        before = row(thing)

        if not allowed(source, target):
            with pytest.raises(
                IllegalMove, match=f"is {source} and cannot become {target}$".replace("_", " ")
            ):
                move(thing, target, reason="for a test")
            assert row(thing) == before
            assert thing.phase == source
            assert not Transition.objects.exists() and not Change.objects.exists()
            return

        move(thing, target, reason="for a test")
        assert thing.phase == row(thing)["phase"] == target
        transition = Transition.objects.get()
        assert (transition.source, transition.target, transition.reason) == (source, target, "for a test")
        assert transition.step_id == (thing.pk if kind == "step" else None)
        task_id = thing.pk if isinstance(thing, Task) else thing.task_id
        assert transition.task_id == task_id
        assert [(change.task_id, change.kind) for change in Change.objects.all()] == [
            (task_id, ChangeKind.PHASE)
        ]

    def test_who_moved_it_is_recorded(self) -> None:
        ann = UserFactory.create()
        move(a_thing("task", Phase.FAILED), Phase.PENDING, by=ann)
        assert Transition.objects.get().actor == ann

    def test_fields_are_written_with_the_move(self) -> None:
        task = a_thing("task", Phase.RUNNING)
        move(task, Phase.FAILED, failure="No luck.")
        assert row(task)["failure"] == task.failure == "No luck."

    def test_the_times_follow_from_the_moves(self) -> None:
        task = a_thing("task", Phase.PENDING)
        move(task, Phase.RUNNING)
        started = row(task)["started_at"]
        assert started is not None and row(task)["ended_at"] is None
        move(task, Phase.FAILED)
        assert row(task)["ended_at"] is not None
        move(task, Phase.PENDING)
        move(task, Phase.RUNNING)
        assert (row(task)["started_at"], row(task)["ended_at"]) == (started, None)

    def test_a_new_start_forgets_the_old_failure(self) -> None:
        task = a_thing("task", Phase.PENDING)
        Task.objects.filter(pk=task.pk).update(failure="No luck.")
        task.refresh_from_db()
        move(task, Phase.RUNNING)
        assert row(task)["failure"] == task.failure == ""

    @pytest.mark.parametrize("phase", sorted(ENDED))
    def test_ended_phases_have_an_end_and_only_they(self, phase: Phase) -> None:
        task = a_thing("task", Phase.RUNNING)
        move(task, phase)
        assert task.ended_at is not None

    @KINDS
    def test_a_holder_who_lost_the_lease_moves_nothing(self, kind: str) -> None:
        """R2"""
        thing = a_thing(kind, Phase.RUNNING)
        Task.objects.update(lease_epoch=2)
        with pytest.raises(IllegalMove):
            move(thing, Phase.DONE, epoch=1)
        assert row(thing)["phase"] == Phase.RUNNING and not Transition.objects.exists()
        move(thing, Phase.DONE, epoch=2)
        assert row(thing)["phase"] == Phase.DONE

    @KINDS
    def test_a_stale_phase_is_refused(self, kind: str) -> None:
        thing = a_thing(kind, Phase.RUNNING)
        stale = type(thing).objects.get(pk=thing.pk)
        move(thing, Phase.DONE)
        with pytest.raises(IllegalMove, match="is no longer running and cannot become failed"):
            move(stale, Phase.FAILED)
        assert row(thing)["phase"] == Phase.DONE
        assert Transition.objects.count() == Change.objects.count() == 1


BETWEEN_TASKS = {
    *product([Phase.RUNNING], [Phase.PENDING, Phase.DONE, Phase.FAILED]),
    *product([Phase.FAILED], [Phase.PENDING, Phase.DONE, Phase.FAILED]),
}


@pytest.mark.django_db
class TestMovesBetweenTasks:
    @pytest.mark.parametrize(("source", "target"), PAIRS)
    def test_a_sequence_moves_only_from_a_task_that_is_done_or_a_folder_at_fault(
        self, source: Phase, target: Phase
    ) -> None:
        sequence = SequenceFactory.create(phase=source)
        if (source, target) not in BETWEEN_TASKS:
            with pytest.raises(
                IllegalMove, match=f"is {source} and cannot become {target}$".replace("_", " ")
            ):
                move_between_tasks(sequence, target)
            assert not SequenceTransition.objects.exists()
            return
        move_between_tasks(sequence, target, failure="No luck.")
        fresh = Sequence.objects.get()
        assert fresh.phase == sequence.phase == target
        assert (fresh.ended_at is not None) == (target in ENDED)
        moved = [(row.source, row.target, row.reason) for row in SequenceTransition.objects.all()]
        assert moved == ([(source, target, "No luck.")] if source != target else [])

    def test_a_stale_phase_is_refused(self) -> None:
        sequence = SequenceFactory.create(phase=Phase.RUNNING)
        stale = Sequence.objects.get()
        move_between_tasks(sequence, Phase.DONE)
        with pytest.raises(IllegalMove, match="is no longer running and cannot become failed"):
            move_between_tasks(stale, Phase.FAILED)
        assert Sequence.objects.get().phase == Phase.DONE
        assert SequenceTransition.objects.count() == 1


@KINDS
@pytest.mark.django_db(transaction=True)
def test_of_many_movers_at_once_one_wins(kind: str) -> None:
    """R1, R3"""
    thing = a_thing(kind, Phase.RUNNING)
    barrier = threading.Barrier(6)
    outcomes: list[str] = []

    def mover() -> None:
        mine = type(thing).objects.get(pk=thing.pk)
        barrier.wait(30)
        try:
            move(mine, Phase.DONE)
            outcomes.append("moved")
        except IllegalMove:
            outcomes.append("told")
        finally:
            connection.close()

    movers = [threading.Thread(target=mover) for _ in range(6)]
    for thread in movers:
        thread.start()
    for thread in movers:
        thread.join()

    assert sorted(outcomes) == ["moved"] + ["told"] * 5
    assert Transition.objects.count() == Change.objects.count() == 1
