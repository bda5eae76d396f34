"""Hand requests for changes to the agent that may make them, and run everything after it again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.utils import timezone

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import IllegalMove, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.types import PLAN_FILE
from tasks_app.history.transitions import move
from tasks_app.models import Review, Step, Task, User
from tasks_app.services.bulk import reset_step
from tasks_app.services.difference import differences_of_step
from tasks_app.services.reviews.threads import places_now
from tasks_app.services.tasks import has_successor
from tasks_app.services.workers.worker_notifier import notify_on_commit

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
    """Return the last step that wrote code and may write all the files.

    If none did, a step that may write most of them; without files, one that may write anywhere. Steps that
    wrote code come first, then those that wrote the plan only, then those that ran; of these the last.
    """
    ran = list(task.steps.filter(runs__isnull=False).distinct().order_by("position"))
    if not ran:
        return task.steps.order_by("position")[0]

    def suits(step: Step) -> tuple[int, bool, bool, bool, int]:
        globs, written = step_from_json(step.config).allow_write, _written_by(step)
        may_write = [path for path in files if globs is None or allowed(path, globs)]
        wrote_code = bool(written - {PLAN_FILE})
        anywhere = globs is None and not files
        return (len(may_write), wrote_code, bool(written), anywhere, step.position)

    return max([step for step in ran if not step.is_clarifying] or ran, key=suits)


def _written_by(step: Step) -> set[str]:
    try:
        return {file.path for one in differences_of_step(step) for file in one.files()}
    except WorkspaceError:  # a commit is lost
        return set()
