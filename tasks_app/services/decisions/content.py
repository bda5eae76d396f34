"""The content of a decision, its scope, and the decisions that hold for a step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache

from django.utils import timezone

from tasks_app.agent.gate.path_patterns import matches, path_pattern_fault
from tasks_app.config.decision_records import MAX_BYTES, MAX_REASON, MAX_STATEMENT, read_decision
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.similar_questions import same_text
from tasks_app.core.types import KnownDecision
from tasks_app.git import TreeFile, blob_bytes, changed_files
from tasks_app.models import (
    Decision,
    DecisionEventKind,
    DecisionScope,
    Project,
    Step,
    Task,
    paths,
)
from tasks_app.models.decision import DecisionQuerySet
from tasks_app.prompting.decisions import tokens_of
from tasks_app.services.difference import base_of
from tasks_app.services.questions.question_outcomes import normalise
from tasks_app.services.results import named_decisions


class StatementIndex:
    """What files of a project's repository state; each content is read once. Runs git."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stated = cache(self._read)

    def are_in(self, passage: str, path: str, blob: str) -> bool:
        """Return whether the file with this content states the passage; an ended record states nothing."""
        return bool(passage and blob) and same_text(passage) in self._stated(path, blob)

    def _read(self, path: str, blob: str) -> frozenset[str]:
        file = TreeFile(path, "100644", blob, 0)
        try:
            content = blob_bytes(paths.repository(self._project), file, limit=MAX_BYTES + 1)
            found = read_decision(path, content)
        except (ValueError, WorkspaceError):  # it states nothing any more, or is lost
            return frozenset()
        if found.ended:
            return frozenset()
        return frozenset({same_text(found.statement)})


#: Tokens of all decisions in one prompt, about.
PROMPT_TOKENS = 1_500
#: Decisions that the agent can search in its shell.
MAX_SEARCHED = 1_000
#: Active decisions among which those are chosen, the newest ones.
_MAX_RANKED = 10_000
#: Files of a task that are compared with the paths of decisions.
_MAX_FILES = 2_000


def holding_for(step: Step) -> DecisionQuerySet:
    """Return the active decisions of the project, except decisions for other steps."""
    active = step.task.project.decisions.active()
    others = active.filter(scope=DecisionScope.STEP).exclude(step=step.name)
    return active.exclude(pk__in=others.values("pk"))


def decisions_for(step: Step) -> list[Decision]:
    """Return the active decisions that hold for the step, the most specific first. May run git.

    That is: for files of the task, for the step, for the whole project, and then for other files; of each
    the newest first. At most MAX_SEARCHED.
    """
    holding = holding_for(step)
    newest = holding.only("scope", "paths", "number").order_by("-number")[:_MAX_RANKED]
    ranked = _ranked(list(newest), step.task)
    found = holding.as_known().in_bulk([one.pk for one in ranked[:MAX_SEARCHED]])
    return [found[one.pk] for one in ranked if one.pk in found]


def _ranked(decisions: Sequence[Decision], task: Task) -> list[Decision]:
    """Return them with the most specific first, otherwise in their order."""
    files: list[str] = []
    if any(one.scope == DecisionScope.PATHS for one in decisions):
        files = sorted(files_of(task), key=lambda path: ("/" in path, path))[:_MAX_FILES]

    @cache
    def concerns_task(glob: str) -> bool:
        return any(matches(file, glob) for file in files)

    def rank(decision: Decision) -> int:
        if decision.scope == DecisionScope.PATHS:
            return 0 if any(map(concerns_task, decision.paths)) else 3
        return 1 if decision.scope == DecisionScope.STEP else 2

    return sorted(decisions, key=rank)


def listed_in_prompt(decisions: Sequence[Decision], task: Task) -> list[KnownDecision]:
    """Return the decisions that fit into the prompt of the task, in the given order.

    A decision that is too long is left out, and the next ones are tried.
    """
    if not decisions:
        return []
    listed, left, kept = [], PROMPT_TOKENS, kept_after_report(task)
    for decision in decisions:
        known = replace(known_decision(decision), kept=kept.get(decision, ""))
        if (tokens := tokens_of(known)) <= left:
            listed.append(known)
            left -= tokens
    return listed


def kept_after_report(task: Task) -> dict[Decision, str]:
    """Return who kept the decisions that the task's agents reported as unfit, in a sentence, by decision."""
    found = {}
    for one in named_decisions([task]):
        if one.kept and one.kept.user:
            at, who = f"{one.said.at:%-d %B %Y}", one.kept.user.shown_name
            said = f"Reported as unfit in this task on {at}; {who} kept it"
            found[one.said.decision] = f"{said}, and noted: {one.why_kept}" if one.why_kept else f"{said}."
    return found


