"""Decisions that concern a question, a task or a file, and whether an answer agrees with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from django.db import transaction
from django.db.models import Q

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.core.asked_items import says_same
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.similar_questions import question_digest, same_text
from tasks_app.git import TreeFile, committed_blobs
from tasks_app.models import (
    Citation,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionScope,
    Project,
    Question,
    ReviewReason,
    Run,
    paths,
)
from tasks_app.models.decision import decisions_named_in
from tasks_app.services.decisions.content import DecisionContent, StatementIndex, files_of
from tasks_app.services.difference import base_of, base_of_sequence

#: Maximum bytes of all files together: they are held in memory and parsed within one request.
MAX_TOTAL_BYTES = 5_000_000


def first_files(files: Sequence[TreeFile], *, most: int) -> list[TreeFile]:
    """Return the first files that together keep within `most` and MAX_TOTAL_BYTES."""
    total = 0
    for number, file in enumerate(files[:most]):
        total += file.size
        if total > MAX_TOTAL_BYTES:
            return list(files[:number])
    return list(files[:most])


def left_out_note(read: int, of: int, *, most: int) -> str:
    """Return a sentence that says how many files were not read, and which limits hold."""
    return (
        f"Only the first {read:,} of {of:,} files were read: at most {most:,} files and"
        f" {MAX_TOTAL_BYTES:,} bytes are read at once."
    )


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
    named = paths_named_in([content.statement, content.reason, *texts_of(question)])
    task = question.task
    return _citations(task.project, base_of(task), [*_files_of(content), *named])


def existing_files(project: Project, content: DecisionContent) -> list[Citation]:
    """Return the files that the decision names, as the project's branch has them now. Runs git."""
    named = paths_named_in([content.statement, content.reason])
    return _citations(project, _head(project), [*_files_of(content), *named])


def _files_of(content: DecisionContent) -> list[str]:
    """Return the decision's paths; one with wildcards names a file only if a file has just that name."""
    return [path.removeprefix("./").rstrip("/") for path in content.paths]


def citations_now(decision: Decision) -> list[Citation]:
    """Return the decision's citations as the project's branch has them now.

    Left out are files that are gone or no longer state what was imported from them.
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
    if not head:
        return None
    try:
        blobs = blobs_at(decision.project, head, [one["path"] for one in decision.cites])
    except WorkspaceError:
        return None
    return [CitedFile(one["path"], one["blob"], blobs.get(one["path"], "")) for one in decision.cites]


def mark_stale(project: Project) -> int:
    """Ask for a review of the decisions whose cited code has changed on the project's branch. Runs git.

    Return their number. They stay in force: a human says whether the change matters. A file from which the
    decision was imported matters only if it does not state it any more. Changes by the task that asked for
    the decision do not count.
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
    unexpected = set(changed)
    for one in decision.cites:
        is_no_file = one["blob"] == UNREAD and one["path"] not in blobs  # the name turned out to be none
        if is_no_file or _is_still_stated(one, blobs, passages):
            unexpected.discard(one["path"])
    unexpected -= _changed_by_its_task(decision, unexpected, blobs)
    names = ", ".join(sorted(unexpected or changed))
    rows = Decision.objects.active().filter(pk=decision.pk, review_reason="")
    with transaction.atomic():
        if unexpected:
            asked = rows.update(review_reason=ReviewReason.STALE, review_note=names)
            if asked:
                DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.STALE, note=names)
            return asked
        # Cite the files as they are now: nobody needs to look at the change.
        now = [_as_now(one, blobs) for one in decision.cites if one["path"] in blobs]
        if rows.update(cites=now):
            DecisionEvent.objects.create(decision=decision, kind=DecisionEventKind.CITED_ANEW, note=names)
    return 0


def _changed_by_its_task(
    decision: Decision, changed: Collection[str], blobs: Mapping[str, str]
) -> frozenset[str]:
    """Return the files that are as some run of the task left them that asked for the decision.

    Not only the newest counts: the task may continue after an earlier result was taken over.
    """
    found: set[str] = set()
    for commit in _results_of_its_task(decision):
        if found.issuperset(changed):
            break
        try:
            own = blobs_at(decision.project, commit, changed)
        except WorkspaceError as error:
            logger.warning("%s of project %s: %s", decision, decision.project_id, error)
        else:
            found.update(path for path in changed if own.get(path) == blobs.get(path))
    return frozenset(found)


def _results_of_its_task(decision: Decision) -> list[str]:
    """Return the commits that the task which asked for the decision has recorded, the newest first.

    A task of a sequence builds on what earlier tasks left, which is on the project's branch only once it is
    published: the results of its sequence count, and where the sequence began.
    """
    if decision.question is None or not decision.question.task.head_commit:
        return []
    task = decision.question.task
    commits = [task.head_commit]
    runs = Run.objects.filter(step__task=task)
    if task.sequence:
        commits.append(base_of_sequence(task.sequence))
        runs = Run.objects.filter(step__task__sequence=task.sequence)
    recorded = runs.exclude(head_commit="").order_by("-pk").values_list("head_commit", flat=True)
    return list(dict.fromkeys([*commits, *recorded]))


def _is_still_stated(cited: Citation, blobs: Mapping[str, str], passages: StatementIndex) -> bool:
    path = cited["path"]
    return passages.are_in(cited.get("passage", ""), path, blobs.get(path, ""))


