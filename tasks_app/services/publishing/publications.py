"""Publish the result of a task: ask for it, and store how it ended. `engine/publishing/publisher.py` pushes.

A row says what is to be published, where, and what became of it. It ends once, whoever carries it out and how
often that is begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.config.fields import MOST_REVIEWERS, REVIEWER
from tasks_app.core.errors import BadInput, IllegalMove, LeaseLost
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.history.audit import record
from tasks_app.models import Action, Change, ChangeKind, Notice, Publication, PublicationState, Task, User
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.difference import base_of, base_of_sequence
from tasks_app.services.publishing.settings import (
    credential_fault,
    protecting_pattern,
    pull_request_hindrance,
    target_of,
)
from tasks_app.services.reviews.reviews import counted_approvals
from tasks_app.services.tasks import has_successor, locked

_LONGEST_ANSWER = 4000
#: Files in conflict that are stored.
_MOST_CONFLICTS = 200


class CannotPublish(IllegalMove):
    """The result cannot be published now. The message has each reason as a sentence."""

    def __init__(self, task: Task, reasons: list[str]) -> None:
        super().__init__(f"Task “{task}”", task.phase, "published")
        self.args = (" ".join(reasons),)


def publication_hindrances(task: Task, commit: str) -> list[str]:
    """Return why the commit must not be published as the task's result, in sentences; empty if it may."""
    if task.phase != Phase.DONE:
        return [f"Only the result of a task that is done can be published; this one is {task.phase}."]
    hindrances = []
    if not has_changes(task, commit):
        hindrances.append("The task has changed nothing.")
    if has_successor(task):
        hindrances.append("A later task of the sequence works on the same branch. Publish that task.")
    if pattern := protecting_pattern(task.project, task.branch):
        hindrances.append(
            f"The branch {task.branch} is protected by “{pattern}”: nothing is published to it."
        )
    if missing := missing_approvals(task, commit):
        hindrances.append(missing)
    if fault := credential_fault(task.project):
        hindrances.append(fault)
    return hindrances


def has_changes(task: Task, commit: str) -> bool:
    """Return whether the commit is another than the one with which the result is compared.

    That is where the task or its sequence began, or what its agent has merged since.
    """
    start = base_of_sequence(task.sequence) if task.sequence else base_of(task)
    return bool(commit) and commit != start


def missing_approvals(task: Task, commit: str) -> str:
    """Return how many approvals of the commit are missing, or ""."""
    required = task.project.required_approvals
    approved = counted_approvals(task) if required and commit == task.head_commit else 0
    if approved >= required:
        return ""
    return (
        f"This result has {approved} of {required} required approval{'s' if required > 1 else ''}. "
        "One by who created the task does not count."
    )


@dataclass(frozen=True)
class PublishOptions:
    """How a result is published.

    `squash`: one commit replaces the checkpoints. `update`: the newest commit of the project's branch is
    merged first. `pull_request`: one is opened or updated, as a `draft` if it is new, and the `reviewers` are
    asked for reviews.
    """

    squash: bool = False
    update: bool = False
    pull_request: bool = False
    draft: bool = False
    reviewers: tuple[str, ...] = ()


def publish(
    task: Task,
    *,
    by: Principal,
    squash: bool = False,
    update: bool = False,
    pull_request: bool = False,
    draft: bool = False,
    reviewers: Sequence[str] = (),
) -> Publication:
    """Ask for the task's result to be published, and return the publication, which a worker carries out.

    `PublishOptions` explains the options. A commit that the remote already has is not pushed again. While
    the same publication is pending, that one is returned. Raises NotAllowed for viewers, CannotPublish for a
    result that must not be published, BadInput for reviewers who cannot be, and IllegalMove while the task
    is being published otherwise.
    """
    require_actor(by, task.project)
    options = PublishOptions(squash, update, pull_request, draft, _checked_reviewers(reviewers))
    if (draft or reviewers) and not pull_request:
        raise BadInput("a draft and reviewers need a pull request", where="pull_request")
    with transaction.atomic():
        task = locked(task)
        if pending := task.publications.filter(state=PublicationState.PENDING).first():
            return _require_same(pending, task, options)
        hindrances = publication_hindrances(task, task.head_commit)
        if pull_request and (hindrance := pull_request_hindrance(task.project)):
            hindrances.append(hindrance)
        if hindrances:
            raise CannotPublish(task, hindrances)
        return _create_publication(task, options, by=by.user)


def publish_for_pipeline(task: Task, options: PublishOptions, *, refused: str = "") -> Publication:
    """Ask for a publication on behalf of who created the task; `refused` says why they may not.

    Must be called in a transaction that has locked the task. What must not be published is stored as refused.
    """
    publication = _create_publication(task, options, by=task.created_by, by_pipeline=True)
    reasons = [refused] if refused else publication_hindrances(task, task.head_commit)
    if options.pull_request and (hindrance := pull_request_hindrance(task.project)):
        reasons.append(hindrance)
    if reasons:
        record_refused(publication, " ".join(reasons))
    return publication


