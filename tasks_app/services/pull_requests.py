"""Pull requests of tasks: store what was opened, and bring here what happens at the forge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.storable import storable_text
from tasks_app.forges.port import (
    ForgeKind,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
)
from tasks_app.git import committed_text
from tasks_app.history.audit import record
from tasks_app.history.statistics import paused_until_now
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Publication,
    PullRequest,
    QuestionState,
    ReviewThread,
    Side,
    Task,
    ThreadComment,
    ThreadState,
    paths,
)
from tasks_app.models.pull_request import LONGEST_PAUSE, SHORTEST_PAUSE
from tasks_app.services.difference import base_of
from tasks_app.services.tasks import locked

#: Ends a comment that the portal posted, with the id of its row: a comment is posted once.
_MARK = "<!-- cat-herder: comment {} -->"
_LONGEST_COMMENT = 60_000
_LINE_TEXT = 2_000
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
#: Threads of one pull request that are taken over.
MOST_THREADS = 500


@dataclass(frozen=True)
class Look:
    """What a forge said about a pull request at one moment."""

    pull_request: RemotePullRequest
    comments: Sequence[RemoteComment]
    checks: Sequence[RemoteCheck]


def newest_pull_request(task: Task) -> PullRequest | None:
    return task.pull_requests.select_related("project").first()


def record_pull_request(
    publication: Publication, kind: ForgeKind, remote: RemotePullRequest, *, base: str
) -> PullRequest:
    """Store the pull request that was opened or updated for the publication."""
    task = publication.task
    with transaction.atomic():
        row, is_new = PullRequest.objects.update_or_create(
            project=task.project,
            url=publication.url,
            number=remote.number,
            defaults={
                "task": task, "kind": kind, "base": base, "fault": "",
                "changed_at": timezone.now(), "next_look_at": timezone.now(), **_values(remote),
            },
        )  # fmt: skip
        if is_new:
            record(
                Action.PULL_REQUEST_OPENED, by=publication.by, task=task, number=row.number, url=row.web_url
            )
        Publication.objects.filter(pk=publication.pk).update(opened=row)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    publication.opened = row
    return row


def _values(remote: RemotePullRequest) -> dict[str, object]:
    return {
        "web_url": remote.url[:500],
        "title": remote.title[:500],
        "draft": remote.draft,
        "state": remote.state,
        "head_commit": remote.head_commit[:64],
        "ended_by": remote.ended_by[:200],
    }


def record_fault(row: PullRequest, fault: str, *, retry_after: float | None = None) -> None:
    """Store why a look failed; the next is after the rate limit, or later than usual."""
    pause = max(retry_after or 0.0, SHORTEST_PAUSE * 5)
    changed = row.fault != fault
    row.fault = storable_text(fault)[:2000]
    row.next_look_at = timezone.now() + timedelta(seconds=min(pause, 3 * 3600))
    row.save(update_fields=["fault", "next_look_at"])
    if changed:
        Change.objects.create(task=row.task, kind=ChangeKind.TASK)


def record_look(row: PullRequest, look: Look) -> None:
    """Store what the forge said: new comments as threads, CI's results, and how the pull request ended."""
    with transaction.atomic():
        task = locked(row.task)
        row = PullRequest.objects.select_for_update(of=("self",)).select_related("project").get(pk=row.pk)
        was_open = row.is_open
        news = _store_comments(task, row, look.comments)
        news |= _store_state(row, look)
        if was_open and not row.is_open:
            _end(task, row)
        if news:
            Change.objects.create(task=task, kind=ChangeKind.TASK)


def _store_state(row: PullRequest, look: Look) -> bool:
    """Store state and checks; return whether anything of it is new."""
    values = {
        **_values(look.pull_request),
        "checks": [
            {"name": storable_text(check.name)[:200], "state": check.state, "url": check.url[:500]}
            for check in look.checks[:100]
        ],
        "fault": "",
    }
    news = any(getattr(row, name) != value for name, value in values.items())
    now = timezone.now()
    if news:
        row.changed_at = now
    for name, value in values.items():
        setattr(row, name, value)
    row.looked_at = now
    row.next_look_at = now + timedelta(seconds=_pause(row))
    row.save()
    return news


def _pause(row: PullRequest) -> float:
    """Return the seconds until the next look: a tenth of the time without news, within bounds."""
    quiet = (timezone.now() - row.changed_at).total_seconds()
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, quiet / 10))


