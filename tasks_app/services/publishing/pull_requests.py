"""Pull requests of published results: opening, watching and merging them.

The portal merges the target branch into a result, with conflict markers in the files concerned. A worker puts
it into the workspace, and the last step that wrote code and may write these files resolves it in its session,
as it does a request for changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, MergeConflict, WorkspaceError
from tasks_app.core.phases import CANCELLABLE, Phase
from tasks_app.core.text import storable_text
from tasks_app.forges.port import (
    CheckState,
    ForgeKind,
    RemoteCheck,
    RemoteComment,
    RemotePullRequest,
)
from tasks_app.git import AUTHOR, Repository, blobs_shown_as, committed_text, has_line_with_prefix
from tasks_app.git.names import is_commit_id
from tasks_app.git.publishing import make_commit, merged_tree
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Channel,
    Publication,
    PullRequest,
    Review,
    ReviewThread,
    ReviewVerdict,
    Run,
    Side,
    Task,
    ThreadComment,
    ThreadState,
    paths,
)
from tasks_app.models.publication import LONGEST_PAUSE, SHORTEST_GAP, SHORTEST_PAUSE
from tasks_app.permissions import Principal, require_actor
from tasks_app.prompting.merging import merge_request
from tasks_app.services.difference import base_of
from tasks_app.services.projects.projects import fetch
from tasks_app.services.publishing.pull_request_text import harmless
from tasks_app.services.publishing.settings import pull_requests_url
from tasks_app.services.review_threads import next_number, set_state
from tasks_app.services.reviews import send_review, why_not_change
from tasks_app.services.tasks import cancel_locked, locked

#: Ends a comment that the portal posted, with the id of its row: a comment is posted once.
_MARK = "<!-- cat-herder: comment {} -->"
_MARK_AT_END = re.compile(r"<!-- cat-herder: comment ([1-9][0-9]{0,17}) -->\s*\Z")
_LONGEST_COMMENT = 60_000
_LINE_TEXT = 2_000
#: Maximum number of stored results of CI; failed ones come first.
_MOST_CHECKS = 100
#: Threads of one pull request that are taken over.
MOST_THREADS = 500


@dataclass(frozen=True)
class Look:
    """The state of a pull request as the forge reported it."""

    pull_request: RemotePullRequest
    comments: Sequence[RemoteComment]
    checks: Sequence[RemoteCheck]


def newest_pull_request(task: Task) -> PullRequest | None:
    return task.pull_requests.select_related("project").first()


def record_pull_request(
    publication: Publication, kind: ForgeKind, remote: RemotePullRequest, *, base: str, began: datetime
) -> PullRequest:
    """Store the pull request that was opened or updated for the publication.

    The forge was asked at `began`. What a look has seen that began later stays.
    """
    task, now = publication.task, timezone.now()
    with transaction.atomic():
        row, is_new = PullRequest.objects.update_or_create(
            project=task.project,
            url=pull_requests_url(task.project),
            number=remote.number,
            defaults={
                "task": task, "kind": kind, "base": base, "fault": "", "changed_at": now, "next_look_at": now,
            },
        )  # fmt: skip
        if row.is_outdated_by(began):
            _set_values(row, {**_state_values(remote), "state_as_of": began})
            row.save()
        if is_new:
            record(
                Action.PULL_REQUEST_OPENED, by=publication.actor, actor_name=publication.asked_by, task=task,
                number=row.number, url=row.web_url,
            )  # fmt: skip
        Publication.objects.filter(pk=publication.pk).update(opened=row)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    publication.opened = row
    return row


def _set_values(row: PullRequest, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _state_values(remote: RemotePullRequest) -> dict[str, object]:
    return {
        "web_url": remote.url[:500],
        "title": remote.title[:500],
        "draft": remote.draft,
        "state": remote.state,
        "head_commit": remote.head_commit[:64],
        "ended_by": remote.ended_by[:200],
    }


def record_fault(claimed: PullRequest, fault: str, *, retry_after: float | None = None) -> None:
    """Store why a look failed; the next is after the rate limit, or later than usual.

    If another look began meanwhile, it says how things stand.
    """
    fault = storable_text(fault)[:2000]
    pause = max(retry_after or 0.0, SHORTEST_PAUSE * 5)
    with transaction.atomic():
        row = PullRequest.objects.select_for_update().get(pk=claimed.pk)
        if row.looked_at != claimed.looked_at:
            return
        if row.fault != fault:
            Change.objects.create(task=claimed.task, kind=ChangeKind.TASK)
        row.fault = fault
        row.next_look_at = timezone.now() + timedelta(seconds=min(pause, 3 * 3600))
        row.save(update_fields=["fault", "next_look_at"])


def record_look(claimed: PullRequest, look: Look) -> None:
    """Store the result of a claimed look at the forge, and when the next look is."""
    with transaction.atomic():
        row = record_answer(claimed, look, began=claimed.looked_at or timezone.now())
        if row.looked_at == claimed.looked_at:  # else another look began, and says when the next one is
            row.next_look_at = _next_look_at(row, claimed)
            row.save(update_fields=["next_look_at"])


def _next_look_at(row: PullRequest, claimed: PullRequest) -> datetime:
    """Return when the next look is: after a tenth of the time without news, within bounds.

    It is soon if a webhook brought it forward during the present look.
    """
    now = timezone.now()
    if row.next_look_at < claimed.next_look_at and row.looked_at is not None:
        return max(now, row.looked_at + timedelta(seconds=SHORTEST_GAP))
    quiet = (now - row.changed_at).total_seconds()
    return now + timedelta(seconds=min(LONGEST_PAUSE, max(SHORTEST_PAUSE, quiet / 10)))


def record_answer(row: PullRequest, look: Look, *, began: datetime) -> PullRequest:
    """Store new comments as threads, CI's results, and how the pull request ended. Return the locked row.

    Several may ask the forge at once: state and CI stay as the one was told who began last.
    """
    anchors = _anchors(row, look.comments)  # before the transaction, because git may take long
    with transaction.atomic():
        task = locked(row.task)
        row = PullRequest.objects.select_for_update(of=("self",)).select_related("project").get(pk=row.pk)
        was_open = row.is_open
        news = _store_comments(task, row, look.comments, anchors)
        if row.is_outdated_by(began):
            news |= _store_state(row, look, began)
        if was_open and not row.is_open:
            actor_name = f"{row.ended_by or 'somebody'} on {row.forge_label}"
            record(
                Action.PULL_REQUEST_ENDED, task=task, actor_name=actor_name,
                number=row.number, state=row.state, url=row.web_url,
            )  # fmt: skip
            if task.phase in CANCELLABLE:  # work that goes on for it
                cancel_locked(task, reason=row.reason_to_cancel, actor_name=actor_name)
        if news:
            Change.objects.create(task=task, kind=ChangeKind.TASK)
    return row


def _store_state(row: PullRequest, look: Look, began: datetime) -> bool:
    """Store state and checks; return whether anything of it is new."""
    values = {
        **_state_values(look.pull_request),
        "checks": [
            {"name": storable_text(check.name)[:200], "state": check.state, "url": check.url[:500]}
            for check in sorted(look.checks, key=lambda one: one.state != CheckState.FAILED)[:_MOST_CHECKS]
        ],
        "fault": "",
    }
    news = any(getattr(row, name) != value for name, value in values.items())
    if news:
        row.changed_at = timezone.now()
    _set_values(row, {**values, "state_as_of": began})
    row.save()
    return news


# Comments at the forge become threads here.


@dataclass(frozen=True)
class _Anchor:
    """The place of a thread in the commits that the portal has; without `path`, it is about the whole."""

    commit: str
    path: str = ""
    side: Side = Side.NEW
    line: int | None = None
    first_line: int | None = None
    line_text: str = ""


def _anchors(row: PullRequest, comments: Iterable[RemoteComment]) -> dict[str, _Anchor]:
    """Return where the discussions begin that have no thread yet, as many as may still get one."""
    known = set(row.threads.values_list("discussion", flat=True))
    lines_of = cache(partial(_committed_lines, row.task))
    found: dict[str, _Anchor] = {}
    for comment in comments:
        if len(known) + len(found) >= MOST_THREADS:
            break
        is_by_others = comment.text.strip() and not _MARK_AT_END.search(comment.text)
        if is_by_others and comment.discussion not in known and comment.discussion not in found:
            found[comment.discussion] = _anchor(row.task, comment, lines_of)
    return found


def _anchor(task: Task, comment: RemoteComment, lines_of: Callable[[str, str], list[str] | None]) -> _Anchor:
    """Return the line as far as the portal has the commit; else the file or the whole."""
    side, commit, wanted = Side.NEW, comment.commit, comment.line
    if comment.old_side:
        side, commit = Side.OLD, base_of(task)
    lines = lines_of(comment.path, commit)
    if lines is None:  # somebody pushed to the branch there: the portal does not have that commit
        commit, wanted = task.head_commit, None
        lines = lines_of(comment.path, commit)
    if lines is None:
        return _Anchor(commit, side=side)
    if not wanted or not 1 <= wanted <= len(lines):
        return _Anchor(commit, comment.path, side)
    first = comment.first_line
    if first and first >= wanted:
        first = None
    return _Anchor(commit, comment.path, side, wanted, first, lines[wanted - 1][:_LINE_TEXT])


def _store_comments(
    task: Task, row: PullRequest, comments: Iterable[RemoteComment], anchors: Mapping[str, _Anchor]
) -> bool:
    """Store new comments, each in the thread of its discussion; return whether there was one."""
    of_row = ThreadComment.objects.filter(thread__pull_request=row)
    known = set(of_row.exclude(forge_id="").values_list("forge_id", flat=True))
    threads = {thread.discussion: thread for thread in row.threads.all()}
    stored = False
    for comment in comments:
        if comment.id in known or not comment.text.strip() or _is_ours(row, comment):
            continue
        thread = threads.get(comment.discussion)
        if thread is None and len(threads) >= MOST_THREADS:
            continue  # later comments may belong to threads that are here
        if thread is None:
            anchor = anchors.get(comment.discussion) or _Anchor(task.head_commit)
            thread = threads[comment.discussion] = ReviewThread.objects.create(
                task=task,
                pull_request=row,
                discussion=comment.discussion[:200],
                number=next_number(task),
                path=anchor.path,
                side=anchor.side,
                line=anchor.line,
                first_line=anchor.first_line,
                line_text=anchor.line_text,
                commit=anchor.commit,
            )
        ThreadComment.objects.create(
            thread=thread,
            forge_author=(storable_text(comment.author) or "somebody")[:200],
            forge_id=comment.id[:64],
            text=storable_text(comment.text)[:_LONGEST_COMMENT],
        )
        if thread.state != ThreadState.OPEN:
            set_state(thread, ThreadState.OPEN)
        stored = True
    return stored


def _is_ours(row: PullRequest, comment: RemoteComment) -> bool:
    """Return whether a worker posted the comment and died before it stored its id, and store it now.

    Outside of lines, a reply is a discussion of its own at GitHub and Forgejo, so its thread is not asked.
    """
    mark = _MARK_AT_END.search(comment.text)
    if mark is None:
        return False
    replies = ThreadComment.objects.filter(thread__pull_request=row, run__isnull=False, forge_id="")
    return bool(replies.filter(pk=int(mark[1])).update(forge_id=comment.id[:64]))


def _committed_lines(task: Task, path: str, commit: str) -> list[str] | None:
    """Return the lines of a file in the commit; None if the portal does not have it."""
    is_inside = path and "\0" not in path and not path.startswith("/") and ".." not in path.split("/")
    if not is_commit_id(commit) or not is_inside:
        return None
    try:
        text = committed_text(paths.repository(task.project), commit=commit, path=path)
    except WorkspaceError:
        return None
    if text is None:
        return None
    return text.removesuffix("\n").split("\n")


def unposted_replies(row: PullRequest) -> list[ThreadComment]:
    """Return the agent's replies in threads of the pull request that are not there yet, in order."""
    rows = ThreadComment.objects.filter(thread__pull_request=row, forge_id="", run__isnull=False)
    return list(rows.select_related("thread").order_by("pk"))