def _as_now(cited: Citation, blobs: Mapping[str, str]) -> Citation:
    now = cited.copy()
    now["blob"] = blobs[cited["path"]]
    return now


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
    blobs = dict.fromkeys(named, UNREAD)
    try:
        if commit:
            blobs = blobs_at(project, commit, named)
    except WorkspaceError as error:
        logger.warning("project %s: what a decision cites was not read: %s", project, error)
    each_once = dict.fromkeys(named)
    return [Citation(path=path, blob=blobs[path]) for path in each_once if path in blobs][:MAX_CITED]


def _head(project: Project) -> str:
    try:
        return paths.repository(project).head(project.branch)
    except WorkspaceError:
        return ""


Item = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RelatedDecision:
    """An active decision that a question concerns, and the `items` that it is about.

    `same`: it was the answer to these very items before; `named`: the agent names it in them.
    """

    decision: Decision
    question: Question
    items: Sequence[Item]
    same: bool
    named: bool
    #: Looks up the files of the task and the question; may run git.
    find_files: Callable[[], Collection[str]]

    def agrees(self, answers: Mapping[str, str]) -> bool | None:
        """Return whether the answers equal the decision's; None if they cannot be compared."""
        if not self.is_comparable:
            return None
        decisions = {same_text(asked): answer for asked, answer in self.decision.answers.items()}
        said = set()
        for item in self.items:
            asked = str(item["question"])
            decided, answer = decisions.get(same_text(asked), "").strip(), answers.get(asked, "")
            same = None
            if decided and answer:
                same = says_same(item, decided, answer)
            said.add(same)
        if False in said:
            return False
        if None in said:
            return None
        return True

    @property
    def is_comparable(self) -> bool:
        """Whether it has an answer with which another one can be compared."""
        return self.same and bool(self.decision.answers)

    @property
    def place(self) -> int:
        """The number of the item that it is about first of all, from 0."""
        return list[Item](self.question.items).index(self.items[0])

    @cached_property
    def must_be_judged(self) -> bool:
        """Whether an answer must say what it means for the decision: the agent names it, or it holds here."""
        return self.named or self.holds_here

    @cached_property
    def holds_here(self) -> bool:
        """Whether it holds for this step and, if it is for paths, for a file of the task or the question."""
        if self.decision.scope == DecisionScope.STEP:
            return self.decision.step == self.question.step.name
        if self.decision.scope == DecisionScope.PATHS:
            return any(allowed(file, self.decision.paths) for file in self.find_files())
        return True


def related_decisions(question: Question) -> list[RelatedDecision]:
    """Return the active decisions that answered an item of the question before, or that the agent names.

    The newest come first. Decisions that hold elsewhere are included.
    """
    return related_decisions_of_each([question])[question.pk]


def related_decisions_of_each(questions: Collection[Question]) -> dict[int, list[RelatedDecision]]:
    """Return the same for many questions, by their ids, with one query."""
    asked = [_Asked.of(one) for one in questions]
    keys = {key for one in asked for key in one.items_by_key}
    numbers = {number for one in asked for number in one.items_by_number}
    rows = Decision.objects.active().filter(
        Q(question_key__in=keys) | Q(number__in=numbers),
        project__in={one.task.project_id for one in questions},
    )
    # Mostly there are none. To build the statement that joins five tables takes longer than the rest of this.
    active = list(
        rows.prefetch_related("project", "decided_by", "question__task", "exceptions").order_by("-number")
    )
    return {one.question.pk: [found for row in active if (found := one.related(row))] for one in asked}


@dataclass(frozen=True)
class _Asked:
    """The items of a question by their keys, and by the numbers of the decisions that they name."""

    question: Question
    items_by_key: Mapping[str, Sequence[Item]]
    items_by_number: Mapping[int, Sequence[Item]]
    find_files: Callable[[], Collection[str]]

    @classmethod
    def of(cls, question: Question) -> _Asked:
        items = question.items
        # A decision of an earlier version may have answered all items together.
        by_key = {question_digest(items): items, **{question_digest([item]): [item] for item in items}}
        by_number: dict[int, list[Item]] = {}
        for item in items:
            for number in _decisions_named_in_item(item):
                by_number.setdefault(number, []).append(item)
        named = set(paths_named_in(texts_of(question)))
        return cls(question, by_key, by_number, cache(lambda: files_of(question.task) | named))

    def related(self, decision: Decision) -> RelatedDecision | None:
        if decision.project_id != self.question.task.project_id:
            return None
        same = self.items_by_key.get(decision.question_key)
        named = self.items_by_number.get(decision.number)
        items = same or named
        if not items:
            return None
        return RelatedDecision(decision, self.question, items, bool(same), bool(named), self.find_files)


def decisions_named_in_question(question: Question) -> set[int]:
    """Return the numbers of all decisions that the question names, whether they hold or not."""
    return set().union(*map(_decisions_named_in_item, question.items))


def _decisions_named_in_item(item: Item) -> set[int]:
    texts = [str(item["question"])]
    texts += [f"{one.get('label')} {one.get('description')}" for one in item.get("options") or []]
    return set().union(*map(decisions_named_in, texts))


def with_one_item(question: Question, item: Item) -> Question:
    """Return the question as if it had asked this item alone; not to be saved."""
    alone = copy(question)
    alone.items = [dict(item)]
    return alone
