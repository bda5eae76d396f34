"""A pure model of a task with its steps, its question and its lease: what must be so after each event.

It knows nothing of the database or the engine. `work` says what one worker makes of the task, given how the
agent's next run ends; after that run the worker is shut down, so that a run more is opened at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from tasks_app.core.phases import CANCELLABLE, ENDED, RESUMABLE, RETRYABLE, Phase

STEPS = ("plan", "implement")
#: Failed attempts that a step may make beside its first.
RETRIES = 1


class Act(StrEnum):
    """How a run of the agent ends, and what somebody does meanwhile."""

    ENDS = "ends"
    ASKS = "asks"
    FAILS = "fails"
    LIMIT = "limit"
    KILLED = "killed"
    STOPPED_BY_HAND = "stopped by hand"
    ASKS_CANCELLED = "asks, cancelled meanwhile"
    ASKS_CANCELLED_AND_RESUMED = "asks, cancelled and resumed meanwhile"
    ENDS_CANCELLED = "ends, cancelled meanwhile"
    ENDS_CANCELLED_AND_RESUMED = "ends, cancelled and resumed meanwhile"


PLAIN = tuple(act for act in Act if "meanwhile" not in act)
ASKING = tuple(act for act in Act if act.startswith("asks"))


@dataclass(frozen=True)
class Cut:
    """The worker dies, or the database refuses a write, when it gets to this point."""

    point: str
    dies: bool


class Left(StrEnum):
    """What a run without an end had said when its worker died."""

    NOTHING = "nothing"
    ASKED = "asked"
    FINISHED = "finished"


class _Over(Exception):
    """This worker does no more."""


@dataclass
class TaskModel:
    """`question` is the state of the last one that counts, "" for none. `held`: by a worker that died."""

    phase: Phase = Phase.PENDING
    steps: list[Phase] = field(default_factory=lambda: [Phase.PENDING] * len(STEPS))
    failures: list[int] = field(default_factory=lambda: [0] * len(STEPS))
    has_run: list[bool] = field(default_factory=lambda: [False] * len(STEPS))
    question: str = ""
    started: bool = False
    held: bool = False
    paused: bool = False
    limited: bool = False
    left: Left | None = None
    left_counts: bool = True
    to_judge: bool = False

    # What people do. Each says whether it is allowed, and changes nothing if it is not.

    def start(self) -> None:
        self.started = True

    def settle(self, state: str) -> bool:
        if self.question != "open":
            return False
        self.question, self.paused = state, False
        self._both(Phase.PENDING)
        return True

    def cancel(self) -> bool:
        if self.phase not in CANCELLABLE:
            return False
        self._move_steps(lambda phase: phase not in {*ENDED, Phase.PENDING}, Phase.CANCELLED)
        self.phase = Phase.CANCELLED
        if self.question == "open":
            self.question = "withdrawn"
        return True

    def go_on(self) -> bool:
        if self.phase not in RESUMABLE:
            return False
        reopened = self.phase == Phase.CANCELLED and self.question == "withdrawn"
        target = Phase.WAITING_FOR_INPUT if reopened else Phase.PENDING
        for n in self._move_steps(lambda phase: phase in RESUMABLE, target):
            self.failures[n] = 0
        if reopened:
            self.question = "open"
        self._queue(target)
        return True

    def retry(self, n: int) -> bool:
        before_it = set(self.steps[:n]) <= {Phase.DONE}
        if self.phase not in RETRYABLE or not self.has_run[n] or not before_it:
            return False
        for later in range(n, len(STEPS)):
            self.steps[later], self.failures[later] = Phase.PENDING, 0
        self.question, self.to_judge, self.left_counts = "", False, False
        self._queue(Phase.PENDING)
        return True

    # Time passes.

    def lease_ends(self) -> None:
        self.held = False

    def pause_ends(self) -> None:
        self.paused = False

    def limit_resets(self) -> None:
        self.limited = False

    # Workers.

    @property
    def due(self) -> bool:
        queued = self.phase == Phase.PENDING and self.started
        reset = self.phase == Phase.WAITING_FOR_RESET and not self.limited
        may_try = (queued or reset) and not self.paused
        return not self.held and (may_try or self.phase == Phase.RUNNING)

    def work(self, *acts: Act, cut: Cut | None = None) -> bool:
        """Whether a worker finds something to do, and what becomes of the task by it."""
        worked, left = False, list(acts)
        try:
            while self.due:
                worked = True
                self._reach("claimed", cut)
                self._work(left, cut)
        except _Over:
            pass
        return worked

    def _work(self, acts: list[Act], cut: Cut | None) -> None:
        self._recover()
        if self.phase == Phase.WAITING_FOR_RESET:
            self._both(Phase.PENDING)
        if self.phase == Phase.PENDING:
            self.phase, self.paused = Phase.RUNNING, False
        if self.phase != Phase.RUNNING:
            return
        self._reach("begun", cut)
        while self.phase == Phase.RUNNING and (n := self.current) is not None:
            self.steps[n] = Phase.RUNNING
            if self.to_judge:
                self.to_judge, self.steps[n] = False, Phase.DONE
                self._reach("step-done", cut)
            else:
                self._run(n, acts, cut)
        if self.current is None:
            self.phase = Phase.DONE

    def _run(self, n: int, acts: list[Act], cut: Cut | None) -> None:
        self.has_run[n] = True
        if not acts:
            self._both(Phase.PENDING)
            raise _Over
        act = acts.pop(0)
        self._reach("run-opened", cut, Left.NOTHING)
        if act in ASKING:
            self._reach("ask-recorded", cut, Left.ASKED)
        ends = {Act.ASKS: Left.ASKED, Act.ENDS: Left.FINISHED}
        self._reach(
            "agent-ended", cut if act is not Act.STOPPED_BY_HAND else None, ends.get(act, Left.NOTHING)
        )
        self._end(n, act)
        if act in ASKING:
            self._reach("halted", cut)

    def _end(self, n: int, act: Act) -> None:
        if "cancelled" in act:
            self.cancel()
        if "resumed" in act:
            self.go_on()
        if act in ASKING:
            self._ask()
        elif act.startswith("ends"):
            self.to_judge = True
        elif act is Act.FAILS:
            self.failures[n] += 1
            if self.failures[n] > RETRIES:
                self._both(Phase.FAILED)
        elif act is Act.LIMIT:
            self.limited = True
            self._both(Phase.WAITING_FOR_RESET)
        elif act is Act.STOPPED_BY_HAND:
            self._both(Phase.INTERRUPTED)

    def _ask(self) -> None:
        """Of a task that was cancelled meanwhile it is kept withdrawn."""
        if self.phase == Phase.CANCELLED:
            self.question = "withdrawn"
            return
        self.question = "open"
        self._both(Phase.WAITING_FOR_INPUT)

    def _recover(self) -> None:
        left, counts = self.left, self.left_counts
        self.left, self.left_counts = None, True
        if left is Left.ASKED and counts:
            self._ask()
        if left is Left.FINISHED and counts:
            self.to_judge = True

    def _reach(self, point: str, cut: Cut | None, left: Left | None = None) -> None:
        if cut is None or cut.point != point:
            return
        self.left = left
        if cut.dies:
            self.held = True
        else:
            self._put_off()
        raise _Over

    def _put_off(self) -> None:
        self._recover()
        self.paused = True
        if self.phase == Phase.RUNNING:
            self._move_steps(lambda phase: phase == Phase.RUNNING, Phase.PENDING)
            self.phase = Phase.PENDING

    # How it is written down.

    @property
    def current(self) -> int | None:
        """The step that is to be worked on."""
        return next((n for n, phase in enumerate(self.steps) if phase != Phase.DONE), None)

    def _both(self, target: Phase) -> None:
        self.phase = target
        if self.current is not None:
            self.steps[self.current] = target

    def _move_steps(self, which: Callable[[Phase], bool], target: Phase) -> list[int]:
        moved = [n for n, phase in enumerate(self.steps) if which(phase)]
        for n in moved:
            self.steps[n] = target
        return moved

    def _queue(self, target: Phase) -> None:
        self.phase, self.started, self.paused, self.limited = target, True, False, False
