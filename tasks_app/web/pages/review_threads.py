"""The threads of a task's reviews as its pages show them, each beside its line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import Q
from django.http import HttpRequest

from tasks_app.core.control_characters import visible
from tasks_app.models import Review, ReviewThread, ReviewVerdict, Side, Task
from tasks_app.services.reviews import approvals_of
from tasks_app.services.threads import Place, places_now
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
    """A line of a diff with its threads. `side` and `number` say where a new thread would stand."""

    line: DiffLine
    threads: list[ShownThread]

    @property
    def side(self) -> str:
        return Side.OLD if self.line.kind == "del" else Side.NEW

    @property
    def number(self) -> int | None:
        return self.line.old if self.line.kind == "del" else self.line.new


@dataclass
class ThreadsBeside:
    """The threads of a task by the line beside which they stand; `taken` are those that a diff has shown."""

    by_line: dict[LineKey, list[ShownThread]] = field(default_factory=lambda: defaultdict(list))
    others: list[ShownThread] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)

    def lines_of(self, file: FileDiff) -> list[ShownLine]:
        """Return the file's lines with their threads."""
        return [ShownLine(line, self._take(file, line)) for line in file.lines]

    def _take(self, file: FileDiff, line: DiffLine) -> list[ShownThread]:
        found: list[ShownThread] = []
        if line.new is not None:
            found += self.by_line.get((file.path, Side.NEW, line.new), [])
        if line.old is not None:
            found += self.by_line.get((file.old_path or file.path, Side.OLD, line.old), [])
        self.taken.update(shown.thread.pk for shown in found)
        return found

    @property
    def elsewhere(self) -> list[ShownThread]:
        """The threads at no line of the diff that was shown: about files, the whole, or changed lines."""
        beside = [shown for group in self.by_line.values() for shown in group]
        left = [shown for shown in [*self.others, *beside] if shown.thread.pk not in self.taken]
        return sorted(left, key=lambda shown: (shown.thread.number is None, shown.thread.number or 0))


def threads_beside(request: HttpRequest, task: Task) -> ThreadsBeside:
    """Return all threads that the user may see: the sent ones, and those of their own draft."""
    beside = ThreadsBeside()
    for shown in shown_threads(request, task, _visible(request, task)):
        if shown.key is None:
            beside.others.append(shown)
        else:
            beside.by_line[shown.key].append(shown)
    return beside


def shown_threads(request: HttpRequest, task: Task, threads: Iterable[ReviewThread]) -> list[ShownThread]:
    rows = list(threads)
    places, acting = places_now(task, rows), may_act(request, task.project)
    return [ShownThread(row, places[row.pk], acting) for row in rows]


def _visible(request: HttpRequest, task: Task) -> list[ReviewThread]:
    own = Q(number__isnull=False) | Q(review__author=current_user(request))
    rows = task.threads.filter(own).select_related("review__author", "resolved_by")
    return list(rows.prefetch_related("comments__author", "comments__run__step").order_by("number", "pk"))


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
    mine = task.reviews.sent().filter(author=current_user(request)).exclude(commit=task.head_commit)
    return mine.order_by("-number").first()
