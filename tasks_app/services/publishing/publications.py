"""Publishing results, by people and by a pipeline.

For publishing by a pipeline, a task that is done is marked with `publish_due` in the same transaction. The
mark is removed in the one that creates the publication, so that there is one for each time that the task is
done, also if several workers look.

A publication says what to publish, where, and the outcome. It ends once, also if several workers publish it
or it is retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from tasks_app.config.faults import ConfigInvalid, Location, key_path
from tasks_app.config.fields import MOST_REVIEWERS, REVIEWER
from tasks_app.config.pipeline import load_project_config
from tasks_app.config.repository_settings import publish_from_json
from tasks_app.config.validation import Finding, Report
from tasks_app.config.validation.findings import warning
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.errors import BadInput, IllegalMove, LeaseLost, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text, strip_controls
from tasks_app.git.files import committed_text
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    CredentialKind,
    Notice,
    Project,
    Publication,
    PublicationState,
    Review,
    ReviewVerdict,
    Task,
    User,
    paths,
)
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import Principal, may_act, require_actor
from tasks_app.services.difference import base_of, base_of_sequence
from tasks_app.services.projects.settings import CONFIG_FILE
from tasks_app.services.publishing.settings import (
    credential_fault,
    credential_kind_for,
    protecting_pattern,
    pull_request_hindrance,
    target_of,
)
from tasks_app.services.reviews import counted_approvals
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
    if task.only_rehearsed:
        hindrances.append("The task was only rehearsed. Connect a model, then retry it.")
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
    if task.sequence:
        return commit not in ("", base_of_sequence(task.sequence))
    return commit not in ("", base_of(task))


def missing_approvals(task: Task, commit: str) -> str:
    """Return how many approvals of the commit are missing, or ""."""
    required = task.project.required_approvals
    approved = 0
    if required and commit == task.head_commit:
        approved = counted_approvals(task)
    if approved >= required:
        return ""
    return (
        f"This result has {approved} of {required} required approval{'s' if required > 1 else ''}. "
        "The author's own approval does not count."
    )


def lacks_one_approval(task: Task) -> bool:
    """Return whether one more approval of the result is enough."""
    return counted_approvals(task) + 1 >= task.project.required_approvals


#: Characters of the message of a squashed commit.
LONGEST_MESSAGE = 20_000


@dataclass(frozen=True)
class PublishOptions:
    """How a result is published.

    `squash`: one commit replaces the checkpoints, with this `message`; "": `commit_message`. `update`: the
    newest commit of the project's branch is merged first. `pull_request`: one is opened or updated, as a
    `draft` if it is new, and the `reviewers` are asked for reviews.
    """

    squash: bool = False
    update: bool = False
    pull_request: bool = False
    draft: bool = False
    reviewers: tuple[str, ...] = ()
    message: str = ""


def publish(
    task: Task,
    *,
    by: Principal,
    squash: bool = False,
    update: bool = False,
    pull_request: bool = False,
    draft: bool = False,
    reviewers: Sequence[str] = (),
    message: str = "",
) -> Publication:
    """Ask for the task's result to be published, and return the publication, which a worker carries out.

    `PublishOptions` explains the options. A commit that the remote already has is not pushed again. While
    the same publication is pending, it is returned. Raises NotAllowed for viewers, CannotPublish for a
    result that must not be published, BadInput for reviewers who cannot be, and IllegalMove while the task
    is being published otherwise.
    """
    require_actor(by, task.project)
    options = PublishOptions(
        squash, update, pull_request, draft, _checked_reviewers(reviewers), _checked_message(message)
    )
    if options.message and not squash:
        raise BadInput("only a squashed commit gets a message", where="message")
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
    """Ask for a publication on behalf of the task's author; `refused` says why they may not.

    Must be called in a transaction that has locked the task. What must not be published is stored as refused.
    """
    publication = _create_publication(task, options, by=task.created_by, by_pipeline=True)
    reasons = [refused]
    if not refused:
        reasons = publication_hindrances(task, task.head_commit)
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


def _checked_message(message: str) -> str:
    text = storable_text(strip_controls(message.replace("\r\n", "\n"))).strip()
    if len(text) > LONGEST_MESSAGE:
        raise BadInput(f"a commit's message has at most {LONGEST_MESSAGE:,} characters", where="message")
    return text


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
        earlier = Notice.objects.filter(publication__task=publication.task, read_at=None)
        if state == PublicationState.PUSHED and not fault and earlier.update(read_at=timezone.now()):
            Change.objects.create(task=publication.task, kind=ChangeKind.NOTICE)
        _record_action(action, publication, published_commit=commit, answer=values["answer"])


def _record_action(action: Action, publication: Publication, **details: Any) -> None:
    """Record an action; the action of a pipeline is recorded as done by it, not by the task's author."""
    if publication.pull_request:
        details["pull_request"] = True
    record(
        action, by=publication.actor, actor_name=publication.asked_by, task=publication.task,
        commit=publication.commit, squash=publication.squash, update=publication.update,
        url=publication.url, branch=publication.branch, **details,
    )  # fmt: skip


