"""Which decisions hold for a step, and which of them its prompt lists (D3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tasks_app.agent.gate.patterns import allowed
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


def decisions_for(step: Step) -> list[Decision]:
    """Return the active decisions, the newest first, without those of other steps."""
    rows = step.task.project.decisions.active().select_related("decided_by")
    others = rows.filter(scope=DecisionScope.STEP).exclude(step=step.name)
    return list(rows.exclude(pk__in=others.values("pk")).order_by("-number")[:MAX_SEARCHED])


def listed_in_prompt(step: Step, decisions: Sequence[Decision]) -> list[KnownDecision]:
    """Return what the prompt lists: the most specific first, as many as fit. May run git.

    That is: for files of the task, for the step, for the whole project, and then for other files.
    """
    has_paths = any(one.scope == DecisionScope.PATHS for one in decisions)
    files = files_of(step.task) if has_paths else frozenset()
    ordered = sorted(decisions, key=lambda one: (_rank(one, files), -one.number))
    listed, left = [], PROMPT_TOKENS
    for decision in ordered:
        known = known_decision(decision)
        left -= tokens_of(known)
        if left < 0:
            break
        listed.append(known)
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


def _rank(decision: Decision, files: Collection[str]) -> int:
    if decision.scope == DecisionScope.PATHS:
        return 0 if any(allowed(file, decision.paths) for file in files) else 3
    return 1 if decision.scope == DecisionScope.STEP else 2
