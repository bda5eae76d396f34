"""Decision records in a repository: importing and exporting decisions.

An export is a task on which no agent works. It has no steps and is done at once, so that a result's usual
page, review, approvals, publication and pull request serve it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from tasks_app.config.decision_records import (
    MAX_BYTES,
    DecisionRecord,
    FoundDecision,
    NoDecision,
    decision_files,
    is_record,
    read_decision,
    record_text,
    with_front_matter,
)
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import same_text
from tasks_app.core.text import storable_text
from tasks_app.git import TreeFile, blob_bytes, blob_contents, branch_name, committed_blobs, committed_tree
from tasks_app.git.writing import with_files
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Citation,
    Decision,
    DecisionScope,
    DecisionState,
    Project,
    Task,
    paths,
)
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.decisions.changes import propose, store
from tasks_app.services.decisions.citing import first_files, left_out_note
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.tasks import free_names, newest_commit

#: Files that are read, and decisions that are shown and imported at once.
MAX_FILES, MAX_AT_ONCE = 200, 300
#: Files that state no decision and are named with the reason.
MAX_REASONS = 20


@dataclass(frozen=True)
class Importable:
    """A decision that a file states, and whether it was imported already."""

    found: FoundDecision
    blob: str
    imported_as: str = ""

    @property
    def is_suggested(self) -> bool:
        return not (self.found.ended or self.imported_as)

    @property
    def key(self) -> str:
        """Tell it apart from the others while the file stays as it is."""
        said = f"{self.found.source}\n{self.found.statement}"
        return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]

    @property
    def citation(self) -> Citation:
        return Citation(path=self.found.path, blob=self.blob, passage=self.found.statement)


@dataclass(frozen=True)
class ImportPreview:
    """The decisions that can be imported, and faults such as “docs/adr/1.md is not UTF-8 text”.

    Files that state no decision are faults if they were named, or if nothing else was found.
    """

    decisions: list[Importable] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def preview_import(project: Project, only: Collection[str] = ()) -> ImportPreview:
    """Return the decisions that files of the project's branch state; `only` names some files. Runs git.

    Raises BadInput for a named file that the branch lacks, and WorkspaceError without a repository.
    """
    repository = paths.repository(project)
    tree = committed_tree(repository, commit=repository.head(project.branch))
    files = {one.path: one for one in tree if not one.is_link}
    for name in only:
        if name not in files:
            what = "a link" if any(one.path == name for one in tree) else "no file"
            raise BadInput(f"{name[:200]} is {what} on the branch {project.branch}", where="paths")
    names = list(dict.fromkeys(only)) or decision_files(files)
    # Of a large file only the beginning is read.
    read = [replace(files[name], size=min(files[name].size, MAX_BYTES + 1)) for name in names]
    chosen = first_files(read, most=MAX_FILES)
    preview = ImportPreview()
    if len(chosen) < len(names):
        note = left_out_note(len(chosen), len(names), most=MAX_FILES)
        preview.faults.append(f"{note} Name some files to import others.")
    known = _ImportedDecisions(project)
    silent: list[str] = []
    for file in chosen:
        try:
            _read_file(preview, project, file, known)
        except NoDecision as why:
            silent.append(storable_text(f"{file.path} {why}."))
    if only or not preview.decisions:
        preview.faults.extend(silent[:MAX_REASONS])
    if len(preview.decisions) > MAX_AT_ONCE:
        preview.faults.append(f"Only the first {MAX_AT_ONCE} decisions are shown. Name some files.")
        del preview.decisions[MAX_AT_ONCE:]
    return preview


def _read_file(preview: ImportPreview, project: Project, file: TreeFile, known: _ImportedDecisions) -> None:
    try:
        content = blob_bytes(paths.repository(project), file, limit=MAX_BYTES + 1)
        found = read_decision(file.path, content)
    except NoDecision:
        raise
    except (ValueError, WorkspaceError) as error:
        preview.faults.append(storable_text(f"{file.path} {error}."))
        return
    preview.decisions.append(Importable(found, file.blob, known.label_of(found)))


class _ImportedDecisions:
    """The decisions that the project has already."""

    def __init__(self, project: Project) -> None:
        self._imported: dict[tuple[str, str], str] = {}
        self._stated: dict[str, str] = {}
        for one in project.decisions.order_by("number").only("number", "source", "statement"):
            statement = same_text(one.statement)
            self._stated[statement] = one.label
            if one.source:
                self._imported[one.source.rpartition(":")[0], statement] = one.label

    def label_of(self, found: FoundDecision) -> str:
        """Return the label of the decision that was imported from or exported to the file, or ""."""
        statement = same_text(found.statement)
        if label := self._imported.get((found.path, statement)):
            return label
        return self._stated.get(statement, "") if found.label else ""


def select_for_import(
    preview: ImportPreview, wanted: Mapping[str, str] | None
) -> list[tuple[Importable, str]]:
    """Return what is wanted, each with its statement; `wanted` has statements by key, "" as in the file.

    None is all that is suggested. Raises BadInput for a key that the preview lacks.
    """
    by_key = {one.key: one for one in preview.decisions}
    if wanted is None:
        wanted = {one.key: "" for one in preview.decisions if one.is_suggested}
    if unknown := sorted(wanted.keys() - by_key.keys()):
        raise BadInput(f"no decision has the key {unknown[0]}; the files may have changed", where="decisions")
    return [(by_key[key], said.strip() or by_key[key].found.statement) for key, said in wanted.items()]


def import_decisions(
    project: Project, chosen: Sequence[tuple[Importable, str]], *, by: Principal, accept: bool = False
) -> list[Decision]:
    """Store what was chosen, all or none: each with its statement, which may be edited.

    They are proposed; with `accept` they are active, decided by the user who imports them. Raises
    NotAllowed or BadInput.
    """
    require_actor(by, project)
    contents = [_content(one.found, statement).checked() for one, statement in chosen]
    with transaction.atomic():
        return [
            _store_decision(project, one, content, by=by, accept=accept)
            for (one, _), content in zip(chosen, contents, strict=True)
        ]


def _content(found: FoundDecision, statement: str) -> DecisionContent:
    """Return what is imported. A record that was exported says where the decision holds."""
    content = DecisionContent(storable_text(statement), storable_text(found.reason))
    if found.paths:
        return replace(content, scope=DecisionScope.PATHS, paths=tuple(map(storable_text, found.paths)))
    if found.step:
        return replace(content, scope=DecisionScope.STEP, step=storable_text(found.step))
    return content


def _store_decision(
    project: Project, one: Importable, content: DecisionContent, *, by: Principal, accept: bool
) -> Decision:
    source = one.found.source[-500:]
    if accept:
        return store(project, content, by=by.user, source=source, cites=[one.citation])
    return propose(project, content, by=by, source=source, cites=[one.citation])


#: The folder of the files if the repository has no decision records yet.
DEFAULT_FOLDER = "docs/decisions"
#: Records of the repository that are read.
_MOST_READ = 2_000
_OWN_NAME = re.compile(r"(?:^|/)d-[0-9]+[^/]*$")
_NAMED = 20


@dataclass(frozen=True)
class DecisionFiles:
    """The files of decisions to write in a commit, by path. `notes` are sentences for the task."""

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
            project=project, slug=slug, title=title, body=_task_body(files), exports_decisions=True,
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
    if before == now and {path: texts[blob] for path, blob in made.items()} == contents:
        return task
    return None


def _task_body(files: DecisionFiles) -> str:
    """Return the text of the task."""
    parts = ["The portal wrote the decisions of the project as files, for a review. No agent worked."]
    for title, written in (("New", files.new), ("Changed, because the decision has", files.changed)):
        if written:
            lines = [f"- `{path}`" for path in list(written)[:_NAMED]]
            if len(written) > _NAMED:
                lines.append(f"- and {len(written) - _NAMED} more")
            parts.append(f"{title}:\n\n" + "\n".join(lines))
    parts += files.notes
    return "\n\n".join(parts) + "\n"


def files_to_write(project: Project, commit: str) -> DecisionFiles:
    """Return the files that differ from what the decisions say by now. Runs git."""
    records = _Records(project, commit)
    files = DecisionFiles(records.folder, notes=records.notes)
    decisions = project.decisions.exclude(state=DecisionState.PROPOSED).select_related(
        "decided_by", "question"
    )
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
    if same_text(exported.found.statement) != same_text(decision.statement):
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
        "\n\n".join(filter(None, [decision.asked, decision.reason])),
        decision.decided_by.shown_name if decision.decided_by else "",
        timezone.localdate(decision.decided_at) if decision.decided_at else None,
        decision.paths,
        decision.step,
        decision.review_after,
    )


def _status(decision: Decision) -> str:
    if decision.is_active:
        return "accepted"
    if decision.state != DecisionState.SUPERSEDED:
        return "deprecated"
    if new := [one.number for one in decision.replaced_by.all()]:
        return f"superseded by D-{max(new)}"
    return "superseded"


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
        self._stated = {(found.path, same_text(found.statement)) for found, _ in read}
        folders = [found.path.rpartition("/")[0] for found, _ in read]
        own = [one.found.path.rpartition("/")[0] for one in self.exported.values()]
        self.folder = Counter(own or folders or [DEFAULT_FOLDER]).most_common(1)[0][0]

    def _read(self, project: Project) -> Iterator[tuple[FoundDecision, str]]:
        records: list[TreeFile] = [
            one
            for path, one in self._tree.items()
            if is_record(path) and not one.is_link and one.size <= MAX_BYTES and "\ufffd" not in path
        ]
        # Probable exports come first: an export that is not read would be written a second time.
        records.sort(key=lambda one: not _OWN_NAME.search(one.path))
        files = first_files(records, most=_MOST_READ)
        if len(files) < len(records):
            self.notes.append(left_out_note(len(files), len(records), most=_MOST_READ))
        contents = blob_contents(paths.repository(project), [one.blob for one in files])
        for file in files:
            try:
                found = read_decision(file.path, contents.get(file.blob, b""))
            except ValueError:  # it states nothing
                continue
            yield found, contents[file.blob].decode()

    def states(self, decision: Decision) -> bool:
        """Return whether the record from which the decision was imported still states it."""
        path = decision.source.rpartition(":")[0]
        return bool(path) and (path, same_text(decision.statement)) in self._stated

    def free_path(self, said: DecisionRecord) -> str:
        """Return an unused path for a new file."""
        words = slugify(said.title)[:60].strip("-")
        stem = f"{self.folder}/{said.label.lower()}" + (f"-{words}" if words else "")
        names = (f"{stem}.md", *(f"{stem}-{number}.md" for number in range(2, 1000)))
        return next(name for name in names if name not in self._tree)
