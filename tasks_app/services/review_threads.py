"""Threads of reviews: replies of humans and agents, resolving, and where their lines are now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git import moved_files
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    ReviewThread,
    Run,
    Side,
    Task,
    ThreadComment,
    ThreadState,
    paths,
)
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.difference import base_of
from tasks_app.services.questions.question_outcomes import normalise, require_size
from tasks_app.services.tasks import locked

#: Others are told of a reply only after this time, together with all that its author wrote meanwhile.
REPLIES_COLLECTED = timedelta(minutes=2)


@dataclass(frozen=True)
class AgentReply:
    """An agent's reply to a thread; `key` tells it apart when it is read twice."""

    number: int
    text: str
    key: str


@dataclass(frozen=True)
class Place:
    """The place of a thread in the newest result: its file, and its line (None: the whole file)."""

    path: str
    line: int | None


def reply_to(thread: ReviewThread, text: str, *, by: Principal) -> ThreadComment:
    """Store a human's reply, which opens the thread again for the agent. Raises NotAllowed or BadInput."""
    require_actor(by, thread.task.project)
    text = normalise(text)
    if not text.strip():
        raise BadInput("the reply is empty", where="text")
    require_size(text)
    with transaction.atomic():
        locked(thread.task)
        announce_at = timezone.now() + REPLIES_COLLECTED
        comment = ThreadComment.objects.create(
            thread=thread, author=by.user, text=text, announce_at=announce_at
        )
        set_state(thread, ThreadState.OPEN)
        record(Action.THREAD_ANSWERED, by=by.user, task=thread.task, thread=thread.number)
    return comment


def resolve(thread: ReviewThread, *, by: Principal, reopen: bool = False) -> None:
    """Resolve the thread, or open it again. Doing it twice changes nothing. Raises NotAllowed."""
    require_actor(by, thread.task.project)
    with transaction.atomic():
        locked(thread.task)
        thread.refresh_from_db()
        if thread.number is None:
            raise BadInput("this comment is not sent yet", where="thread")
        if thread.is_resolved != reopen:
            return
        state, action = ThreadState.RESOLVED, Action.THREAD_RESOLVED
        if reopen:
            state, action = ThreadState.OPEN, Action.THREAD_REOPENED
        set_state(thread, state, by=by)
        record(action, by=by.user, task=thread.task, thread=thread.number)


def store_agent_replies(run: Run, replies: Iterable[AgentReply]) -> int:
    """Store the agent's replies and return how many were new. Numbers without a thread are left out.

    Must be called in a transaction that has locked the task.
    """
    threads = {thread.number: thread for thread in run.step.task.threads.sent()}
    stored = 0
    for reply in replies:
        thread = threads.get(reply.number)
        if thread is None or thread.comments.filter(key=reply.key).exists():
            continue
        ThreadComment.objects.create(thread=thread, run=run, text=reply.text, key=reply.key)
        if not thread.is_resolved:
            set_state(thread, ThreadState.ANSWERED)
        stored += 1
    return stored


def next_number(task: Task) -> int:
    """Return the number of the task's next thread. Call it in a transaction that has locked the task."""
    return (task.threads.aggregate(last=Max("number"))["last"] or 0) + 1


def set_state(thread: ReviewThread, state: ThreadState, *, by: Principal | None = None) -> None:
    """Store the state; `by` resolved it. Call it in a transaction that has locked the task."""
    thread.state, thread.resolved_by, thread.resolved_at = state, None, None
    if state == ThreadState.RESOLVED:
        thread.resolved_by, thread.resolved_at = by.user if by else None, timezone.now()
    thread.save(update_fields=["state", "resolved_by", "resolved_at"])
    Change.objects.create(task=thread.task, kind=ChangeKind.TASK)


def places_now(task: Task, threads: Collection[ReviewThread]) -> dict[int, Place | None]:
    """Return where each thread, by id, stands in the newest result; None if its line was changed since.

    Threads about the whole result have an empty path.
    """
    places: dict[int, Place | None] = {}
    heads = {Side.NEW: task.head_commit, Side.OLD: base_of(task)}
    by_anchor: dict[tuple[str, str], list[ReviewThread]] = {}
    for thread in threads:
        by_anchor.setdefault((thread.side, thread.commit), []).append(thread)
    for (side, commit), group in by_anchor.items():
        try:
            moved = moved_files(
                paths.repository(task.project),
                base=commit,
                head=heads[Side(side)],
                paths={thread.path for thread in group if thread.path},
            )
        except WorkspaceError:  # the commit is lost; what was written is shown all the same
            places.update((thread.pk, None) for thread in group)
            continue
        for thread in group:
            file = moved.get(thread.path)
            line = file.line(thread.line) if file and thread.line else None
            is_lost = bool(thread.path) and (file is None or file.path is None or (thread.line and not line))
            places[thread.pk] = None if is_lost else Place((file and file.path) or "", line)
    return places
