"""Publish results as their pipelines say (V7): find what is due, and ask for it on behalf of a user.

A task that is done is marked with `publish_due` in the same transaction. The mark is removed in the one that
creates the publication, so that there is one for each time that the task is done, whichever worker looks.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from tasks_app.config.faults import ConfigInvalid, Location, key_path
from tasks_app.config.pipeline import load_project_config
from tasks_app.config.publish import publish_from_json
from tasks_app.config.validation import Finding, Report
from tasks_app.config.validation.findings import warning
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.phases import Phase
from tasks_app.models import Project, Publication, PublicationState, Review, ReviewVerdict, Task
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import Principal, may_act
from tasks_app.services.projects.settings import CONFIG_FILE
from tasks_app.services.publishing.publications import (
    PublishOptions,
    has_changes,
    missing_approvals,
    publish_for_pipeline,
)
from tasks_app.services.publishing.settings import pull_request_hindrance
from tasks_app.services.tasks import has_successor


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
    """Ask for the publication that is due; None if there is none, or nothing to publish.

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
    """Return why nobody has the right to publish it; "" if who created the task may."""
    user = task.created_by
    if user is None:
        return "The pipeline publishes on behalf of who created the task, and nobody is known who did."
    if not user.is_active or not may_act(Principal.unrestricted(user), task.project):
        return (
            f"The pipeline publishes on behalf of who created the task, and {user.shown_name} may not "
            f"publish results of {task.project}."
        )
    return ""


def publishing_findings(project: Project, text: str | None) -> list[Finding]:
    """Return warnings about pipelines in a `cat-herder.yaml` whose pull requests cannot be opened."""
    if text is None or not (hindrance := pull_request_hindrance(project)):
        return []
    try:
        config, document = load_project_config(text), read_yaml(text, where=CONFIG_FILE)
    except ConfigInvalid:
        return []
    asking = [one.name for one in config.pipelines if one.publish and one.publish.pull_request]
    places: list[Location] = [("pipelines", name, "publish", "pullRequest") for name in asking]
    return [
        warning(CONFIG_FILE, f"cannot work yet. {hindrance}", line=document.line_of(one), key=key_path(one))
        for one in places
    ]


def with_publishing(report: Report, project: Project, text: str | None) -> Report:
    """Return the report on the project's repository with the findings about publishing."""
    found = publishing_findings(project, text)
    return Report.of([*report.findings, *found], looked_at=report.looked_at)