def reply_text(comment: ThreadComment) -> str:
    """Return what is posted for the agent's reply, such that the forge only shows it."""
    return f"{harmless(comment.text)[:_LONGEST_COMMENT]}\n\n{_MARK.format(comment.pk)}"


def record_posted(comment: ThreadComment, forge_id: str) -> None:
    ThreadComment.objects.filter(pk=comment.pk, forge_id="").update(forge_id=forge_id[:64])


@dataclass(frozen=True)
class Merge:
    """A merge that an agent resolves, as `Task.merge` stores it.

    The commit `target` of the project's branch is merged into the result `onto`. `started` is the merge with
    conflict markers in `files`; it is where the agent begins and no part of the result's history. `unmarked`
    are those files that have no markers, such as binary ones. `last_run` is the id of the task's run before.
    """

    target: str
    onto: str
    started: str
    files: list[str]
    unmarked: list[str] = field(default_factory=list)
    last_run: int = 0

    @classmethod
    def of(cls, task: Task) -> Merge | None:
        """Return the last merge of the task that an agent was asked for."""
        stored: Any = task.merge
        return cls(**stored) if stored else None

    @property
    def markers(self) -> tuple[str, str]:
        """The beginnings of the lines around a conflict, as git wrote them."""
        return f"<<<<<<< {self.onto}", f">>>>>>> {self.target}"

    def files_with_markers(self, repository: Repository, commit: str) -> list[str]:
        """Return the files of the commit in which conflict markers of the merge are left.

        Raises WorkspaceError: a file that cannot be read must not count as resolved.
        """
        found = blobs_shown_as(repository, commit=commit, names=frozenset(self.files))
        return [name for name, blob in found if has_line_with_prefix(repository, blob, self.markers)]

    def files_left_alone(self, repository: Repository, commit: str) -> list[str]:
        """Return the files without markers that are in the commit as the portal left them."""
        names = frozenset(self.unmarked)
        before, now = (
            dict(blobs_shown_as(repository, commit=one, names=names)) for one in (self.started, commit)
        )
        return [name for name in self.unmarked if name in now and now[name] == before.get(name)]


