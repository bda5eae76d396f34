"""Publishing on a task's page: the button, and what became of the last publication."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from tasks_app.config.publish import publish_from_json
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, Publication, PublicationState, PullRequest, Task
from tasks_app.services.publishing.merging import let_agent_merge, why_not_merge
from tasks_app.services.publishing.publications import publication_hindrances, publish
from tasks_app.services.publishing.pull_requests import newest_pull_request
from tasks_app.services.publishing.settings import forge_address_of, pull_request_hindrance, target_of
from tasks_app.web.pages.access import task_or_404
from tasks_app.web.pages.actions import run_action
from tasks_app.web.rendering.publishing import publishing_in_words


@dataclass(frozen=True)
class PublishingDetails:
    """Where the result of a task goes, its last publication, and why it cannot be published now.

    `by_pipeline`: what its pipeline does with the result, "" if nothing; `is_due`: it has not done that yet.
    `is_published`: whether the last publication was one of the present result, and arrived. `forge`: the
    name of the forge at which pull requests can be opened, "" if they cannot. `can_merge`: whether the
    present result could not be updated, and its agent can be asked to merge.
    """

    target: str
    last: Publication | None
    hindrances: list[str]
    is_published: bool
    forge: str
    pull_request: PullRequest | None
    by_pipeline: str
    is_due: bool
    can_merge: bool

    @property
    def can_publish(self) -> bool:
        return not self.hindrances and not (self.last and self.last.is_pending)


def publishing_details(task: Task) -> PublishingDetails | None:
    """Return what the page says of publishing, or None if nothing was published and the task is not done."""
    last = task.publications.select_related("by", "opened").first()
    address = forge_address_of(task.project)
    if last is None and (task.phase != Phase.DONE or not task.head_commit):
        return None
    return PublishingDetails(
        target_of(task.project),
        last,
        publication_hindrances(task, task.head_commit),
        is_published=last is not None
        and (last.commit, last.state) == (task.head_commit, PublicationState.PUSHED),
        forge=address.kind.label if address and not pull_request_hindrance(task.project) else "",
        pull_request=newest_pull_request(task),
        by_pipeline=publishing_in_words(publish_from_json(task.publish) if task.publish else None),
        is_due=task.publish_due and task.phase == Phase.DONE,
        can_merge=last is not None
        and bool(last.conflicts)
        and last.commit == task.head_commit
        and why_not_merge(task) is None,
    )


@require_POST
def task_publish(request: HttpRequest, task_id: int) -> HttpResponse:
    """Publish the result of a task, with the options of the form."""
    run_action(request, task_or_404(request, task_id), partial(publish, **asked_options(request)))
    return redirect("task", task_id)


@require_POST
def task_merge(request: HttpRequest, task_id: int) -> HttpResponse:
    """Let the agent merge the project's branch, with which the result conflicts."""
    run_action(request, task_or_404(request, task_id), partial(let_agent_merge, via=Channel.WEB))
    return redirect("task", task_id)


def asked_options(request: HttpRequest) -> dict[str, Any]:
    """Return the options of the form for publishing: `squash`, `update`, `pull_request`, `draft` if `yes`.

    `reviewers` are names, separated by commas or blanks; they and `draft` count with a pull request only.
    """
    names = ("squash", "update", "pull_request", "draft")
    options: dict[str, Any] = {name: request.POST.get(name) == "yes" for name in names}
    with_pull_request = options["pull_request"]
    options["draft"] &= with_pull_request
    reviewers = request.POST.get("reviewers", "").replace(",", " ").split()
    return {**options, "reviewers": reviewers if with_pull_request else []}
