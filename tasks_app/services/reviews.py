"""Review a task's result: drafts of threads, sending a review, approvals, handing requests to the agent."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove, ResultChanged, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.types import PLAN_FILE
from tasks_app.git import committed_text
from tasks_app.git.names import is_commit_id
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Channel,
    Review,
    ReviewThread,
    ReviewVerdict,
    Side,
    Step,
    Task,
    ThreadComment,
    User,
    ViewedFile,
    paths,
)
from tasks_app.permissions import Principal, require_actor, require_human_word
from tasks_app.services.bulk import reset_step
from tasks_app.services.commands import page_url
from tasks_app.services.difference import base_of, differences_of_step
from tasks_app.services.questions.question_outcomes import normalise, require_size
from tasks_app.services.review_threads import next_number, places_now
from tasks_app.services.tasks import has_successor, locked
from tasks_app.services.workers.worker_notifier import notify_on_commit

#: Characters of an anchored line that are stored.
_LINE_TEXT = 2_000
#: Maximum number of threads in one review.
MOST_THREADS = 500


@dataclass(frozen=True)
class NewThread:
    """A thread to open: on a line (or a range that begins at `first_line`), a file, or the whole result.

    The line counts from 1 on its side of the task's diff. `where` names the thread in messages.
    """

    text: str
    path: str = ""
    side: Side = Side.NEW
    line: int | None = None
    first_line: int | None = None
    where: str = "thread"


def send_review(
    task: Task,
    verdict: ReviewVerdict,
    *,
    by: Principal,
    via: Channel,
    body: str = "",
    threads: Sequence[NewThread] = (),
    commit: str = "",
    with_draft: bool = False,
    form_key: str = "",
    files: Sequence[str] = (),
    notify: bool = True,
) -> Review:
    """Store a review, with the threads of the author's draft if `with_draft`, and act on its verdict.

    `commit` is the result that was looked at (default: the newest). A request for changes resumes the task,
    or waits until its steps are done; `files` are the files to change (default: the files of the open
    threads). A form that is sent again, with the same `form_key`, gets the review that it sent before.

    Raises NotAllowed, BadInput with the place, IllegalMove if the phase does not allow the verdict, or
    ResultChanged if something else than the newest result would be approved.
    """
    require_actor(by, task.project)
    require_human_word(task.project, via, page_url(task))
    body = normalise(body).strip()
    require_size(body, *(thread.text for thread in threads))
    with transaction.atomic():
        task = locked(task)
        if form_key and (sent := Review.objects.filter(author=by.user, form_key=form_key).first()):
            return sent
        commit = _reviewed_commit(task, commit)
        rows = [_anchored_thread(task, thread, commit) for thread in threads]
        review, drafted = Review(task=task, author=by.user), []
        if with_draft and (draft := draft_of(task, by)):
            review, drafted = draft, list(draft.threads.all())
        _require_content(task, verdict, body, has_threads=bool(rows or drafted))
        if why := _why_not(task, verdict, commit):
            raise why
        number = (task.reviews.aggregate(last=Max("number"))["last"] or 0) + 1
        review.number, review.verdict, review.body = number, verdict, body
        review.commit, review.form_key, review.via = commit, form_key, via
        review.sent_at = timezone.now()
        review.save()
        _store_threads(review, rows, threads)
        for thread_number, row in enumerate([*drafted, *rows], start=next_number(task)):
            row.number = thread_number
            row.save(update_fields=["number"])
        if verdict == ReviewVerdict.REQUEST_CHANGES:
            resume_for_review(task, review, by=by.user, files=files, notify=notify)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(
            Action.REVIEWED, by=by.user, task=task,
            review=number, verdict=verdict, commit=commit, threads=len(drafted) + len(rows),
        )  # fmt: skip
    return review


def _reviewed_commit(task: Task, commit: str) -> str:
    """Return the commit of the review. Raises BadInput if the task has no such result."""
    if not task.head_commit:
        raise BadInput("the task has no result yet", where="review")
    if not commit:
        return task.head_commit
    if not is_commit_id(commit) or not paths.repository(task.project).has(commit):
        raise BadInput(f"the portal has no commit {commit[:12]}", where="commit")
    return commit


def _require_content(task: Task, verdict: ReviewVerdict, body: str, *, has_threads: bool) -> None:
    if body or has_threads or verdict == ReviewVerdict.APPROVE:
        return
    if verdict == ReviewVerdict.REQUEST_CHANGES and task.threads.open().exists():
        return
    raise BadInput("write a comment, or comment on a line", where="body")


def _why_not(task: Task, verdict: ReviewVerdict, commit: str) -> CatHerderError | None:
    if verdict == ReviewVerdict.REQUEST_CHANGES:
        return why_not_change(task)
    if verdict == ReviewVerdict.APPROVE:
        if task.phase != Phase.DONE:
            return IllegalMove(f"Task “{task}”", task.phase, "approved: it is not done")
        if commit != task.head_commit:
            return ResultChanged(
                f"The result has changed since you looked at it, from {commit[:10]} to "
                f"{task.head_commit[:10]}. Look at the changes and approve again; your comments are kept."
            )
    return None


def _store_threads(review: Review, rows: Sequence[ReviewThread], threads: Sequence[NewThread]) -> None:
    for row, thread in zip(rows, threads, strict=True):
        row.review = review
        row.save()
        ThreadComment.objects.create(thread=row, author=review.author, text=normalise(thread.text))


def _anchored_thread(task: Task, thread: NewThread, commit: str) -> ReviewThread:
    """Return an unsaved thread, anchored in the result or in what was there before. Raises BadInput."""
    if not normalise(thread.text).strip():
        raise BadInput("the comment is empty", where=f"{thread.where}.text")
    anchored_in = commit if thread.side == Side.NEW else base_of(task)
    return ReviewThread(
        task=task,
        path=thread.path,
        side=thread.side,
        line=thread.line,
        first_line=_first_line(thread),
        line_text=_line_text(task, thread, anchored_in)[:_LINE_TEXT],
        commit=anchored_in,
    )


def _first_line(thread: NewThread) -> int | None:
    if thread.first_line is None or thread.first_line == thread.line:
        return None
    if thread.line is None or not 1 <= thread.first_line < thread.line:
        raise BadInput("a range ends at `line`, after `first_line`", where=f"{thread.where}.first_line")
    return thread.first_line


def _line_text(task: Task, thread: NewThread, commit: str) -> str:
    """Return the text of the line; "" for a whole file or result. Raises BadInput if it does not exist."""
    if not thread.path:
        if thread.line is not None:
            raise BadInput("a line needs the path of its file", where=f"{thread.where}.path")
        return ""
    lines = _lines_to_comment(task, thread, commit)
    if thread.line is None:
        return ""
    if not 1 <= thread.line <= len(lines):
        raise BadInput(
            f"{thread.path} has {len(lines)} lines, so there is no line {thread.line}",
            where=f"{thread.where}.line",
        )
    return lines[thread.line - 1]


def _lines_to_comment(task: Task, thread: NewThread, commit: str) -> list[str]:
    where = f"{thread.where}.path"
    if "\0" in thread.path or thread.path.startswith("/") or ".." in thread.path.split("/"):
        raise BadInput("a path is relative to the repository", where=where)
    try:
        text = committed_text(paths.repository(task.project), commit=commit, path=thread.path)
    except WorkspaceError as error:
        if thread.line is None:  # a file that is too large to be read can be commented on as a whole
            return []
        raise BadInput(str(error), where=where) from error
    if text is None:
        side = "the result" if thread.side == Side.NEW else "what was there before"
        raise BadInput(f"there is no file {thread.path!r} in {side}", where=where)
    return text.removesuffix("\n").split("\n")


# Drafts: what a reviewer has written and not sent. Only the author sees them.


def draft_of(task: Task, by: Principal) -> Review | None:
    """Return the user's draft for the task, if there is one."""
    return Review.objects.drafts().filter(task=task, author=by.user).first()


