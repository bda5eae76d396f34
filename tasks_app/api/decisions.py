"""Operations on the decisions of a project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import DecisionNumber, Flag, Input, Paging, ProjectName, Storable, page_of, responses
from tasks_app.api.idempotency import once
from tasks_app.config.decision_records import MAX_REASON, MAX_STATEMENT
from tasks_app.models import DECISION_SHOWN_WITH, DecisionScope, DecisionState, Scope
from tasks_app.models.decision import ALL
from tasks_app.schemas.base import Out
from tasks_app.schemas.questions import DecisionOut, DecisionWithHistory
from tasks_app.services.decisions import changes, records
from tasks_app.services.decisions.answering import Remember, Stance, StanceChoice
from tasks_app.services.decisions.content import MAX_PATHS, DecisionContent
from tasks_app.services.decisions.records import MAX_AT_ONCE, MAX_FILES

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
        description="What is decided; empty is the chosen option with its description, or the text of the "
        "answer. For a question with one item.",
    )
    statements: dict[Storable, Annotated[Storable, Field(max_length=MAX_STATEMENT)]] | None = Field(
        None,
        description="Which items are remembered, by the item's question, each with its statement; an empty "
        "one is made of the answer. Left out: all items.",
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


class FoundDecisionOut(Out):
    """A decision that a file of the repository states."""

    key: str = Field(description="Names it in an import, as long as the file stays as it is.")
    path: str = Field(validation_alias="found.path", description="The file.")
    line: int = Field(validation_alias="found.line", description="The line.")
    statement: str = Field(validation_alias="found.statement", description="What is decided.")
    reason: str = Field(validation_alias="found.reason", description="Why; of a rule the headings above it.")
    ended: str = Field(
        validation_alias="found.ended",
        description="The status of a record that holds no more, such as `superseded`.",
    )
    imported_as: str = Field(description="The decision of the project that says so already, such as D-17.")
    suggested: bool = Field(
        validation_alias="is_suggested", description="Whether it is imported if nothing else is chosen."
    )


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


router = Router(tags=["Decisions"])

#: An operation that changes one decision and returns it.
_changes_decision = partial(
    router.post, response=responses(DecisionOut, 404, 409, 422), auth=authenticators(Scope.ANSWER)
)


class DecisionFilters(Schema):
    """The filters of a project's decisions."""

    state: DecisionState | None = Field(None, description="Only decisions in this state.")
    search: Storable = Field("", max_length=200, description="Only decisions with all of these words.")
    review: bool = Field(False, description="Only decisions at which somebody should look again.")


@router.get(
    "/projects/{project}/decisions", response=responses(DecisionPage, 404), auth=authenticators(Scope.READ)
)
def list_decisions(
    request: HttpRequest, project: ProjectName, only: Query[DecisionFilters], paging: Query[Paging]
) -> DecisionPage:
    """List the decisions of a project, the newest first."""
    found = permissions.project_named_or_404(principal_of(request), project).decisions.search(only.search)
    if only.review:
        found = found.to_review()
    found = found.listed_as(only.state or ALL)
    found = (
        found.with_counts().select_related(*DECISION_SHOWN_WITH).prefetch_related("replaced_by", "exceptions")
    )
    rows, following = page_of(request, found, paging, newest_first=True)
    return DecisionPage(items=[DecisionOut.from_row(one) for one in rows], next=following)