def let_agent_merge(task: Task, *, by: Principal, via: Channel) -> Review:
    """Ask the agent to merge the newest commit of the project's branch into the result of a done task.

    The last task of a sequence merges for all of it: its result is that of the sequence. Returns the request
    for changes that the agent gets. Raises NotAllowed; IllegalMove for a task or a sequence that is not done,
    and for an earlier task of one; BadInput if there is no conflict; WorkspaceError if the source cannot be
    read.
    """
    require_actor(by, task.project)
    if why := why_not_merge(task):
        raise why
    fetch(task.project)
    merge = _start_merge(task, paths.repository(task.project))
    with transaction.atomic():
        task = locked(task)
        if why := why_not_merge(task):
            raise why
        if task.head_commit != merge.onto:
            raise IllegalMove(f"Task “{task}”", "changed meanwhile", "merged; try again")
        Task.objects.filter(pk=task.pk).update(merge=asdict(merge), reset_to=merge.started)
        verdict = ReviewVerdict.REQUEST_CHANGES
        body = merge_request(task.project.branch, merge.target, merge.files, merge.unmarked)
        return send_review(task, verdict, by=by, via=via, body=body, files=merge.files)


def why_not_merge(task: Task) -> IllegalMove | None:
    """Return why no agent can be asked to merge; None if one can."""
    if task.phase != Phase.DONE:
        return IllegalMove(f"Task “{task}”", task.phase, "merged: it is not done")
    if why := why_not_change(task):
        return why
    if task.sequence and task.sequence.phase != Phase.DONE:
        return IllegalMove(f"Sequence “{task.sequence}”", task.sequence.phase, "merged: it is not done")
    return None


