"""Watch a folder: each task file that is completely written becomes a task and is run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from watchfiles import watch

from tasks_app.cli.command import Exit
from tasks_app.cli.local_worker import CtrlC
from tasks_app.cli.lookup import tasks_from_file
from tasks_app.cli.questions import show_how_to_answer, show_text
from tasks_app.cli.repository import FileState, StableFiles, task_file_states
from tasks_app.cli.task_session import run_task_session
from tasks_app.cli.terminal import Screen
from tasks_app.config.task_file import read_task_file
from tasks_app.core.errors import CatHerderError, IllegalMove
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import Project, Question, Task
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, resume_task, start_task

#: A file that was unchanged for this long is taken as completely written.
STABLE_SECONDS = 0.4
_POLL_SECONDS = 0.1
#: Timeout of waiting for file system events: some file systems send none, and the watch
#: does not follow a folder that git replaced.
_WATCH_TIMEOUT_MS = 1000

_ACTIVE = frozenset({Phase.PENDING, Phase.RUNNING})


class Watch:
    """Decides from the rows and the folder's content; file system events only wake it up.

    `parallel`: number of tasks that workers of the portal run at a time; 0 runs them here, one by one.
    `before`: files that existed already. While unchanged, no new tasks are made from them, but tasks that an
    earlier watch made from them are resumed.
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
        before: Mapping[str, FileState] | None = None,
    ) -> None:
        self._project = project
        self._folder = folder
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._parallel = parallel
        self._before = dict(before or {})
        self._stable_files = StableFiles(STABLE_SECONDS)
        #: Tasks that have not ended, and the state that was printed last.
        self._tasks: dict[int, str] = {}
        self._queued: set[int] = set()
        self._failed = False
        self._interrupted = False

    def run(self, *, once: bool) -> Exit:
        """Run until Ctrl+C, or with `once` until nothing is left to do; return the exit code."""
        with CtrlC() as ctrl_c:
            try:
                for _ in self._wakeups(ctrl_c):
                    self._take_files(ctrl_c)
                    self._work(ctrl_c)
                    if once and not self._stable_files.has_unstable and not self._has_work():
                        return self._exit_code()
            except KeyboardInterrupt:
                self._screen.say()
        self._screen.say("Watching has ended.")
        return Exit.INTERRUPTED if self._interrupted else Exit.DONE

    def _wakeups(self, ctrl_c: CtrlC) -> Iterator[None]:
        yield
        for _ in _folder_changes(self._folder, ctrl_c):
            ctrl_c.check()
            yield
        ctrl_c.check()

    def _take_files(self, ctrl_c: CtrlC) -> None:
        """Create tasks from all files, waiting for those that are still being written."""
        while True:
            found = task_file_states(self._folder)
            for name in self._stable_files.update(found, now=time.monotonic()):
                self._create_task(self._folder / name, old=self._before.get(name) == found[name])
            if not self._stable_files.has_unstable:
                return
            ctrl_c.pause(_POLL_SECONDS)

    def _create_task(self, path: Path, *, old: bool) -> None:
        try:
            text, _ = read_task_file(path)
            task = tasks_from_file(self._project, slug=path.stem, text=text).first()
            if task is None and old:
                return
            if task is None:
                self._project.refresh_from_db()  # its settings may have changed since the watch began
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
        if self._parallel:  # so many tasks are kept queued for workers of the portal
            tasks = self._unfinished()
            active = sum(task.phase in _ACTIVE and not task.not_started for task in tasks)
            for task in tasks:
                self._print_state(task)
                if task.phase == Phase.INTERRUPTED and task.pk in self._queued:
                    del self._tasks[task.pk]  # interrupted now: only tasks of an earlier watch are resumed
            waiting = [task for task in tasks if task.not_started or task.phase == Phase.INTERRUPTED]
            unqueued = [task for task in waiting if task.pk not in self._queued]
            for task in unqueued[: max(0, self._parallel - active)]:
                self._queue(task)
            return
        while due := self._next_task():
            ctrl_c.check()
            self._run_task(due)
            self._take_files(ctrl_c)

    def _unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, in the order of their files; print those that have."""
        rows = Task.objects.filter(pk__in=self._tasks).select_related("project").in_bulk()
        for task in rows.values():
            if task.phase in ENDED:
                self._print_state(task)
                self._failed = self._failed or task.phase != Phase.DONE or task.finished_early
        self._tasks = {
            pk: state for pk, state in self._tasks.items() if pk in rows and rows[pk].phase not in ENDED
        }
        return [rows[pk] for pk in self._tasks]

    def _next_task(self) -> Task | None:
        """Return the first task to work on here; one that waits for an answer only if we may prompt."""
        asking = Phase.WAITING_FOR_INPUT
        return next((task for task in self._unfinished() if self._may_prompt or task.phase != asking), None)

    def _has_work(self) -> bool:
        return any(task.phase != Phase.WAITING_FOR_INPUT for task in self._unfinished()) or (
            bool(self._tasks) and self._may_prompt and not self._parallel
        )

    def _run_task(self, task: Task) -> None:
        """Run the task until it stops. Raises KeyboardInterrupt if the person pressed Ctrl+C."""
        self._screen.say()
        try:
            code, left = run_task_session(task, self._principal, self._screen, may_prompt=self._may_prompt)
        except CatHerderError as error:
            self._screen.say_with_mark("✗", str(error), style="red")
            code, left = Exit.FAILED, False
        if left:
            self._interrupted = code is Exit.INTERRUPTED
            raise KeyboardInterrupt
        self._failed = self._failed or code not in (Exit.DONE, Exit.WAITING)
        if code is not Exit.WAITING:
            del self._tasks[task.pk]
        elif self._may_prompt:  # the input has ended
            self._may_prompt = False

    def _queue(self, task: Task) -> None:
        self._queued.add(task.pk)
        try:
            if task.not_started:
                start_task(task, by=self._principal)
            else:
                resume_task(task, by=self._principal)
        except IllegalMove:
            return  # somebody else was first; the next round prints the current state
        except CatHerderError as error:
            self._failed = True
            self._screen.say_with_mark("✗", f"task {task.pk}, {task.title}: {error}", style="red")
            del self._tasks[task.pk]

    def _print_state(self, task: Task) -> None:
        state = "" if task.not_started else task.phase_display.label
        printed, self._tasks[task.pk] = self._tasks[task.pk], state
        if printed == state:
            return
        self._screen.say_with_mark("·", f"task {task.pk}, {task.title}: {state}")
        if task.failure:
            self._screen.say(task.failure, indent=4, style="red")
        if task.phase == Phase.WAITING_FOR_INPUT:
            for question in Question.objects.open_of(task):
                show_text(self._screen, "", question.headline, indent=4, style="bold yellow")
                if question.rule:
                    self._screen.say(f"Rule: {question.rule}", indent=4, style="dim")
                show_how_to_answer(self._screen, question)

    def _exit_code(self) -> Exit:
        if self._failed:
            return Exit.FAILED
        if self._tasks:
            return Exit.WAITING
        return Exit.DONE


def _folder_changes(folder: Path, ctrl_c: CtrlC) -> Iterator[object]:
    """Yield whenever something in the folder may have changed, until Ctrl+C."""
    for polling in (False, True):
        try:
            yield from watch(
                folder, stop_event=ctrl_c, recursive=False, watch_filter=None, raise_interrupt=False,
                rust_timeout=_WATCH_TIMEOUT_MS, yield_on_timeout=True, force_polling=polling or None,
            )  # fmt: skip
        except (OSError, RuntimeError):
            if polling:
                raise
            continue  # no inotify watches left: poll instead
        return