def refuse_protected(publication: Publication, default_branch: str) -> None:
    """Raise BadInput for the remote's default branch or a protected name, as the settings are now."""
    branch = publication.branch
    if pattern := protecting_pattern(publication.task.project, branch):
        raise BadInput(f"{branch} is protected by “{pattern}”: nothing is published to it.")
    if branch == default_branch:
        raise BadInput(f"{branch} is the default branch of the remote: nothing is published to it.")


def tasks_to_publish() -> TaskQuerySet:
    """Return the tasks whose pipelines can publish now: approved as required, and not being published.

    A sequence is published when all of it is done. Rights and settings are looked at when it is asked for.
    """
    approvals = (
        Review.objects.deciding()
        .filter(task=OuterRef("pk"), verdict=ReviewVerdict.APPROVE, commit=OuterRef("head_commit"))
        .exclude(author=Coalesce(OuterRef("created_by"), 0))
        .order_by()
        .values("task")
        .annotate(authors=Count("author", distinct=True))
        .values("authors")
    )
    pending = Publication.objects.filter(task=OuterRef("pk"), state=PublicationState.PENDING)
    return (
        Task.objects.filter(publish_due=True, phase=Phase.DONE)
        .filter(Q(sequence=None) | Q(sequence__phase=Phase.DONE))
        .alias(approved=Coalesce(Subquery(approvals, output_field=IntegerField()), 0))
        .filter(~Exists(pending), approved__gte=F("project__required_approvals"))
    )


@transaction.atomic
def publish_due(task_id: int) -> Publication | None:
    """Ask for the publication that is due, and return it; None if nothing is due or to be published.

    What must not be published is stored as refused, with the reasons.
    """
    due = tasks_to_publish().filter(pk=task_id).select_for_update(of=("self",))
    task = due.select_related("project", "created_by").first()
    if task is None or missing_approvals(task, task.head_commit):
        return None
    Task.objects.filter(pk=task.pk).update(publish_due=False)
    task.publish_due = False
    if task.publish is None or has_successor(task) or not has_changes(task, task.head_commit):
        return None
    options = PublishOptions(**publish_from_json(task.publish).model_dump())
    return publish_for_pipeline(task, options, refused=_rights_missing(task))


def _rights_missing(task: Task) -> str:
    """Return why nobody has the right to publish it; "" if the task's author may."""
    user = task.created_by
    if user is None:
        return "The pipeline publishes on behalf of the task's author, who is not known any more."
    if not user.is_active or not may_act(Principal.unrestricted(user), task.project):
        return (
            f"The pipeline publishes on behalf of the task's author, and {user.shown_name} may not "
            f"publish results of {task.project}."
        )
    return ""


def publishing_findings(project: Project, text: str | None) -> list[Finding]:
    """Return warnings about pipelines in a `cat-herder.yaml` whose pull requests cannot be opened."""
    if text is None or not (hindrance := pull_request_hindrance(project)):
        return []
    try:
        config = load_project_config(text)
    except ConfigInvalid:
        return []
    asking = [one.name for one in config.pipelines if one.publish and one.publish.pull_request]
    if not asking:
        return []
    document = read_yaml(text, where=CONFIG_FILE)
    places: list[Location] = [("pipelines", name, "publish", "pullRequest") for name in asking]
    return [
        warning(CONFIG_FILE, f"cannot work yet. {hindrance}", line=document.line_of(one), key=key_path(one))
        for one in places
    ]


def _lfs_findings(project: Project) -> list[Finding]:
    """Return a warning if the project uses Git LFS and publishes over ssh, which takes no contents."""
    if credential_kind_for(target_of(project)) is not CredentialKind.SSH_KEY:
        return []
    repository = paths.repository(project)
    try:
        commit = repository.head(project.branch)
        attributes = committed_text(repository, commit=commit, path=".gitattributes") or ""
    except WorkspaceError:  # not fetched yet, or larger than any file of settings
        return []
    if "filter=lfs" not in attributes:
        return []
    message = (
        "results that add files of Git LFS cannot be published over ssh: their contents are uploaded over "
        "https only. Set the https URL of the repository under Publishing."
    )
    return [warning(".gitattributes", message)]


def with_publishing(report: Report, project: Project, text: str | None) -> Report:
    """Return the report on the project's repository with the findings about publishing."""
    found = [*publishing_findings(project, text), *_lfs_findings(project)]
    return Report.of([*report.findings, *found], looked_at=report.looked_at)
