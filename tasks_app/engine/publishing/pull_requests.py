"""Open, update and watch pull requests: what the worker does at a forge.

A pull request is opened once: whoever takes over from a killed worker first looks for one of the same branch.
"""

from __future__ import annotations

import logging

from django.utils import timezone

from tasks_app.core.errors import BadInput, CatHerderError, LeaseLost
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.forges.port import Forge, ForgeError, NewPullRequest
from tasks_app.models import Publication, PullRequest
from tasks_app.services.publishing.pull_request_text import (
    pull_request_body,
    pull_request_title,
    replace_own_part,
)
from tasks_app.services.publishing.pull_requests import (
    Look,
    record_answer,
    record_fault,
    record_look,
    record_posted,
    record_pull_request,
    reply_text,
    unposted_replies,
)
from tasks_app.services.publishing.settings import forge_of, pull_requests_url

logger = logging.getLogger(__name__)


def open_or_update(publication: Publication) -> str:
    """Let there be a pull request for the branch that was pushed. Return what failed, or "".

    Raises LeaseLost, and temporary faults: after one, the publication is carried out again.
    """
    try:
        forge, row = _open_or_update(publication)
    except Exception as error:
        return (
            "The branch was published, but its pull request was not opened or updated: "
            f"{_explained(error, f'the pull request of publication {publication.pk}')}"
        )
    faults = []
    try:
        _post_replies(forge, row, publication)
    except Exception as error:
        faults.append(f"The agent’s replies were not all posted: {_explained(error, f'posting to {row}')}")
    try:
        if publication.reviewers:
            forge.request_reviews(row.number, tuple(publication.reviewers))
    except Exception as error:
        names = ", ".join(publication.reviewers)
        faults.append(f"{names} could not be asked for a review: {_explained(error, f'reviewers of {row}')}")
    return " ".join(faults)


def _explained(error: Exception, what: str) -> str:
    """Return the reason for people, and log an unexpected error. Raise a lost claim or temporary fault."""
    if isinstance(error, LeaseLost) or temporary_fault(error):
        raise error
    if isinstance(error, CatHerderError):
        return str(error)
    logger.error("%s failed", what, exc_info=error)
    return f"The portal failed ({type(error).__name__}). Its log has the reason."


def _open_or_update(publication: Publication) -> tuple[Forge, PullRequest]:
    task, began = publication.task, timezone.now()
    forge = forge_of(task.project)
    base = task.project.branch
    body = pull_request_body(task)
    found = forge.find(publication.branch, base)
    if found is None:
        title = pull_request_title(task)
        _require_claim(publication)
        found = forge.open(NewPullRequest(publication.branch, base, title, body, publication.draft))
        crash_point("pull-request-opened")
    elif (changed := replace_own_part(found.body, body)) != found.body:
        found = forge.update(found.number, body=changed)
    return forge, record_pull_request(publication, forge.kind, found, base=base, began=began)


def _require_claim(publication: Publication) -> None:
    """Raise LeaseLost if another worker carries it out meanwhile: what is made there is made once."""
    if not Publication.objects.renew(publication):
        raise LeaseLost(f"publication {publication.pk} was taken over by another worker")


def _post_replies(forge: Forge, row: PullRequest, publication: Publication) -> None:
    """Post what the agent replied to comments from there. First find those a killed worker posted."""
    if not unposted_replies(row):
        return
    began = timezone.now()
    seen = _ask_forge(forge, row.number)
    record_answer(row, seen, began=began)
    first = {comment.discussion: comment for comment in reversed(seen.comments)}
    for reply in unposted_replies(row):
        if asked := first.get(reply.thread.discussion):
            _require_claim(publication)
            forge_id = forge.reply(row.number, asked, reply_text(reply))
            crash_point("reply-posted")
            record_posted(reply, forge_id)


def look(pull_request_id: int) -> bool:
    """Look at the pull request if it is due, and store what is new. Return whether it was due."""
    row = PullRequest.objects.claim(pull_request_id)
    if row is None:
        return False
    try:
        forge = forge_of(row.project)
        if row.url != (now := pull_requests_url(row.project)):  # its number is another pull request there
            raise BadInput(f"It is in {row.url}, and pull requests of the project go to {now} since then.")
        record_look(row, _ask_forge(forge, row.number))
    except ForgeError as error:
        record_fault(row, str(error), retry_after=error.retry_after)
    except Exception as error:
        record_fault(row, _explained(error, f"looking at {row}"))
    return True


def _ask_forge(forge: Forge, number: int) -> Look:
    remote = forge.read(number)
    comments = forge.comments(number)
    checks = forge.checks(remote.head_commit) if remote.head_commit else []
    return Look(remote, comments, checks)