def _end(task: Task, row: PullRequest) -> None:
    """End the task with its pull request: work that goes on for it is cancelled."""
    by = row.ended_by or "somebody"
    record(
        Action.PULL_REQUEST_ENDED, task=task, actor_name=f"{by} on {row.forge_label}",
        number=row.number, state=row.state, url=row.web_url,
    )  # fmt: skip
    if task.phase in ENDED and task.phase != Phase.FAILED:
        return
    reason = f"{by} {row.state} {row} ({row.web_url})"[:300]
    for step in task.steps.exclude(phase__in=[*ENDED, Phase.PENDING]):
        move(step, Phase.CANCELLED, reason=reason)
    if task.phase not in ENDED:
        task.questions.open().update(state=QuestionState.WITHDRAWN)
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
        move(task, Phase.CANCELLED, reason=reason, paused_seconds=paused_until_now(task))


# Comments at the forge become threads here.


def _store_comments(task: Task, row: PullRequest, comments: Iterable[RemoteComment]) -> bool:
    known = set(
        ThreadComment.objects.filter(thread__pull_request=row)
        .exclude(forge_id="")
        .values_list("forge_id", flat=True)
    )
    threads = {thread.discussion: thread for thread in row.threads.all()}
    stored = False
    for comment in comments:
        if comment.id in known or not comment.text.strip():
            continue
        thread = threads.get(comment.discussion)
        if _is_ours(comment, thread):
            continue
        if thread is None:
            if len(threads) >= MOST_THREADS:
                break
            thread = threads[comment.discussion] = _open_thread(task, row, comment)
        _add(thread, comment)
        stored = True
    return stored


def _is_ours(comment: RemoteComment, thread: ReviewThread | None) -> bool:
    """Return whether the portal posted the comment, and store its id: a worker may have died before."""
    _, mark, rest = comment.text.rpartition("<!-- cat-herder: comment ")
    number = rest.partition(" ")[0]
    if not mark or not number.isdigit() or thread is None:
        return False
    ours = thread.comments.filter(pk=int(number), forge_author="")
    return bool(ours.update(forge_id=comment.id))


def _add(thread: ReviewThread, comment: RemoteComment) -> None:
    ThreadComment.objects.create(
        thread=thread,
        forge_author=(storable_text(comment.author) or "somebody")[:200],
        forge_id=comment.id[:64],
        text=storable_text(comment.text)[:_LONGEST_COMMENT],
    )
    if thread.state != ThreadState.OPEN:
        thread.state, thread.resolved_by, thread.resolved_at = ThreadState.OPEN, None, None
        thread.save(update_fields=["state", "resolved_by", "resolved_at"])


def _open_thread(task: Task, row: PullRequest, comment: RemoteComment) -> ReviewThread:
    """Open a thread at the line, as far as the portal has the commit; else about the file or the whole."""
    commit = base_of(task) if comment.old_side else comment.commit
    lines = _lines_of(task, comment.path, commit)
    if lines is None:  # somebody pushed to the branch there: the portal does not have that commit
        commit, wanted = task.head_commit, None
        lines = _lines_of(task, comment.path, commit)
    else:
        wanted = comment.line
    line = wanted if lines and wanted and 1 <= wanted <= len(lines) else None
    first = comment.first_line if line and comment.first_line and comment.first_line < line else None
    number = (task.threads.aggregate(last=Max("number"))["last"] or 0) + 1
    return ReviewThread.objects.create(
        task=task,
        pull_request=row,
        discussion=comment.discussion[:200],
        number=number,
        path="" if lines is None else comment.path,
        side=Side.OLD if comment.old_side else Side.NEW,
        line=line,
        first_line=first,
        line_text=lines[line - 1][:_LINE_TEXT] if lines and line else "",
        commit=commit,
    )


def _lines_of(task: Task, path: str, commit: str) -> list[str] | None:
    """Return the lines of a file in the commit; None if the portal does not have it."""
    if not _COMMIT.fullmatch(commit) or not _is_inside(path):
        return None
    try:
        text = committed_text(paths.repository(task.project), commit=commit, path=path)
    except WorkspaceError:
        return None
    return None if text is None else text.removesuffix("\n").split("\n")


def _is_inside(path: str) -> bool:
    return bool(path) and "\0" not in path and not path.startswith("/") and ".." not in path.split("/")


def unposted_replies(row: PullRequest) -> list[ThreadComment]:
    """Return the agent's replies in threads of the pull request that are not there yet, in order."""
    rows = ThreadComment.objects.filter(thread__pull_request=row, forge_id="", run__isnull=False)
    return list(rows.select_related("thread").order_by("pk"))


def reply_text(comment: ThreadComment) -> str:
    """Return what is posted for the agent's reply."""
    return f"{comment.text}\n\n{_MARK.format(comment.pk)}"


def record_posted(comment: ThreadComment, forge_id: str) -> None:
    ThreadComment.objects.filter(pk=comment.pk, forge_id="").update(forge_id=forge_id[:64])
