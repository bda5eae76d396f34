"""Exporting decisions as records (ADRs) of the repository: one prepared commit, as the result of a task (D7).

No agent works on such a task. It has no steps and is done at once, so that a result's usual page, review,
approvals, publication and pull request serve it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from tasks_app.config.decision_files import MAX_BYTES, FoundDecision, is_record, read_decisions
from tasks_app.config.decision_records import DecisionRecord, record_text, with_front_matter
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.git import TreeFile, blob_contents, branch_name, committed_blobs, committed_tree
from tasks_app.git.writing import with_files
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import Action, Change, ChangeKind, Decision, DecisionState, Project, Task, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.decisions.passages import comparable
from tasks_app.services.decisions.reading import first_files, left_out_note
from tasks_app.services.tasks import free_names, newest_commit

#: The folder of the files if the repository has no decision records yet.
DEFAULT_FOLDER = "docs/decisions"
#: Records of the repository that are read.
_MOST_READ = 2_000
_OWN_NAME = re.compile(r"(?:^|/)d-[0-9]+[^/]*$")
_NAMED = 20


@dataclass(frozen=True)
class DecisionFiles:
    """What the files of decisions have to become in a commit, by path. `notes` are sentences for the task."""

    folder: str
    new: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def contents(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in (self.new | self.changed).items()}


@dataclass(frozen=True)
class Export:
    """The task with the files; None if the project's branch has them all. `is_new`: it was created now."""

    task: Task | None
    is_new: bool = False


def export_decisions(project: Project, *, by: Principal) -> Export:
    """Write the active decisions as files into a commit, and return the task whose result it is.

    Files of decisions that were replaced or retired get that status. If an earlier export has the same
    changes, its task is returned. Fetches the source. Raises NotAllowed and WorkspaceError.
    """
    require_actor(by, project)
    base = newest_commit(project)
    files = files_to_write(project, base)
    contents = files.contents
    if not contents:
        return Export(None)
    if before := _same_export(project, base, contents):
        return Export(before)
    title = f"Export decisions to {files.folder}"
    commit = with_files(
        paths.repository(project), base, contents, message=f"docs: {title[0].lower()}{title[1:]}",
        at=timezone.now(),
    )  # fmt: skip
    for slug in free_names(project, "decisions"):
        task = Task(
            project=project, slug=slug, title=title, body=_described(files), exports_decisions=True,
            branch=branch_name(slug), base_commit=base, head_commit=commit, created_by=by.user,
            left_out=files.notes, queued_at=timezone.now(),
        )  # fmt: skip
        task.text = f"# {title}\n\n{task.body}"
        paths.workspace(task).set_snapshot(commit, label="export", publish=True)
        try:
            _store_done_task(task)
        except IntegrityError:  # somebody else has just created a task of this name
            continue
        return Export(task, is_new=True)
    raise BadInput("there are too many exports; end some of them")


def _store_done_task(task: Task) -> None:
    reason = "The portal wrote the files; no agent worked."
    with transaction.atomic():
        task.save()
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_CREATED, by=task.created_by, task=task, exports_decisions=True)
        move(task, Phase.RUNNING, reason=reason, by=task.created_by)
        move(task, Phase.DONE, reason=reason, by=task.created_by)


def _same_export(project: Project, base: str, contents: Mapping[str, bytes]) -> Task | None:
    """Return the newest export, if it makes the same files of the same ones."""
    task = project.tasks.filter(exports_decisions=True).order_by("-pk").first()
    repository = paths.repository(project)
    if task is None or not repository.has(task.head_commit):
        return None
    before, now = (
        committed_blobs(repository, commit=one, paths=list(contents)) for one in (task.base_commit, base)
    )
    made = committed_blobs(repository, commit=task.head_commit, paths=list(contents))
    texts = blob_contents(repository, made.values())
    is_same = before == now and {path: texts[blob] for path, blob in made.items()} == contents
    return task if is_same else None


def _described(files: DecisionFiles) -> str:
    """Return the text of the task."""
    parts = ["The portal wrote the decisions of the project as files, for a review. No agent worked."]
    for title, written in (("New", files.new), ("Changed, because the decision has", files.changed)):
        if written:
            names = "\n".join(f"- `{path}`" for path in list(written)[:_NAMED])
            more = f"\n- and {len(written) - _NAMED} more" if len(written) > _NAMED else ""
            parts.append(f"{title}:\n\n{names}{more}")
    parts += files.notes
    return "\n\n".join(parts) + "\n"


