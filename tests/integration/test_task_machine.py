"""Any sequence of what people, workers, agents and clocks do, held against a pure model (R1, R2, R3).

CATHERDER_TEST_EXAMPLES=500 tries more sequences than the suite does. A failure prints its sequence; making it
shorter is left out, because that takes minutes.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tasks_app.agent.port import RunOrder, RunResult
from tasks_app.core.errors import BadInput, IllegalMove, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.engine import advance as engine
from tasks_app.engine import crashpoints
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.models import Channel, Project, Question, Run, SessionEntry, Task
from tasks_app.services.bulk import retry_from
from tasks_app.services.questions.answers import Reply, answer_question, dismiss_question
from tasks_app.services.tasks import cancel_task, resume_task, start_task
from tests import fake_script
from tests.consistent import assert_at_rest, assert_consistent
from tests.fake_agent import FakeAgent
from tests.fake_script import Call, Die, Fail, Limit, Turn, ask, say
from tests.integration.task_model import PLAIN, STEPS, Act, Cut, TaskModel
from tests.people import acting
from tests.without_git import Rows

EXAMPLES = int(os.environ.get("CATHERDER_TEST_EXAMPLES", "20"))
CUTS = [Cut("claimed", dies=True)] + [
    Cut(point, dies)
    for point in ("begun", "run-opened", "ask-recorded", "agent-ended", "halted", "step-done")
    for dies in (True, False)
]
CALLED_OFF = [act for act in Act if act not in PLAIN]


class Died(BaseException):
    """The worker's process was killed: nothing of it does anything more."""


