"""What a decision says and where it holds, as people enter it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from django.utils import timezone

from tasks_app.config.decision_files import MAX_REASON, MAX_STATEMENT
from tasks_app.core.errors import BadInput
from tasks_app.models import Decision, DecisionScope
from tasks_app.services.questions.question_outcomes import normalise

MAX_PATHS, MAX_PATH = 50, 300


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
    def of(cls, decision: Decision) -> DecisionContent:
        return cls(
            decision.statement,
            decision.reason,
            decision.scope,
            tuple(decision.paths),
            decision.step,
            decision.review_after,
        )

    def checked(self) -> DecisionContent:
        """Return it normalised. Raises BadInput, whose `where` is the field."""
        if self.scope not in DecisionScope.values:
            raise BadInput(f"must be one of {', '.join(DecisionScope.values)}", where="scope")
        paths = paths_from(self.paths) if self.scope == DecisionScope.PATHS else ()
        if self.scope == DecisionScope.PATHS and not paths:
            raise BadInput("name at least one path, such as src/billing/**", where="paths")
        step = normalise(self.step).strip() if self.scope == DecisionScope.STEP else ""
        if self.scope == DecisionScope.STEP and not 0 < len(step) <= 100:
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


def paths_from(given: Sequence[str]) -> tuple[str, ...]:
    """Return globs relative to the repository, each once. Raises BadInput for one that matches no file."""
    paths = [normalise(path).strip().removeprefix("./") for path in given]
    for path in filter(None, paths):
        if path.startswith("/") or ".." in path.split("/"):
            raise BadInput(f"“{path[:60]}” must be relative to the repository", where="paths")
        if len(path) > MAX_PATH or any(char in path for char in "\n\r"):
            raise BadInput(
                f"“{path[:60]}…” is not a path of one line and {MAX_PATH} characters", where="paths"
            )
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
