"""The threads of a task's reviews as its pages show them, each beside its line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from django.db.models import Q
from django.http import HttpRequest

from tasks_app.core.control_characters import visible
from tasks_app.models import Review, ReviewThread, ReviewVerdict, Side, Task
from tasks_app.services.reviews.reviews import approvals_of
from tasks_app.services.reviews.threads import Place, places_now
from tasks_app.web.pages.access import current_user, may_act
from tasks_app.web.rendering.diff import DiffLine, FileDiff, in_one_line

#: A line of a file on one side of a diff.
LineKey = tuple[str, Side, int]


@dataclass(frozen=True)
class ShownThread:
    """A thread with its place in the newest result (None: the code was changed since)."""

    thread: ReviewThread
    place: Place | None
    may_act: bool

    @property
    def is_draft(self) -> bool:
        return self.thread.number is None

    @property
    def is_outdated(self) -> bool:
        return self.place is None

    @property
    def path(self) -> str:
        """Its file in the newest result; if that was changed since, the file about which it was opened."""
        return self.place.path if self.place else self.thread.path

    @property
    def place_name(self) -> str:
        """File and line in one line, with invisible characters made visible."""
        return in_one_line(self.thread.place)

    @property
    def line_text(self) -> str:
        return visible(self.thread.line_text)

    @property
    def key(self) -> LineKey | None:
        """The line beside which it stands; None if it stands at none."""
        if self.place is None or self.place.line is None:
            return None
        return (self.place.path, Side(self.thread.side), self.place.line)


@dataclass(frozen=True)
class ShownLine:
    """A line of a diff with its threads. `number` on its `side` is where a new one stands, if it may."""

    line: DiffLine
    threads: list[ShownThread]
    number: int | None

    @property
    def side(self) -> str:
        return Side.OLD if self.line.kind == "del" else Side.NEW


@dataclass
class ThreadsBeside:
    """The threads of a task by their file, for one comparison.

    `by_path` has for each path the threads about it, `whole` those about the whole result. A comparison with
    other old lines than those where the task began has no place for threads on old lines (`old_side`).
    """

    by_path: dict[str, list[ShownThread]] = field(default_factory=dict)
    whole: list[ShownThread] = field(default_factory=list)
    old_side: bool = True
    new_side: bool = True

    def of_file(self, *paths: str) -> list[ShownThread]:
        """Return the threads about a file, given by its path and its former one."""
        found = {shown.thread.pk: shown for path in paths for shown in self.by_path.get(path, [])}
        return sorted(found.values(), key=_sorting_key)

    def lines_of(self, file: FileDiff) -> list[ShownLine]:
        """Return the file's lines with their threads."""
        beside: dict[LineKey, list[ShownThread]] = defaultdict(list)
        for shown in self.of_file(file.path, file.old_path):
            if shown.key and (self.old_side or shown.key[1] == Side.NEW):
                beside[shown.key].append(shown)
        return [self._shown(file, line, beside) for line in file.lines]

    def _shown(self, file: FileDiff, line: DiffLine, beside: dict[LineKey, list[ShownThread]]) -> ShownLine:
        found: list[ShownThread] = []
        if line.new is not None:
            found += beside.get((file.path, Side.NEW, line.new), [])
        if line.old is not None:
            found += beside.get((file.old_path or file.path, Side.OLD, line.old), [])
        is_old = line.kind == "del"
        takes = self.old_side if is_old else self.new_side
        return ShownLine(line, found, (line.old if is_old else line.new) if takes else None)

    def elsewhere(self, paths: Collection[str]) -> list[ShownThread]:
        """Return the threads about the whole result, and those about other files than these."""
        others = [shown for path, group in self.by_path.items() if path not in paths for shown in group]
        known = {shown.thread.pk for path in paths for shown in self.by_path.get(path, [])}
        left = {shown.thread.pk: shown for shown in [*self.whole, *others] if shown.thread.pk not in known}
        return sorted(left.values(), key=_sorting_key)


def _sorting_key(shown: ShownThread) -> tuple[bool, int, int]:
    return (shown.thread.number is None, shown.thread.number or 0, shown.thread.pk)


def no_threads() -> ThreadsBeside:
    """Return what a comparison has that is not about the newest result."""
    return ThreadsBeside(old_side=False, new_side=False)


def threads_beside(request: HttpRequest, task: Task, *, old_side: bool = True) -> ThreadsBeside:
    """Return all threads that the user may see: the sent ones, and those of their own draft."""
    beside = ThreadsBeside(old_side=old_side)
    sent_or_own = Q(number__isnull=False) | Q(review__author=current_user(request))
    rows = task.threads.filter(sent_or_own).select_related("review__author", "resolved_by")
    for shown in shown_threads(request, task, list(rows.with_comments().order_by("number", "pk"))):
        if path := shown.path:
            beside.by_path.setdefault(path, []).append(shown)
        else:
            beside.whole.append(shown)
    return beside


def shown_threads(request: HttpRequest, task: Task, threads: Iterable[ReviewThread]) -> list[ShownThread]:
    rows = list(threads)
    places, acting = places_now(task, rows), may_act(request, task.project)
    return [ShownThread(row, places[row.pk], acting) for row in rows]


@dataclass(frozen=True)
class ReviewState:
    """What a reviewer needs to know before sending: the draft, and which reviews there are."""

    drafted: int
    open_threads: int
    reviews: list[Review]
    approvals: list[Review]
    requested: bool


def review_state(request: HttpRequest, task: Task) -> ReviewState:
    reviews = list(task.reviews.sent().select_related("author", "task").order_by("number"))
    drafts = task.threads.filter(number=None, review__author=current_user(request))
    waiting = any(
        review.verdict == ReviewVerdict.REQUEST_CHANGES and review.delivered_at is None for review in reviews
    )
    return ReviewState(drafts.count(), task.threads.open().count(), reviews, approvals_of(task), waiting)


def own_last_review(request: HttpRequest, task: Task) -> Review | None:
    """Return the user's last review of the task if the code has changed since."""
    last = task.reviews.sent().filter(author=current_user(request)).order_by("-number").first()
    return last if last and last.commit != task.head_commit else None