def _start_merge(task: Task, repository: Repository) -> Merge:
    """Make the merge with conflict markers, and keep it as a snapshot, so that git does not remove it.

    Raises BadInput if the two can be merged without conflict.
    """
    branch = task.project.branch
    onto, target = task.head_commit, repository.head(branch)
    try:
        merged_tree(repository, onto, target)
    except MergeConflict as conflict:
        tree, files = conflict.tree, conflict.files
    else:
        message = f"{branch} can be merged into the result without the agent: publish it with the update"
        raise BadInput(message, where="merge")
    started = make_commit(
        repository, tree, parents=[onto, target], message=f"Merge branch '{branch}' with conflicts",
        author=AUTHOR, at=timezone.now(),
    )  # fmt: skip
    paths.workspace(task).set_snapshot(started, label=f"{task.pk}-merge-{started[:12]}")
    last = Run.objects.filter(step__task=task).order_by("-pk").values_list("pk", flat=True).first()
    merge = Merge(target, onto, started, files, last_run=last or 0)
    # Files in conflict without markers; names that are not text are left out.
    marked = merge.files_with_markers(repository, started)
    found = blobs_shown_as(repository, commit=started, names=frozenset(files))
    unmarked = [name for name, _ in found if name not in marked and "\ufffd" not in name]
    return replace(merge, unmarked=unmarked)