def add_to_draft(task: Task, thread: NewThread, *, by: Principal, commit: str = "") -> ReviewThread:
    """Add a thread to the author's draft, which is made if there is none. Raises NotAllowed or BadInput."""
    require_actor(by, task.project)
    require_size(thread.text)
    with transaction.atomic():
        task = locked(task)
        row = _anchored_thread(task, thread, _reviewed_commit(task, commit))
        review = draft_of(task, by) or Review(task=task, author=by.user)
        if review.pk and review.threads.count() >= MOST_THREADS:
            raise BadInput(f"a review has up to {MOST_THREADS} comments; send this one first", where="review")
        review.save()
        _store_threads(review, [row], [thread])
    return row


def change_draft(thread: ReviewThread, text: str, *, by: Principal) -> None:
    """Change the text of a thread that is not sent yet. Raises NotAllowed or BadInput."""
    _require_own_draft(thread, by)
    text = normalise(text)
    if not text.strip():
        raise BadInput("the comment is empty", where="text")
    require_size(text)
    thread.comments.update(text=text)


def remove_from_draft(thread: ReviewThread, *, by: Principal) -> None:
    """Remove a thread that is not sent yet. Raises NotAllowed or BadInput."""
    _require_own_draft(thread, by)
    thread.delete()


def _require_own_draft(thread: ReviewThread, by: Principal) -> None:
    require_actor(by, thread.task.project)
    thread.refresh_from_db(fields=["number"])
    if thread.number is not None:
        raise BadInput("this comment was sent already; reply to it instead", where="thread")
    if thread.review is None or thread.review.author_id != by.user.pk:
        raise BadInput("this draft is somebody else’s", where="thread")