def _checked_reviewers(names: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip().removeprefix("@") for name in names if name.strip()))
    if bad := next((name for name in found if not REVIEWER.fullmatch(name)), None):
        raise BadInput(f"{bad!r} is not a user name", where="reviewers")
    if len(found) > MOST_REVIEWERS:
        raise BadInput(f"name up to {MOST_REVIEWERS} reviewers", where="reviewers")
    return found


def _require_same(pending: Publication, task: Task, options: PublishOptions) -> Publication:
    values = {one.name: getattr(pending, one.name) for one in fields(PublishOptions)}
    requested = PublishOptions(**{**values, "reviewers": tuple(pending.reviewers)})
    if (pending.commit, requested) != (task.head_commit, options):
        raise IllegalMove(f"Task “{task}”", "being published", "published again; wait until that has ended")
    return pending


def _create_publication(
    task: Task, options: PublishOptions, *, by: User | None, by_pipeline: bool = False
) -> Publication:
    publication = Publication.objects.create(
        task=task,
        commit=task.head_commit,
        **{**asdict(options), "reviewers": list(options.reviewers)},
        url=target_of(task.project),
        branch=task.branch,
        by=by,
        by_pipeline=by_pipeline,
    )
    Change.objects.create(task=task, kind=ChangeKind.TASK)
    _record_action(Action.PUBLISH_REQUESTED, publication)
    return publication


def last_published(publication: Publication) -> str:
    """Return the commit that the portal published to the same branch last; "" if it never did.

    The tasks of a sequence share a branch.
    """
    same = Publication.objects.filter(
        task__project=publication.task.project_id,
        url=publication.url,
        branch=publication.branch,
        state=PublicationState.PUSHED,
    )
    return same.order_by("-ended_at", "-pk").values_list("published_commit", flat=True).first() or ""


def record_merged(publication: Publication, commit: str) -> None:
    """Store the commit to merge, so that each attempt merges the same. Raises LeaseLost without the claim."""
    if not Publication.objects.held(publication).update(merged_commit=commit):
        raise LeaseLost(f"publication {publication.pk} was taken over by another worker")
    publication.merged_commit = commit


def record_published(publication: Publication, commit: str, answer: str, *, fault: str = "") -> None:
    """Store that the remote's branch is at `commit`, what the remote answered, and what failed afterwards."""
    _end_if_claimed(publication, PublicationState.PUSHED, Action.PUBLISHED, commit, answer, fault=fault)


def record_refused(publication: Publication, reason: str, *, conflicts: Sequence[str] = ()) -> None:
    """Store why nothing was published, and the files in conflict if it could not be updated."""
    publication.conflicts = list(conflicts)[:_MOST_CONFLICTS]
    _end_if_claimed(publication, PublicationState.REFUSED, Action.NOT_PUBLISHED, "", reason)


def _end_if_claimed(
    publication: Publication,
    state: PublicationState,
    action: Action,
    commit: str,
    answer: str,
    *,
    fault: str = "",
) -> None:
    """End the publication, unless its claim was lost: then another worker says how it ended."""
    values = {
        "state": state,
        "published_commit": commit,
        "answer": storable_text(answer)[:_LONGEST_ANSWER],
        "fault": storable_text(fault)[:_LONGEST_ANSWER],
        "conflicts": publication.conflicts,
        "ended_at": timezone.now(),
        "claimed_until": None,
    }
    with transaction.atomic():
        if not Publication.objects.held(publication).update(**values):
            return
        for name, value in values.items():
            setattr(publication, name, value)
        Change.objects.create(task=publication.task, kind=ChangeKind.TASK)
        if state == PublicationState.PUSHED and not fault:
            _mark_failures_read(publication.task)
        _record_action(action, publication, published_commit=commit, answer=values["answer"])


def _mark_failures_read(task: Task) -> None:
    """Mark what was told of earlier failures as read: the result is there now."""
    if Notice.objects.filter(publication__task=task, read_at=None).update(read_at=timezone.now()):
        Change.objects.create(task=task, kind=ChangeKind.NOTICE)


def _record_action(action: Action, publication: Publication, **details: Any) -> None:
    """Record an action; one of a pipeline as done by it, and not by who created the task."""
    by, name = publication.actor, publication.asked_by
    record(action, by=by, actor_name=name, task=publication.task, **_audit_details(publication), **details)


def _audit_details(publication: Publication) -> dict[str, Any]:
    return {
        "commit": publication.commit,
        "squash": publication.squash,
        "update": publication.update,
        **({"pull_request": True} if publication.pull_request else {}),
        "url": publication.url,
        "branch": publication.branch,
    }


def refuse_protected(publication: Publication, default_branch: str) -> None:
    """Raise BadInput for the remote's default branch or a protected name, as the settings are now."""
    pattern = protecting_pattern(publication.task.project, publication.branch)
    if publication.branch == default_branch or pattern:
        reason = f"protected by “{pattern}”" if pattern else "the default branch of the remote"
        raise BadInput(f"{publication.branch} is {reason}: nothing is published to it.")
