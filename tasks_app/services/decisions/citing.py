"""The code that decisions cite: files as they were, and which of them have changed since (D1, D6)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import transaction

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.named_paths import paths_named_in
from tasks_app.git import committed_blobs
from tasks_app.models import (
    Citation,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    Project,
    Question,
    ReviewReason,
    paths,
)
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.decisions.passages import StatementIndex
from tasks_app.services.difference import base_of

logger = logging.getLogger(__name__)

MAX_CITED = 20
#: The content of a cited name that could not be read: it may be a file or no file at all.
UNREAD = ""
#: Names in one command of git.
_AT_ONCE = 500


def texts_of(question: Question) -> list[str]:
    """Return the texts of a question in which files may be named."""
    texts = []
    for item in question.items:
        options = item.get("options") or []
        texts += [str(item["question"]), *(f"{one.get('label')} {one.get('description')}" for one in options)]
    return texts


def cited_by(question: Question, content: DecisionContent) -> list[Citation]:
    """Return the files that question and decision name, as they were when the task began. Runs git."""
    texts = [content.statement, content.reason, *content.paths, *texts_of(question)]
    task = question.task
    return _citations(task.project, base_of(task), paths_named_in(texts))


def existing_files(project: Project, content: DecisionContent) -> list[Citation]:
    """Return the files that the decision names, as the project's branch has them now. Runs git."""
    named = paths_named_in([content.statement, content.reason, *content.paths])
    return _citations(project, _head(project), named)


def citations_now(decision: Decision) -> list[Citation]:
    """Return the decision's citations as the project's branch has them now, without what is gone.

    That are files, and files that do not state any more what was imported from them.
    """
    found = _citations(decision.project, _head(decision.project), [one["path"] for one in decision.cites])
    blobs, passages = {one["path"]: one["blob"] for one in found}, StatementIndex(decision.project)
    return [
        _as_now(one, blobs)
        for one in decision.cites
        if one["path"] in blobs and ("passage" not in one or _is_still_stated(one, blobs, passages))
    ]


@dataclass(frozen=True)
class CitedFile:
    """A cited file and its content on the project's branch: `now` is a blob, or "" if it is gone."""

    path: str
    then: str
    now: str

    @property
    def has_changed(self) -> bool:
        return self.then != self.now

    @property
    def is_unread(self) -> bool:
        return self.then == UNREAD


def cited_files(decision: Decision) -> list[CitedFile] | None:
    """Return the files that the decision cites; None if the repository cannot be read. Runs git."""
    head = _head(decision.project)
    try:
        blobs = blobs_at(decision.project, head, [one["path"] for one in decision.cites]) if head else None
    except WorkspaceError:
        blobs = None
    if blobs is None:
        return None
    return [CitedFile(one["path"], one["blob"], blobs.get(one["path"], "")) for one in decision.cites]


def mark_stale(project: Project) -> int:
    """Ask for a review of the decisions whose cited code has changed on the project's branch. Runs git.

    Returns how many. They stay in force: whether the change matters, a human says. A file from which the
    decision was imported matters only if it does not state it any more. What the task changed that
    asked for the decision is no reason to ask again.
    """
    citing = project.decisions.active().filter(review_reason="").select_related("question__task")
    citing_files = [one for one in citing if one.cites]
    if not citing_files or not (head := _head(project)):
        return 0
    names = {cited["path"] for one in citing_files for cited in one.cites}
    try:
        blobs = blobs_at(project, head, names)
    except WorkspaceError as error:  # the next fetch looks again
        logger.warning("project %s: cited files were not compared: %s", project, error)
        return 0
    passages = StatementIndex(project)
    return sum(_mark_if_stale(decision, blobs, passages) for decision in citing_files)


def _mark_if_stale(decision: Decision, blobs: Mapping[str, str], passages: StatementIndex) -> int:
    changed = {one["path"] for one in decision.cites if blobs.get(one["path"]) != one["blob"]}
    if not changed:
        return 0
    expected = {one["path"] for one in decision.cites if _is_expected(one, blobs, passages)}
    unexpected = changed - expected
    unexpected -= _changed_by_its_task(decision, unexpected, blobs)
    names = ", ".join(sorted(unexpected or changed))
    return _ask_for_review(decision, names) if unexpected else _cite_anew(decision, blobs, names)


def _changed_by_its_task(
    decision: Decision, changed: Collection[str], blobs: Mapping[str, str]
) -> frozenset[str]:
    """Return the files that are as the task left them that asked for the decision; none if that is lost."""
    task = decision.question.task if decision.question else None
    if task is None or not task.head_commit:
        return frozenset()
    try:
        own = blobs_at(decision.project, task.head_commit, changed)
    except WorkspaceError as error:
        logger.warning("%s of project %s: %s", decision, decision.project_id, error)
        return frozenset()
    return frozenset(path for path in changed if own.get(path) == blobs.get(path))


def _is_expected(cited: Citation, blobs: Mapping[str, str], passages: StatementIndex) -> bool:
    """Return whether a change of the file matters to nobody, or the name turned out to be no file."""
    is_no_file = cited["blob"] == UNREAD and cited["path"] not in blobs
    return is_no_file or _is_still_stated(cited, blobs, passages)


def _is_still_stated(cited: Citation, blobs: Mapping[str, str], passages: StatementIndex) -> bool:
    path = cited["path"]
    return passages.are_in(cited.get("passage", ""), path, blobs.get(path, ""))


def _as_now(cited: Citation, blobs: Mapping[str, str]) -> Citation:
    now = cited.copy()
    now["blob"] = blobs[cited["path"]]
    return now


def _ask_for_review(decision: Decision, note: str) -> int:
    with transaction.atomic():
        rows = Decision.objects.active().filter(pk=decision.pk, review_reason="")
        if rows.update(review_reason=ReviewReason.STALE, review_note=note):
            DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.STALE, note=note)
            return 1
    return 0


def _cite_anew(decision: Decision, blobs: Mapping[str, str], note: str) -> int:
    """Cite the files as they are now: nobody needs to look at the change. Return 0: nobody is asked."""
    now = [_as_now(one, blobs) for one in decision.cites if one["path"] in blobs]
    with transaction.atomic():
        if Decision.objects.active().filter(pk=decision.pk, review_reason="").update(cites=now):
            DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.CITED_ANEW, note=note)
    return 0


def blobs_at(project: Project, commit: str, names: Collection[str]) -> dict[str, str]:
    """Return the blob ids of the named files of a commit. Raises WorkspaceError. Runs git."""
    ordered, repository = sorted(names), paths.repository(project)
    found: dict[str, str] = {}
    for begin in range(0, len(ordered), _AT_ONCE):
        some = ordered[begin : begin + _AT_ONCE]
        found |= committed_blobs(repository, commit=commit, paths=some)
    return found


def _citations(project: Project, commit: str, named: Collection[str]) -> list[Citation]:
    """Return the files among the names.

    If the commit cannot be read, the names are cited as UNREAD: an answer must not fail for it, and such a
    decision must not pass for one that cites nothing.
    """
    try:
        blobs = blobs_at(project, commit, named) if commit or not named else None
    except WorkspaceError as error:
        logger.warning("project %s: what a decision cites was not read: %s", project, error)
        blobs = None
    if blobs is None:
        blobs = dict.fromkeys(named, UNREAD)
    return [Citation(path=path, blob=blobs[path]) for path in named if path in blobs][:MAX_CITED]


def _head(project: Project) -> str:
    try:
        return paths.repository(project).head(project.branch)
    except WorkspaceError:
        return ""
