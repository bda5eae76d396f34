"""Which decisions hold for a step, and which of them its prompt lists (D3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from django.db.models import QuerySet

from tasks_app.agent.gate.patterns import matches
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.types import KnownDecision
from tasks_app.git import changed_files
from tasks_app.models import Decision, DecisionScope, Step, Task, paths
from tasks_app.prompting.decisions import tokens_of
from tasks_app.services.difference import base_of

#: Tokens of all decisions in one prompt, about.
PROMPT_TOKENS = 1_500
#: Decisions that the agent can search in its shell.
MAX_SEARCHED = 1_000
#: Active decisions among which those are chosen, the newest ones.
_MAX_RANKED = 10_000
#: Files of a task that are compared with the paths of decisions.
_MAX_FILES = 2_000


def holding_for(step: Step) -> QuerySet[Decision]:
    """Return the active decisions of the project without those of other steps."""
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
    found = holding.select_related("decided_by").in_bulk([one.pk for one in ranked[:MAX_SEARCHED]])
    return [found[one.pk] for one in ranked if one.pk in found]


def _ranked(decisions: Sequence[Decision], task: Task) -> list[Decision]:
    """Return them with the most specific first, otherwise in their order."""
    has_paths = any(one.scope == DecisionScope.PATHS for one in decisions)
    files = sorted(files_of(task))[:_MAX_FILES] if has_paths else []

    @cache
    def concerns_task(glob: str) -> bool:
        return any(matches(file, glob) for file in files)

    def rank(decision: Decision) -> int:
        if decision.scope == DecisionScope.PATHS:
            return 0 if any(map(concerns_task, decision.paths)) else 3
        return 1 if decision.scope == DecisionScope.STEP else 2

    return sorted(decisions, key=rank)


def listed_in_prompt(decisions: Sequence[Decision]) -> list[KnownDecision]:
    """Return what the prompt lists, in the given order: as many as fit.

    One that is too long is left out, and the next ones are tried.
    """
    listed, left = [], PROMPT_TOKENS
    for known in map(known_decision, decisions):
        if (tokens := tokens_of(known)) <= left:
            listed.append(known)
            left -= tokens
    return listed


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
    return KnownDecision(decision.number, decision.statement, decision.reason, who, day, where)
