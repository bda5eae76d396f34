"""Open, update and watch pull requests: what the worker does at a forge.

A pull request is opened once: whoever takes over from a killed worker first looks for one of the same branch.
"""

from __future__ import annotations

import logging

from tasks_app.core.errors import CatHerderError
from tasks_app.engine.crashpoints import crash_point
from tasks_app.forges.port import Forge, ForgeError, NewPullRequest, RemotePullRequest
from tasks_app.models import Publication, PullRequest
from tasks_app.services.publish_settings import forge_of
from tasks_app.services.pull_request_text import (
    harmless,
    pull_request_body,
    pull_request_title,
    replace_own_part,
)
from tasks_app.services.pull_requests import (
    Look,
    record_fault,
    record_look,
    record_posted,
    record_pull_request,
    reply_text,
    unposted_replies,
)

logger = logging.getLogger(__name__)


def open_or_update(publication: Publication) -> str:
    """Let there be a pull request for the branch that was pushed. Return what failed, or ""."""
    try:
        forge, found = _open_or_update(publication)
    except CatHerderError as error:
        return f"The branch was published, but its pull request was not opened or updated: {error}"
    try:
        if publication.reviewers:
            forge.request_reviews(found.number, tuple(publication.reviewers))
    except ForgeError as error:
        return f"{', '.join(publication.reviewers)} could not be asked for a review: {error}"
    return ""


def _open_or_update(publication: Publication) -> tuple[Forge, RemotePullRequest]:
    task = publication.task
    forge = forge_of(task.project)
    base = task.project.branch
    body = pull_request_body(task)
    found = forge.find(publication.branch, base)
    if found is None:
        title = pull_request_title(task)
        found = forge.open(NewPullRequest(publication.branch, base, title, body, publication.draft))
        crash_point("pull-request-opened")
    elif (changed := replace_own_part(found.body, body)) != found.body:
        found = forge.update(found.number, body=changed)
    row = record_pull_request(publication, forge.kind, found, base=base)
    _post_replies(forge, row)
    return forge, found


def _post_replies(forge: Forge, row: PullRequest) -> None:
    """Post what the agent replied to comments from there."""
    replies = unposted_replies(row)
    if not replies:
        return
    comments = forge.comments(row.number)
    record_look(row, Look(forge.read(row.number), comments, forge.checks(row.head_commit)))
    first = {comment.discussion: comment for comment in reversed(comments)}
    for reply in unposted_replies(row):
        if asked := first.get(reply.thread.discussion):
            reply.text = harmless(reply.text)
            record_posted(reply, forge.reply(row.number, asked, reply_text(reply)))


def look(pull_request_id: int) -> bool:
    """Look at the pull request if it is due, and store what is new. Return whether it was due."""
    row = PullRequest.objects.claim(pull_request_id)
    if row is None:
        return False
    try:
        forge = forge_of(row.project)
        remote = forge.read(row.number)
        comments = forge.comments(row.number)
        checks = forge.checks(remote.head_commit) if remote.head_commit else []
    except ForgeError as error:
        record_fault(row, str(error), retry_after=error.retry_after)
    except CatHerderError as error:
        record_fault(row, str(error))
    else:
        record_look(row, Look(remote, comments, checks))
    return True
