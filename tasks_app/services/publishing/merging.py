"""Let the agent merge the project's branch into a result with which it conflicts (V6).

The portal makes the merge, with conflict markers in the files concerned. A worker puts it into the workspace,
and the session that last wrote the code is asked to resolve it, as reviewers ask for changes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, MergeConflict
from tasks_app.core.phases import Phase
from tasks_app.git import AUTHOR, Repository, blobs_shown_as, has_line_with_prefix
from tasks_app.git.publishing import make_commit, merged_tree
from tasks_app.models import Channel, Review, ReviewVerdict, Run, Task, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.prompting.merging import merge_request
from tasks_app.services.projects.fetching import fetch
from tasks_app.services.reviews.reviews import send_review
from tasks_app.services.reviews.sending_back import why_not_change
from tasks_app.services.tasks import locked


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


def let_agent_merge(task: Task, *, by: Principal, via: Channel, notify: bool = True) -> Review:
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
        return send_review(task, verdict, by=by, via=via, body=body, notify=notify)


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
    return replace(merge, unmarked=_files_without_markers(repository, merge))


def _files_without_markers(repository: Repository, merge: Merge) -> list[str]:
    """Return the files in conflict that have no markers, without those whose names are not text."""
    marked = merge.files_with_markers(repository, merge.started)
    found = blobs_shown_as(repository, commit=merge.started, names=frozenset(merge.files))
    return [name for name, _ in found if name not in marked and "\ufffd" not in name]
