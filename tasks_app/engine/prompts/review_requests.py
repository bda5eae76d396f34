"""Requests of reviewers: which the agent of a step has not received, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils import timezone

from tasks_app.agent.transcript_port import Transcript
from tasks_app.agent.transcripts import has_prompt
from tasks_app.config.pipeline import NoCheck, step_from_json
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.prompts.values import history
from tasks_app.git import changed_files, committed_text
from tasks_app.models import Outcome, Review, ReviewThread, ReviewVerdict, Run, Step, paths
from tasks_app.prompting.assembly import EarlierAccount, history_text
from tasks_app.prompting.feedback import Feedback
from tasks_app.prompting.reviews import (
    OpenThread,
    Remark,
    later_steps_feedback,
    rerun_feedback,
    review_feedback,
)
from tasks_app.services.results import accounts_of
from tasks_app.services.review_threads import Place, places_now

#: Lines around a commented line in the excerpt that the agent reads.
_AROUND = 3


def undelivered_reviews(step: Step, last: Run, transcript: Transcript) -> list[Review]:
    """Return the requests that the step's agent has not received, and mark the others.

    A worker may have died just after it handed one over. Then the session holds the prompt with it.
    """
    waiting = list(step.reviews.undelivered().select_related("author"))
    if waiting and last.prompt and has_prompt(transcript, last.prompt):
        received = [review.pk for review in waiting if review.handed_in_id == last.pk]
        Review.objects.filter(pk__in=received).update(delivered_at=timezone.now())
        waiting = [review for review in waiting if review.pk not in received]
    return waiting


def requests_of_current_runs(step: Step) -> list[Review]:
    """Return all requests to the step that count, for a new session that does not know any of them."""
    requests = step.reviews.sent().filter(verdict=ReviewVerdict.REQUEST_CHANGES).select_related("author")
    of_history = requests.filter(handed_in__number__lt=step.first_run).values("pk")
    return list(requests.exclude(pk__in=of_history).order_by("number"))


def mark_delivered(run: Run) -> None:
    """Store that the agent of a run that ended in order has received what its prompt said."""
    run.reviews_handed_in.filter(delivered_at=None).update(delivered_at=timezone.now())


def request_text(step: Step, reviews: Sequence[Review]) -> Feedback:
    """Return what the agent is told: the reviews in general, and every open thread of the task."""
    task = step.task
    threads = list(task.threads.open().with_comments())
    places = places_now(task, threads)
    config = step_from_json(step.config)
    has_checks = any(not isinstance(one, NoCheck) for one in config.checks)
    return review_feedback(
        [Remark(review.author.shown_name, review.body) for review in reviews],
        [_open_thread(thread, places[thread.pk]) for thread in threads],
        may_ask=task.threshold > 0,
        is_checked=has_checks or config.allow_write is not None,
        steps_follow=not step.is_last,
    )


def later_steps_text(step: Step, *, resumed: bool) -> Feedback:
    """Return what the agent is told of later steps that have run since it finished; "" if none has.

    With what humans decided in them if its session is resumed: the prompt of a new one has that.
    """
    finished = step.current_runs.filter(outcome=Outcome.FINISHED).last()
    if finished is None:
        return Feedback("")
    later = Run.objects.filter(step__task=step.task_id, step__position__gt=step.position, pk__gt=finished.pk)
    names = list(dict.fromkeys(later.order_by("step__position").values_list("step__name", flat=True)))
    if not names:
        return Feedback("")
    messages = [message for account in accounts_of([step.task]) for message in account.messages]
    messages.sort(key=lambda message: message.run.pk)
    accounts = [
        EarlierAccount(one.run.step.name, one.text)
        for one in messages
        if one.run.step.position > step.position and one.run.pk > finished.pk
    ]
    decided = ""
    if resumed:
        decided = history_text(history(step.task), apart_from=step.name, since=finished.ended_at)
    return later_steps_feedback(names, _files_changed_since(finished), accounts, decided)


def _files_changed_since(run: Run) -> list[str]:
    """Return the files, apart from the plan, that differ from those which the run left. Runs git."""
    task = run.step.task
    if not (run.head_commit and task.head_commit):
        return []
    try:
        files = changed_files(paths.repository(task.project), base=run.head_commit, head=task.head_commit)
    except WorkspaceError:  # a commit is lost
        return []
    return [file.path for file in files if file.path != PLAN_FILE]


def rerun_text(step: Step) -> Feedback:
    """Return what a new session is told of requests that its step and earlier ones got, with all threads."""
    task = step.task
    requests = Review.objects.filter(
        task=task, step__position__lte=step.position, handed_in__isnull=False
    ).select_related("author")
    threads = list(task.threads.sent().with_comments())
    places = places_now(task, threads)
    return rerun_feedback(
        [Remark(review.author.shown_name, review.body) for review in requests.order_by("number")],
        [_open_thread(thread, places[thread.pk]) for thread in threads],
    )


def _open_thread(thread: ReviewThread, place: Place | None) -> OpenThread:
    remarks = tuple(Remark(comment.by, comment.text) for comment in thread.comments.all())
    if not thread.path:
        return OpenThread(thread.number or 0, "the whole result", "", remarks)
    path, line = (place.path, place.line) if place else (thread.path, thread.line)
    where = _place_in_words(thread, path, line)
    return OpenThread(thread.number or 0, where, _excerpt(thread, place), remarks, is_outdated=place is None)


def _place_in_words(thread: ReviewThread, path: str, line: int | None) -> str:
    if line is None:
        return path
    lines = f"line {line}"
    if thread.first_line and thread.line:
        lines = f"lines {line - (thread.line - thread.first_line)} to {line}"
    return f"{path}, {lines}{' before the change' if thread.side == 'old' else ''}"


def _excerpt(thread: ReviewThread, place: Place | None) -> str:
    """Return the commented lines with a few around them, numbered; "" for a whole file."""
    if thread.line is None:
        return ""
    task = thread.task
    moved = place is not None and place.line is not None and thread.side == "new"
    commit, path, line = thread.commit, thread.path, thread.line
    if place is not None and place.line is not None and moved:
        commit, path, line = task.head_commit, place.path, place.line
    try:
        text = committed_text(paths.repository(task.project), commit=commit, path=path)
    except WorkspaceError:
        text = None
    if text is None:
        return thread.line_text
    length = thread.line - (thread.first_line or thread.line)
    lines = text.split("\n")
    first = max(1, line - length - _AROUND)
    shown = enumerate(lines[first - 1 : line + _AROUND], start=first)
    return "\n".join(f"{number:>5}  {content}" for number, content in shown)