class Worker:
    """A worker whose agent plays given acts, one a run, and which is shut down when there is none left."""

    def __init__(self, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = rows
        self.acts: list[Act] = []
        self.cut: Cut | None = None
        self.task: Task
        self._shut_down = self._dead = False
        self._played: dict[str, list[fake_script.Act]] = {}
        self._agent = FakeAgent(lambda prompt: self._played[self._session])
        rows.agent = SimpleNamespace(name="played", sandboxed=False, run=self._run)
        rows.stop_signal = lambda: StopReason.SHUTDOWN if self._shut_down else None
        monkeypatch.setattr(crashpoints, "os", SimpleNamespace(_exit=self._reached))
        release = engine._release
        monkeypatch.setattr(engine, "_release", lambda lease: None if self._dead else release(lease))
        self._arm = lambda point: monkeypatch.setattr(crashpoints, "_armed", point)

    def work(self, task: Task, *acts: Act, cut: Cut | None = None) -> bool:
        """Whether there was anything to do."""
        self.task, self.acts, self.cut = task, list(acts), cut
        self._shut_down = self._dead = False
        self._arm(cut.point if cut else "")
        try:
            return engine.advance(task.pk, owner="worker", context=self.rows.context)
        except Died:
            return True

    def _reached(self, code: int) -> None:
        self._arm("")
        if self.cut and self.cut.dies:
            self._dead = True
            raise Died
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise OperationalError("database or disk is full") from full

    def _run(self, order: RunOrder, recorder: Any) -> RunResult:
        if not self.acts:
            self._shut_down = True
            raise Stopped(StopReason.SHUTDOWN)
        self._session = order.session_id
        played = self._played.setdefault(order.session_id, [])
        del played[self._seen(order.session_id) :]
        played += self._moves(self.acts.pop(0), number=len(self._agent.runs))
        return self._agent.run(order, recorder)

    @staticmethod
    def _seen(session: str) -> int:
        """How many acts the session holds: a worker may have died before the last ones were played."""
        entries = SessionEntry.objects.filter(session_id=session).values_list("entry", flat=True)
        numbers = [int(entry["act"].removeprefix("msg_")) for entry in entries if "act" in entry]
        return max(numbers, default=-1) + 1

    def _moves(self, act: Act, *, number: int) -> list[fake_script.Act]:
        meanwhile = (Call("Bash", {"command": act}, lambda workspace: self._somebody(act)),)
        speech = say(f"Turn {number}.")
        if act in (Act.ENDS, Act.FAILS, Act.LIMIT, Act.KILLED):
            ends: dict[Act, fake_script.Act] = {
                Act.FAILS: Fail(),
                Act.LIMIT: Limit(int(time.time()) + 3600),
                Act.KILLED: Die(-9),
            }
            return [speech, *([ends[act]] if act in ends else [])]
        if act.startswith("asks"):
            return [
                Turn(f"Turn {number}.", (*(meanwhile if act is not Act.ASKS else ()), ask(f"No {number}?")))
            ]
        return [Turn(f"Turn {number}.", meanwhile)]

    def _somebody(self, act: Act) -> str:
        if act is Act.STOPPED_BY_HAND:
            raise Stopped(StopReason.INTERRUPTED)
        cancel_task(self.task, by=acting(self.rows.user))
        if "resumed" in act:
            resume_task(self.task, by=acting(self.rows.user))
        return ""


class TaskMachine(RuleBasedStateMachine):
    """One task. Each rule does the same to the rows and to the model; both must agree afterwards."""

    rows: Rows
    project: Project
    worker: Worker

    def __init__(self) -> None:
        super().__init__()
        self.task = self.rows.rows(*STEPS, project=self.project, wait_for_reset=True)
        self.model = TaskModel()
        self.epoch = 0

    @property
    def user(self) -> Any:
        return self.rows.user

    @rule()
    def start(self) -> None:
        start_task(self.task, by=acting(self.user))
        self.model.start()

    @rule(act=st.sampled_from(PLAIN))
    def a_worker_works(self, act: Act) -> None:
        self._work(act)

    @rule(act=st.sampled_from(PLAIN), cut=st.sampled_from(CUTS))
    def a_worker_is_cut_off(self, act: Act, cut: Cut) -> None:
        """It is killed, or the database refuses a write."""
        self._work(act, cut=cut)

    @rule(act=st.sampled_from(CALLED_OFF))
    def somebody_cancels_while_a_worker_works(self, act: Act) -> None:
        self._work(act)

    @rule(state=st.sampled_from(["answered", "dismissed"]))
    def settle_the_question(self, state: str) -> None:
        question = self.task.questions.last()
        if question is None:
            return
        self._allowed(lambda: self._settle(question, state), self.model.settle(state))

    @rule()
    def cancel(self) -> None:
        self._allowed(lambda: cancel_task(self.task, by=acting(self.user)), self.model.cancel())

    @rule()
    def go_on(self) -> None:
        self._allowed(lambda: resume_task(self.task, by=acting(self.user)), self.model.go_on())

    @rule(n=st.integers(0, len(STEPS) - 1))
    def retry(self, n: int) -> None:
        step = self.task.steps.get(name=STEPS[n])
        self._allowed(lambda: retry_from(self.task, step, by=acting(self.user)), self.model.retry(n))

    @rule(back=st.booleans())
    def the_lease_ends(self, back: bool) -> None:
        """By time, or because the clock was set back, so that it would not end for an hour."""
        held = Task.objects.filter(pk=self.task.pk).exclude(lease_expires=None)
        held.update(lease_expires=self._another_time(back))
        self.model.lease_ends()

    @rule(back=st.booleans())
    def the_pause_ends(self, back: bool) -> None:
        paused = Task.objects.filter(pk=self.task.pk).exclude(retry_at=None)
        paused.update(retry_at=self._another_time(back))
        self.model.pause_ends()

    @rule()
    def the_limit_resets(self) -> None:
        limited = Task.objects.filter(pk=self.task.pk).exclude(resets_at=None)
        limited.update(resets_at=self._another_time(back=False))
        self.model.limit_resets()

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        self.task.refresh_from_db()
        model, steps = self.model, list(self.task.steps.order_by("position"))
        assert (self.task.phase, [step.phase for step in steps]) == (model.phase, model.steps)
        assert [step.failures for step in steps] == model.failures
        assert self.task.questions.open().count() == int(model.question == "open")
        assert [step.runs.exists() for step in steps] == model.has_run

    @invariant()
    def what_is_due_is_found(self) -> None:
        assert Task.objects.due().filter(pk=self.task.pk).exists() == self.model.due

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert_consistent(self.task)
        without_end = Run.objects.filter(step__task=self.task, outcome="").count()
        assert without_end == int(self.model.left is not None)

    @invariant()
    def epochs_only_grow(self) -> None:
        assert self.task.lease_epoch >= self.epoch
        self.epoch = self.task.lease_epoch

    def teardown(self) -> None:
        """Whatever happened, the task can be brought to its end, and each answer that counts arrives."""
        self.start()
        for _ in range(4):
            self.the_lease_ends(back=False)
            self.the_pause_ends(back=False)
            self.the_limit_resets()
            self.settle_the_question("answered")
            self.go_on()
            self._work(Act.ENDS, Act.ENDS)
        self.the_rows_are_as_the_model_says()
        assert self.task.phase == Phase.DONE
        assert_at_rest(self.task)
        for question in self.task.questions.settled().select_related("run", "step"):
            counts = question.run.number >= question.step.first_run
            assert not counts or question.delivered_at is not None, question
        Task.objects.all().delete()
        SessionEntry.objects.all().delete()

    def _work(self, *acts: Act, cut: Cut | None = None) -> None:
        before = Task.objects.values_list("lease_epoch", flat=True).get(pk=self.task.pk)
        due = self.model.work(*acts, cut=cut)
        assert self.worker.work(self.task, *acts, cut=cut) == due
        self.task.refresh_from_db()
        assert (self.task.lease_epoch > before) == due

    def _settle(self, question: Question, state: str) -> None:
        """Each time in other words: the same answer by the same person would be taken for a repeat."""
        words = str(timezone.now())
        if state == "answered":
            answer_question(question, Reply.to(question, words), by=acting(self.user), via=Channel.WEB)
        else:
            dismiss_question(question, by=acting(self.user), via=Channel.WEB, notes=words)

    @staticmethod
    def _allowed(act: Callable[[], object], allowed: bool) -> None:
        """Do it, and see it refused if the model says that it is not allowed."""
        if allowed:
            act()
            return
        with pytest.raises((IllegalMove, BadInput, NotOpen)) as refused:
            act()
        assert str(refused.value)

    @staticmethod
    def _another_time(back: bool) -> Any:
        return timezone.now() + (timedelta(hours=1) if back else -timedelta(seconds=1))


def test_rows_and_model_agree_after_any_sequence_of_events(
    transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path / "data"
    rows = Rows.of(tmp_path, monkeypatch)
    monkeypatch.setattr(TaskMachine, "rows", rows, raising=False)
    monkeypatch.setattr(TaskMachine, "project", rows.rows().project, raising=False)
    monkeypatch.setattr(TaskMachine, "worker", Worker(rows, monkeypatch), raising=False)
    run_state_machine_as_test(TaskMachine, settings=SETTINGS)


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=20,
    derandomize=True,
    database=None,
    phases=[HypothesisPhase.generate],
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