# Approvals.


def approvals_of(task: Task) -> list[Review]:
    """Return the approvals that hold for the newest result, the newest of each person.

    A later request for changes by the same person ends their approval.
    """
    deciding = task.reviews.deciding().select_related("author", "task").order_by("number")
    return [review for review in deciding if review.approves]


def counted_approvals(task: Task) -> int:
    """Return how many approvals count for publishing: the author's own approval does not."""
    return sum(review.author_id != task.created_by_id for review in approvals_of(task))


def viewed_keys(task: Task, user: User) -> frozenset[str]:
    """Return the keys of the contents that the user has viewed; see `viewed_key`."""
    return frozenset(ViewedFile.objects.filter(task=task, user=user).values_list("key", flat=True))


def viewed_key(path: str, blob: str) -> str:
    return hashlib.sha256(f"{blob}\0{path}".encode(errors="surrogatepass")).hexdigest()


def mark_viewed(task: Task, user: User, *, path: str, blob: str, viewed: bool) -> None:
    """Mark the content as viewed, or no longer. Doing it twice changes nothing."""
    key = viewed_key(path, blob)
    if viewed:
        ViewedFile.objects.get_or_create(task=task, user=user, key=key, defaults={"path": path, "blob": blob})
    else:
        ViewedFile.objects.filter(task=task, user=user, key=key).delete()


# Hand requests for changes to the agent that may make them, and run everything after it again.


#: Phases in which a request for changes resumes the task. While it works, waits for an answer or a limit, the
#: request waits until its steps are done.
TAKES_REQUESTS = frozenset({Phase.DONE, Phase.FAILED, Phase.INTERRUPTED})


def why_not_change(task: Task) -> IllegalMove | None:
    """Return why no changes can be requested; None if they can."""
    what = f"Task “{task}”"
    if task.not_started:
        return IllegalMove(what, "not started", "changed: it has no result yet")
    if task.phase == Phase.CANCELLED:
        return IllegalMove(what, "cancelled", "changed; resume it first")
    if task.exports_decisions:
        return IllegalMove(
            what, "an export of decisions", "changed by an agent: change the decisions and export again"
        )
    if has_successor(task):
        return IllegalMove(what, "followed by another task of its sequence, which builds on it,", "changed")
    return None