@router.post(
    "/projects/{project}/decisions",
    response=responses(DecisionOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def make_decision(request: HttpRequest, project: ProjectName, body: DecisionIn) -> Status[DecisionOut]:
    """Make a decision that no question asked for. Agents of later tasks read it."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    made = changes.make_decision(found, body.content(), by=principal)
    return Status(201, _decision(request, project, made.number))


class ImportedFiles(Schema):
    path: list[Storable] = Field(
        [], max_length=MAX_FILES, description="Only these files; default: rules for agents and all ADRs."
    )


@router.get(
    "/projects/{project}/decisions/import",
    response=responses(ImportPreviewOut, 404, 409),
    auth=authenticators(Scope.READ),
)
def preview_decision_import(
    request: HttpRequest, project: ProjectName, only: Query[ImportedFiles]
) -> ImportPreviewOut:
    """Return the decisions that files of the project's branch state: rules for agents, and ADRs."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    permissions.require_actor(principal, found)
    preview = records.preview_import(found, only.path)
    decisions = [FoundDecisionOut.from_row(one) for one in preview.decisions]
    return ImportPreviewOut(decisions=decisions, faults=preview.faults)


@router.post(
    "/projects/{project}/decisions/import",
    response=responses(ImportedDecisions, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def import_decisions(request: HttpRequest, project: ProjectName, body: ImportIn) -> Status[ImportedDecisions]:
    """Import decisions from files, all or none. They are proposed unless `accept` is true."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    permissions.require_actor(principal, found)
    wanted = None if body.decisions is None else {one.key: one.statement for one in body.decisions}
    chosen = records.select_for_import(records.preview_import(found, body.paths), wanted)
    made = records.import_decisions(found, chosen, by=principal, accept=body.accept)
    rows = found.decisions.filter(pk__in=[one.pk for one in made]).with_counts().order_by("number")
    decisions = [DecisionOut.from_row(one) for one in rows.select_related(*DECISION_SHOWN_WITH)]
    return Status(201, ImportedDecisions(decisions=decisions))


@router.post(
    "/projects/{project}/decisions/export",
    response=responses(DecisionExportOut, 404, 409, 422),
    auth=authenticators(Scope.WRITE),
)
@once
def export_decisions(request: HttpRequest, project: ProjectName) -> Status[DecisionExportOut]:
    """Write the active decisions as files (ADRs) into a commit: the result of a task on which no agent works.

    The result is reviewed and published like others. Files that an earlier export wrote are kept up to date.
    """
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    export = records.export_decisions(found, by=principal)
    task, branch = None, ""
    if export.task:
        task, branch = export.task.pk, export.task.branch
    return Status(200, DecisionExportOut(task=task, branch=branch, created=export.is_new))


@router.get(
    "/projects/{project}/decisions/{number}",
    response=responses(DecisionWithHistory, 404),
    auth=authenticators(Scope.READ),
)
def get_decision(request: HttpRequest, project: ProjectName, number: DecisionNumber) -> DecisionWithHistory:
    """Return a decision with everything that happened to it."""
    return DecisionWithHistory.from_row(permissions.decision_or_404(principal_of(request), project, number))


@router.post(
    "/projects/{project}/decisions/{number}/revise",
    response=responses(DecisionOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def revise_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: DecisionIn
) -> Status[DecisionOut]:
    """Replace a decision by a new one, which has a number of its own. The old one stays in the history."""
    principal = principal_of(request)
    decision = permissions.decision_or_404(principal, project, number)
    new = changes.revise(decision, body.content(), by=principal)
    return Status(201, _decision(request, project, new.number))


@_changes_decision("/projects/{project}/decisions/{number}/confirm")
@once
def confirm_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber
) -> Status[DecisionOut]:
    """Say that a decision is right. A proposed one holds from then on."""
    return _changed(request, project, number, changes.confirm)


@_changes_decision("/projects/{project}/decisions/{number}/keep")
@once
def keep_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: NoteIn
) -> Status[DecisionOut]:
    """Say after a look that a decision still holds, for its code as it is now."""
    return _changed(request, project, number, changes.mark_reviewed, note=body.note)


@_changes_decision("/projects/{project}/decisions/{number}/retire")
@once
def retire_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: NoteIn
) -> Status[DecisionOut]:
    """End a decision. It can be restored."""
    return _changed(request, project, number, changes.retire, reason=body.note)


@_changes_decision("/projects/{project}/decisions/{number}/restore")
@once
def restore_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber
) -> Status[DecisionOut]:
    """Undo that a decision was retired."""
    return _changed(request, project, number, changes.restore)


def _changed(
    request: HttpRequest, project: str, number: int, change: Callable[..., object], **values: str
) -> Status[DecisionOut]:
    """Change the decision and return it as it is then."""
    principal = principal_of(request)
    change(permissions.decision_or_404(principal, project, number), by=principal, **values)
    return Status(200, _decision(request, project, number))


def _decision(request: HttpRequest, project: str, number: int) -> DecisionOut:
    return DecisionOut.from_row(permissions.decision_or_404(principal_of(request), project, number))