def files_to_write(project: Project, commit: str) -> DecisionFiles:
    """Return the files that differ from what the decisions say by now. Runs git."""
    records = _Records(project, commit)
    files = DecisionFiles(records.folder, notes=records.notes)
    decisions = project.decisions.exclude(state=DecisionState.PROPOSED).select_related("decided_by")
    for decision in decisions.prefetch_related("replaced_by").order_by("number"):
        said = _record_of(decision)
        if exported := records.exported.get(decision.label):
            _update(files, exported, said, decision)
        elif decision.is_active and not records.states(decision):
            path = records.free_path(said)
            files.new[path] = record_text(said, path=path)
        elif not decision.is_active and records.states(decision):
            files.notes.append(f"{decision.source} states {decision.label}, which is {said.status} by now.")
    return files


def _update(files: DecisionFiles, exported: _Exported, said: DecisionRecord, decision: Decision) -> None:
    """Bring the front matter of a file up to date. What people wrote below it stays."""
    if comparable(exported.found.statement) != comparable(decision.statement):
        files.notes.append(
            f"{exported.found.path} says that it is {decision.label}, but states something else; it stays as"
            " it is."
        )
        return
    text = with_front_matter(said, exported.text)
    if text != exported.text:
        files.changed[exported.found.path] = text


def _record_of(decision: Decision) -> DecisionRecord:
    return DecisionRecord(
        decision.label,
        decision.statement,
        _status(decision),
        decision.reason,
        decision.decided_by.shown_name if decision.decided_by else "",
        timezone.localdate(decision.decided_at) if decision.decided_at else None,
        decision.paths,
        decision.step,
        decision.review_after,
    )


def _status(decision: Decision) -> str:
    if decision.is_active:
        return "accepted"
    new = sorted(one.number for one in decision.replaced_by.all())
    if decision.state == DecisionState.SUPERSEDED and new:
        return f"superseded by D-{new[-1]}"
    return "superseded" if decision.state == DecisionState.SUPERSEDED else "deprecated"


@dataclass(frozen=True)
class _Exported:
    """A file that an earlier export wrote, and its text."""

    found: FoundDecision
    text: str


class _Records:
    """The decision records in a commit of the project's branch."""

    def __init__(self, project: Project, commit: str) -> None:
        self._tree = {one.path: one for one in committed_tree(paths.repository(project), commit=commit)}
        self.notes: list[str] = []
        read = list(self._read(project))
        self.exported = {found.label: _Exported(found, text) for found, text in reversed(read) if found.label}
        self._stated = {(found.path, comparable(found.statement)) for found, _ in read}
        folders = [found.path.rpartition("/")[0] for found, _ in read]
        own = [one.found.path.rpartition("/")[0] for one in self.exported.values()]
        common = Counter(own or folders).most_common(1)
        self.folder = common[0][0] if common else DEFAULT_FOLDER

    def _read(self, project: Project) -> Iterator[tuple[FoundDecision, str]]:
        records: list[TreeFile] = [
            one
            for path, one in self._tree.items()
            if is_record(path) and not one.is_link and one.size <= MAX_BYTES and "\ufffd" not in path
        ]
        # First those that an export has probably written: an unread one would be written a second time.
        records.sort(key=lambda one: not _OWN_NAME.search(one.path))
        files = first_files(records, most=_MOST_READ)
        if len(files) < len(records):
            self.notes.append(left_out_note(len(files), len(records), most=_MOST_READ))
        contents = blob_contents(paths.repository(project), [one.blob for one in files])
        for file in files:
            try:
                found = read_decisions(file.path, contents.get(file.blob, b""))
            except ValueError:  # it is no text
                continue
            yield from ((one, contents[file.blob].decode()) for one in found)

    def states(self, decision: Decision) -> bool:
        """Return whether the record from which the decision was imported still states it."""
        path = decision.source.rpartition(":")[0]
        return bool(path) and (path, comparable(decision.statement)) in self._stated

    def free_path(self, said: DecisionRecord) -> str:
        """Return the path of a new file, which is no file yet."""
        words = slugify(said.title)[:60].strip("-")
        stem = f"{self.folder}/{said.label.lower()}" + (f"-{words}" if words else "")
        names = (stem + (f"-{number}" if number > 1 else "") + ".md" for number in range(1, 1000))
        return next(name for name in names if name not in self._tree)
