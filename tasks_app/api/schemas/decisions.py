"""Input schemas of decisions, and pages of them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal, Self

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.config.decision_files import MAX_REASON, MAX_STATEMENT
from tasks_app.models import DecisionScope
from tasks_app.reporting.schemas.decisions import DecisionOut
from tasks_app.services.decisions.answering import Remember, Stance, StanceChoice
from tasks_app.services.decisions.content import MAX_PATHS, DecisionContent
from tasks_app.services.decisions.importing import MAX_AT_ONCE, MAX_FILES, Importable

_PATHS = "Globs relative to the repository, as in `allowWrite`."


class DecisionPage(Schema):
    items: list[DecisionOut] = Field(description="Decisions.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class RememberIn(Input):
    """How far an answer holds. Each item of a question that is remembered becomes a decision of its own."""

    scope: Literal["task", "paths", "step", "project"] = Field(
        description="`task`: this task only; the others make a decision.", examples=["project"]
    )
    paths: list[Storable] = Field([], max_length=MAX_PATHS, description=f"For the scope `paths`. {_PATHS}")
    step: Storable = Field(
        "", max_length=100, description="For the scope `step`: its name; empty is the step that asked."
    )
    statement: Storable = Field(
        "",
        max_length=MAX_STATEMENT,
        description="What is decided; empty is made of question and answer. For a question with one item.",
    )
    statements: dict[Storable, Annotated[Storable, Field(max_length=MAX_STATEMENT)]] | None = Field(
        None,
        description="Which items are remembered, by the item's question, each with its statement; an empty "
        "one is made of question and answer. Left out: all items.",
        examples=[{"How should half cents be rounded?": "Half cents are rounded up."}],
    )
    reason: Storable = Field("", max_length=MAX_REASON, description="Why it is decided so.")
    review_after: date | None = Field(None, description="The day after which somebody should look again.")

    def remember(self) -> Remember:
        return Remember(**self.model_dump(exclude={"statements"}))


class StanceIn(Input):
    """What an answer means for a decision that it concerns."""

    decision: int = Field(ge=1, le=2**31 - 1, strict=True, description="The decision's number.")
    stance: Stance = Field(
        description="`agree`; `supersede`: the answer holds in its place; `narrow`: the decision holds for "
        "`paths` only; `exception`: it holds, but not here; `unaffected`: the answer does not contradict it, "
        "and does not confirm it."
    )
    paths: list[Storable] = Field([], max_length=MAX_PATHS, description=f"For `narrow`. {_PATHS}")

    def stance_on(self) -> StanceChoice:
        return StanceChoice(self.stance, tuple(self.paths))


class DecisionIn(Input):
    """What a decision says and where it holds."""

    statement: Storable = Field(
        max_length=MAX_STATEMENT, description="What is decided.", examples=["Money is stored in cents."]
    )
    reason: Storable = Field("", max_length=MAX_REASON, description="Why it is decided so.")
    scope: DecisionScope = Field(DecisionScope.PROJECT, description="Where it holds.")
    paths: list[Storable] = Field([], max_length=MAX_PATHS, description=f"For the scope `paths`. {_PATHS}")
    step: Storable = Field("", max_length=100, description="For the scope `step`: its name.")
    review_after: date | None = Field(None, description="The day after which somebody should look again.")

    def content(self) -> DecisionContent:
        return DecisionContent(**self.model_dump())


class FoundDecisionOut(Schema):
    """A decision that a file of the repository states."""

    key: str = Field(description="Names it in an import, as long as the file stays as it is.")
    path: str = Field(description="The file.")
    line: int = Field(description="The line.")
    statement: str = Field(description="What is decided.")
    reason: str = Field(description="Why; of a rule the headings above it.")
    ended: str = Field(description="The status of a record that holds no more, such as `superseded`.")
    imported_as: str = Field(description="The decision of the project that says so already, such as D-17.")
    suggested: bool = Field(description="Whether it is imported if nothing else is chosen.")

    @classmethod
    def of(cls, one: Importable) -> Self:
        found = one.found
        return cls(
            key=one.key, path=found.path, line=found.line, statement=found.statement, reason=found.reason,
            ended=found.ended, imported_as=one.imported_as, suggested=one.is_suggested,
        )  # fmt: skip


class ImportPreviewOut(Schema):
    decisions: list[FoundDecisionOut] = Field(description="What can be imported.")
    faults: list[str] = Field(description="What could not be read, as sentences.")


class ChosenIn(Input):
    """A decision to import."""

    key: Storable = Field(max_length=40, description="Its key in the preview.")
    statement: Storable = Field(
        "", max_length=MAX_STATEMENT, description="What is decided, if you edit it; empty is as in the file."
    )


class ImportIn(Input):
    """Which decisions to import."""

    paths: list[Storable] = Field(
        [], max_length=MAX_FILES, description="Only of these files, as in the preview."
    )
    decisions: list[ChosenIn] | None = Field(
        None, max_length=MAX_AT_ONCE, description="What to import; null is all that is suggested."
    )
    accept: Flag = Field(False, description="Whether they hold at once; else they are proposed.")


class ImportedDecisions(Schema):
    decisions: list[DecisionOut] = Field(description="The new decisions.")


class DecisionExportOut(Schema):
    """What an export of decisions came to."""

    task: int | None = Field(description="The task with the files; null if the branch has them all.")
    branch: str = Field(description="Its branch; empty without a task.")
    created: bool = Field(description="False: nothing has changed since this task's export.")


class NoteIn(Input):
    """A reason in words."""

    note: Storable = Field("", max_length=MAX_REASON, description="Why; it stays in the history.")
