"""Importing decisions from files of a project's branch: rules for agents, and decision records (D7)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import transaction

from tasks_app.config.decision_files import MAX_BYTES, FoundDecision, decision_files, read_decisions
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.storable import storable_text
from tasks_app.git import TreeFile, blob_bytes, committed_tree
from tasks_app.models import Citation, Decision, DecisionScope, Project, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.decisions.changes import propose, store
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.decisions.passages import comparable
from tasks_app.services.decisions.reading import first_files, left_out_note

#: Files that are read, and decisions that are shown and imported at once.
MAX_FILES, MAX_AT_ONCE = 200, 300


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
    """What can be imported, and what could not be read: “docs/adr/1.md is not UTF-8 text”."""

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
            raise BadInput(f"the branch {project.branch} has no file {name[:200]}", where="paths")
    names = list(dict.fromkeys(only)) or decision_files(files)
    chosen = first_files([_with_size_read(files[name]) for name in names], most=MAX_FILES)
    preview = ImportPreview()
    if len(chosen) < len(names):
        note = left_out_note(len(chosen), len(names), most=MAX_FILES)
        preview.faults.append(f"{note} Name some files to import others.")
    known = _ImportedDecisions(project)
    for file in chosen:
        _read_file(preview, project, file, known)
    if len(preview.decisions) > MAX_AT_ONCE:
        preview.faults.append(f"Only the first {MAX_AT_ONCE} decisions are shown. Name some files.")
        del preview.decisions[MAX_AT_ONCE:]
    return preview


def _with_size_read(file: TreeFile) -> TreeFile:
    """Return the file with the size that is read of it."""
    return replace(file, size=min(file.size, MAX_BYTES + 1))


def _read_file(preview: ImportPreview, project: Project, file: TreeFile, known: _ImportedDecisions) -> None:
    try:
        content = blob_bytes(paths.repository(project), file, limit=MAX_BYTES + 1)
        found = read_decisions(file.path, content)
    except (ValueError, WorkspaceError) as error:
        preview.faults.append(storable_text(f"{file.path} {error}."))
        return
    for one in found:
        preview.decisions.append(Importable(one, file.blob, known.label_of(one)))


class _ImportedDecisions:
    """The decisions that the project has already."""

    def __init__(self, project: Project) -> None:
        self._imported: dict[tuple[str, str], str] = {}
        self._stated: dict[str, str] = {}
        for one in project.decisions.order_by("number").only("number", "source", "statement"):
            statement = comparable(one.statement)
            self._stated[statement] = one.label
            if one.source:
                self._imported[one.source.rpartition(":")[0], statement] = one.label

    def label_of(self, found: FoundDecision) -> str:
        """Return the decision that was imported from there, or exported to there; "" if there is none."""
        statement = comparable(found.statement)
        exported = self._stated.get(statement, "") if found.label else ""
        return self._imported.get((found.path, statement), "") or exported


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

    They are proposed, or with `accept` decided by whoever imports. Raises NotAllowed or BadInput.
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