def resume_for_review(
    task: Task, review: Review, *, by: User, files: Collection[str] = (), notify: bool = True
) -> bool:
    """Resume an ended task so that its agent gets the review. Return whether it was resumed now.

    `files` are the files to change; by default the files of the open threads. Must be called in a
    transaction that has locked the task.
    """
    if task.phase not in TAKES_REQUESTS:
        return False
    reason = f"{by.shown_name} requested changes"
    hand_over([review], reason=reason, by=by, files=files)
    move(
        task, Phase.PENDING, reason=reason, by=by, failure="",
        resets_at=None, retry_at=None, queued_at=task.queued_at or timezone.now(),
    )  # fmt: skip
    if notify:
        notify_on_commit(task.pk)
    return True


def hand_over_waiting(task: Task, *, epoch: int) -> bool:
    """Hand over the requests that came while the task worked. Return whether there were any.

    Must be called by the holder of the lease, in a transaction that has locked the task.
    """
    waiting = list(Review.objects.filter(task=task).undelivered().select_related("author"))
    if not waiting:
        return False
    names = " and ".join(dict.fromkeys(review.author.shown_name for review in waiting))
    hand_over(waiting, reason=f"{names} requested changes", by=None, epoch=epoch)
    return True


def hand_over(
    reviews: list[Review],
    *,
    reason: str,
    by: User | None,
    epoch: int | None = None,
    files: Collection[str] = (),
) -> None:
    """Give the reviews to the step that is to make the changes; it and all steps after it are pending.

    That step goes on in its session; those after it begin anew, so that no old result counts for new code.
    """
    task = reviews[0].task
    if not files:  # the files on which the open threads lie, as they are called in the newest result
        threads = list(task.threads.open().exclude(path=""))
        places = places_now(task, threads)
        files = {place.path if (place := places[thread.pk]) else thread.path for thread in threads}
    step = step_for_changes(task, files)
    Review.objects.filter(pk__in=[review.pk for review in reviews]).update(step=step)
    Task.objects.filter(pk=task.pk).update(early_end="")  # there is more to do now
    task.questions.forget_ends()
    for later in task.steps.filter(position__gt=step.position):
        reset_step(later, reason=reason, by=by, epoch=epoch)
    fresh: dict[str, Any] = {"failures": 0, "failure": ""}
    if step.phase == Phase.PENDING:
        Step.objects.filter(pk=step.pk).update(**fresh)
    else:
        move(step, Phase.PENDING, reason=reason, by=by, epoch=epoch, **fresh)


def step_for_changes(task: Task, files: Collection[str]) -> Step:
    """Return the step that may write the files and has written most of them.

    If none did, a step that may write most of them; without files, one that may write anywhere. Steps that
    wrote code come first, then those that wrote the plan only, then those that ran; of these the last.
    """
    ran = list(task.steps.filter(runs__isnull=False).distinct().order_by("position"))
    if not ran:
        return task.steps.order_by("position")[0]

    def suits(step: Step) -> tuple[int, int, bool, bool, bool, int]:
        globs, written = step_from_json(step.config).allow_write, _written_by(step)
        may_write = [path for path in files if globs is None or allowed(path, globs)]
        wrote_code = bool(written - {PLAN_FILE})
        anywhere = globs is None and not files
        wrote_them = len(written.intersection(files))
        return (len(may_write), wrote_them, wrote_code, bool(written), anywhere, step.position)

    return max([step for step in ran if not step.is_clarifying] or ran, key=suits)


def _written_by(step: Step) -> set[str]:
    try:
        return {file.path for one in differences_of_step(step) for file in one.files()}
    except WorkspaceError:  # a commit is lost
        return set()