def files_of(task: Task) -> frozenset[str]:
    """Return the files that the task has changed so far or names in its text. Runs git."""
    named = paths_named_in([task.body])
    if not task.head_commit:
        return frozenset(named)
    try:
        changed = changed_files(paths.repository(task.project), base=base_of(task), head=task.head_commit)
    except WorkspaceError:
        return frozenset(named)
    return frozenset([*named, *(file.path for file in changed)])


def known_decision(decision: Decision) -> KnownDecision:
    """Return the decision as agents read it."""
    where = "" if decision.scope == DecisionScope.PROJECT else decision.scope_in_words
    day = f"{decision.decided_at:%-d %B %Y}" if decision.decided_at else ""
    who = decision.decided_by.shown_name if decision.decided_by else ""
    replaced, doubt, excepted = decision.replaces, decision.doubt, decision.exception_to
    if doubt:  # its words are about the task of the agent that said them
        said = decision.events.filter(kind=DecisionEventKind.UNFIT).exclude(task=None).last()
        doubt = f"in the task “{said.task}”: {doubt}" if said else doubt
    return KnownDecision(
        decision.number, decision.statement, decision.reason, who, day, where,
        question=_asked_in(decision), doubt=doubt,
        replaces=replaced.label if replaced and not replaced.is_active else "",
        exception_to=excepted.label if excepted and excepted.is_active else "",
        exceptions=decision.exceptions_in_words,
    )  # fmt: skip


def _asked_in(decision: Decision) -> str:
    """Return the question that it answers, after the task in which “here” and “this task” stand in it.

    "" if the statement begins with it.
    """
    if decision.statement.startswith(decision.asked):
        return ""
    if decision.question is None:
        return decision.asked
    return f"in the task “{decision.question.task}”: {decision.asked}"


MAX_PATHS = 50


@dataclass(frozen=True)
class DecisionContent:
    """The statement of a decision, its reason, and where it holds.

    `paths` are globs as in `allowWrite`, for the scope `paths` only; `step` is for the scope `step` only.
    After the day `review_after` somebody should look at it again.
    """

    statement: str
    reason: str = ""
    scope: str = DecisionScope.PROJECT
    paths: Sequence[str] = ()
    step: str = ""
    review_after: date | None = None

    @classmethod
    def from_decision(cls, decision: Decision) -> DecisionContent:
        return cls(
            decision.statement,
            decision.reason,
            decision.scope,
            tuple(decision.paths),
            decision.step,
            decision.review_after,
        )

    def checked(self) -> DecisionContent:
        """Return the content normalised. Raises BadInput, whose `where` is the field."""
        if self.scope not in DecisionScope.values:
            raise BadInput(f"must be one of {', '.join(DecisionScope.values)}", where="scope")
        paths: tuple[str, ...] = ()
        step = ""
        if self.scope == DecisionScope.PATHS:
            paths = paths_from(self.paths)
            if not paths:
                raise BadInput("name at least one path, such as src/billing/**", where="paths")
        if self.scope == DecisionScope.STEP:
            step = normalise(self.step).strip()
            if not 0 < len(step) <= 100:
                raise BadInput("name the step for which it holds", where="step")
        if self.review_after is not None and self.review_after <= timezone.localdate():
            raise BadInput("must be a day after today", where="review_after")
        return replace(
            self,
            statement=_checked_text(self.statement, "statement", MAX_STATEMENT, required=True),
            reason=_checked_text(self.reason, "reason", MAX_REASON),
            paths=paths,
            step=step,
        )


def split_paths(text: str) -> list[str]:
    """Return the paths of one line of text, which commas or blanks separate, except within double quotes."""
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^\s,"]+)', text) if quoted or bare]


def joined_paths(paths: Sequence[str]) -> str:
    """Return the paths in one line of text that `split_paths` reads."""
    return ", ".join(f'"{path}"' if re.search(r"[\s,]", path) else path for path in paths)


def paths_from(given: Sequence[str]) -> tuple[str, ...]:
    """Return globs relative to the repository, each once. Raises BadInput for one that matches no file."""
    paths = [re.sub(r"\A\./(?!!)", "", normalise(path).strip()) for path in given]
    for path in filter(None, paths):
        if reason := path_pattern_fault(path):
            raise BadInput(f"“{path[:60]}” {reason}", where="paths")
    if len(paths) > MAX_PATHS:
        raise BadInput(f"name at most {MAX_PATHS} paths", where="paths")
    return tuple(dict.fromkeys(filter(None, paths)))


def _checked_text(text: str, where: str, most: int, *, required: bool = False) -> str:
    text = normalise(text).strip()
    if required and not text:
        raise BadInput("say what is decided", where=where)
    if len(text) > most:
        raise BadInput(f"has {len(text):,} characters; {most:,} are allowed", where=where)
    return text
