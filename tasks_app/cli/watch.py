"""A folder under watch: what comes to rest in it becomes a task and is run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from watchfiles import watch

from tasks_app.cli.questions import show_ways
from tasks_app.cli.command import Exit
from tasks_app.cli.ctrl_c import CtrlC
from tasks_app.cli.lookup import tasks_of_file
from tasks_app.cli.run_locally import sit_down
from tasks_app.cli.screen import Screen
from tasks_app.cli.stable_files import Settling, State, states
from tasks_app.config.task_file import read_task_file
from tasks_app.core.errors import CatHerderError, IllegalMove
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import Project, Question, Task
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, go_on, start_task

#: A file that has not changed for so long is taken for written.
RESTED_SECONDS = 0.4
_LOOKS_EVERY = 0.1
#: Looks without a notice of the system: some file systems give none, and a folder that git put there
#: anew is another one than the folder that was watched.
_LOOKS_ANYWAY_MS = 1000

_ACTIVE = frozenset({Phase.PENDING, Phase.RUNNING})


class Watch:
    """The rows say what ran already, the folder what there is; notices of changes only wake it up.

    `parallel`: how many tasks a worker of the portal is to have at a time; 0: one after the other, here.
    `before`: files that were there already. As long as they stay as they are, no task is made from them;
    one that an earlier watch made goes on.
    """

    def __init__(
        self,
        project: Project,
        folder: Path,
        principal: Principal,
        screen: Screen,
        *,
        may_prompt: bool,
        parallel: int,
        before: Mapping[str, State] | None = None,
    ) -> None:
        self._project = project
        self._folder = folder
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._parallel = parallel
        self._before = dict(before or {})
        self._settling = Settling(RESTED_SECONDS)
        #: Tasks that have not ended, and what was told of them last.
        self._tasks: dict[int, str] = {}
        self._handed: set[int] = set()
        self._failed = False
        self._interrupted = False

    def run(self, *, once: bool) -> Exit:
        """Until Ctrl+C; or with `once` until nothing can be done any more. The exit code."""
        with CtrlC() as ctrl_c:
            try:
                for _ in self._looks(ctrl_c):
                    self._take_files(ctrl_c)
                    self._work(ctrl_c)
                    if once and not self._settling.moving and not self._can_go_on():
                        return self._code()
            except KeyboardInterrupt:
                self._screen.say()
        self._screen.say("The watch has ended.")
        return Exit.INTERRUPTED if self._interrupted else Exit.DONE

    def _looks(self, ctrl_c: CtrlC) -> Iterator[None]:
        yield
        for _ in _changes(self._folder, ctrl_c):
            ctrl_c.look()
            yield
        ctrl_c.look()

    def _take_files(self, ctrl_c: CtrlC) -> None:
        """Every file that was written to its end."""
        while True:
            found = states(self._folder)
            for name in self._settling.look(found, now=time.monotonic()):
                self._take(self._folder / name, old=self._before.get(name) == found[name])
            if not self._settling.moving:
                return
            ctrl_c.pause(_LOOKS_EVERY)

    def _take(self, path: Path, *, old: bool) -> None:
        try:
            text, _ = read_task_file(path)
            task = tasks_of_file(self._project, slug=path.stem, text=text).first()
            if task is None and old:
                return
            if task is None:
                task = create_task(self._project, text, by=self._principal, where=str(path), slug=path.stem)
                self._screen.say_with_mark("+", f"{path.name}: task {task.pk}, {task.title}", style="bold")
        except CatHerderError as error:
            if not old:
                self._failed = True
                self._screen.say_with_mark("✗", str(error), style="red")
            return
        if task.phase not in ENDED:
            self._tasks.setdefault(task.pk, "")

    def _work(self, ctrl_c: CtrlC) -> None:
        if self._parallel:
            self._hand_out()
            return
        while task := next(iter(self._ready()), None):
            ctrl_c.look()
            self._sit(task)
            self._take_files(ctrl_c)

    def _mine(self) -> list[Task]:
        """The tasks that have not ended, in the order of their files; of those that have, it is told."""
        rows = Task.objects.filter(pk__in=self._tasks).select_related("project").in_bulk()
        for task in rows.values():
            if task.phase in ENDED:
                self._tell(task)
                self._failed = self._failed or task.phase != Phase.DONE
        self._tasks = {
            pk: told for pk, told in self._tasks.items() if pk in rows and rows[pk].phase not in ENDED
        }
        return [rows[pk] for pk in self._tasks]

    def _ready(self) -> list[Task]:
        """Tasks at which something can be done here; one that waits for an answer only if we may ask."""
        asking = Phase.WAITING_FOR_INPUT
        return [task for task in self._mine() if self._may_prompt or task.phase != asking]

    def _can_go_on(self) -> bool:
        return any(task.phase != Phase.WAITING_FOR_INPUT for task in self._mine()) or (
            bool(self._tasks) and self._may_prompt and not self._parallel
        )

    def _sit(self, task: Task) -> None:
        """Stay with the task until it rests. Raises KeyboardInterrupt when the person has left."""
        self._screen.say()
        try:
            code, left = sit_down(task, self._principal, self._screen, may_prompt=self._may_prompt)
        except CatHerderError as error:
            self._screen.say_with_mark("✗", str(error), style="red")
            code, left = Exit.FAILED, False
        if left:
            self._interrupted = code is Exit.INTERRUPTED
            raise KeyboardInterrupt
        self._failed = self._failed or code not in (Exit.DONE, Exit.WAITING)
        if code is not Exit.WAITING:
            del self._tasks[task.pk]
        elif self._may_prompt:  # nobody types any more
            self._may_prompt = False

    def _hand_out(self) -> None:
        """Let workers of the portal have up to `parallel` tasks, and tell what became of them."""
        tasks = self._mine()
        active = sum(task.phase in _ACTIVE and not task.not_started for task in tasks)
        for task in tasks:
            self._tell(task)
            if task.phase == Phase.INTERRUPTED and task.pk in self._handed:
                del self._tasks[
                    task.pk
                ]  # what an earlier watch left so goes on; what is stopped now does not
        waiting = [task for task in tasks if task.not_started or task.phase == Phase.INTERRUPTED]
        mine = [task for task in waiting if task.pk not in self._handed]
        for task in mine[: max(0, self._parallel - active)]:
            self._hand(task)

    def _hand(self, task: Task) -> None:
        self._handed.add(task.pk)
        try:
            (start_task if task.not_started else go_on)(task, by=self._principal)
        except IllegalMove:
            return  # somebody was first; the next look tells what it is now
        except CatHerderError as error:
            self._failed = True
            self._screen.say_with_mark("✗", f"task {task.pk}, {task.title}: {error}", style="red")
            del self._tasks[task.pk]

    def _tell(self, task: Task) -> None:
        known, self._tasks[task.pk] = self._tasks[task.pk], _standing(task)
        if known == _standing(task):
            return
        self._screen.say_with_mark("·", f"task {task.pk}, {task.title}: {_standing(task)}")
        if task.failure:
            self._screen.say(task.failure, indent=4, style="red")
        if task.phase == Phase.WAITING_FOR_INPUT:
            for question in Question.objects.open_of(task):
                self._screen.say(question.headline, indent=4, style="bold yellow")
                show_ways(self._screen, question)

    def _code(self) -> Exit:
        if self._failed:
            return Exit.FAILED
        return Exit.WAITING if self._tasks else Exit.DONE


def _standing(task: Task) -> str:
    """What is told of a task; nothing yet of one that waits for its turn."""
    return "" if task.not_started else task.phase_facts.label


def _changes(folder: Path, ctrl_c: CtrlC) -> Iterator[object]:
    """Yields when something in the folder may have changed, until Ctrl+C."""
    for by_looking in (False, True):
        try:
            yield from watch(
                folder, stop_event=ctrl_c, recursive=False, watch_filter=None, raise_interrupt=False,
                rust_timeout=_LOOKS_ANYWAY_MS, yield_on_timeout=True, force_polling=by_looking or None,
            )  # fmt: skip
        except (OSError, RuntimeError):
            if by_looking:
                raise
            continue  # the system has no watch left to give: look instead
        return
