"""The webhook that a project's forge calls, so that a pull request is looked at soon.

A call only says that something happened. What did is read from the forge, as without webhooks: a call that is
made up, repeated or lost changes nothing but the time of the next look.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urljoin

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from tasks_app.encryption import CannotDecrypt, Purpose, decrypt, encrypt
from tasks_app.forges.webhooks import SECRET_PREFIX, AffectedPullRequests, affected_pull_requests, is_signed
from tasks_app.history.audit import record
from tasks_app.models import Action, Project, PullRequest
from tasks_app.models.pull_request import SHORTEST_GAP, SHORTEST_PAUSE
from tasks_app.permissions import Principal, require_maintainer
from tasks_app.services.publishing.settings import (
    MANAGE_PUBLISHING,
    forge_address_of,
    pull_requests_url,
)


def webhook_url(project: Project) -> str:
    """Return what is entered at the forge; without the installation's URL, its path."""
    path = reverse("forge_webhook", args=[project.pk])
    base = settings.ENVIRONMENT.url
    return urljoin(str(base), path) if base else path


def create_webhook_secret(project: Project, *, by: Principal) -> str:
    """Make the secret of the webhook, in place of an earlier one, and return it; it is shown only once.

    Raises NotAllowed for all but maintainers.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    secret = f"{SECRET_PREFIX}{b64encode(secrets.token_bytes(32)).decode()}"
    _save_secret(project, encrypt(secret, Purpose.FORGE_WEBHOOKS), by=by, change="created")
    return secret


def remove_webhook_secret(project: Project, *, by: Principal) -> None:
    """Accept no more calls. Raises NotAllowed for all but maintainers."""
    require_maintainer(by, project, MANAGE_PUBLISHING)
    if project.encrypted_webhook_secret:
        _save_secret(project, "", by=by, change="removed")


def _save_secret(project: Project, encrypted: str, *, by: Principal, change: str) -> None:
    project.encrypted_webhook_secret, project.webhook_called_at = encrypted, None
    with transaction.atomic():
        project.save(update_fields=["encrypted_webhook_secret", "webhook_called_at"])
        record(Action.SETTINGS_CHANGED, by=by.user, project=project, webhook_secret=change)


def called_project(project_id: int, body: bytes, headers: Mapping[str, str]) -> Project | None:
    """Return the project if the call is signed with its secret.

    An unknown project, one without a secret and a wrong signature are alike.
    """
    project = Project.objects.filter(pk=project_id).exclude(encrypted_webhook_secret="").first()
    if project is None:
        return None
    address = forge_address_of(project)
    try:
        secret = decrypt(project.encrypted_webhook_secret, Purpose.FORGE_WEBHOOKS)
    except CannotDecrypt:
        return None
    if address is None or not is_signed(address.kind, secret, body, headers):
        return None
    return project


def receive_call(project: Project, body: bytes) -> None:
    """Let the pull requests be looked at that a signed call is about."""
    Project.objects.filter(pk=project.pk).update(webhook_called_at=timezone.now())
    _look_soon(project, affected_pull_requests(body))


def _look_soon(project: Project, affected: AffectedPullRequests) -> None:
    """Bring the next looks forward. After a fault they stay as they are: a rate limit may hold.

    The next look at a pull request that is looked at now is when this look ends, or after SHORTEST_PAUSE if
    it takes longer: what it reads may be older than the call.
    """
    rows = PullRequest.objects.watched().filter(
        Q(number__in=affected.numbers) | Q(head_commit__in=affected.commits),
        project=project, url=pull_requests_url(project), fault="",
    )  # fmt: skip
    now = timezone.now()
    for row in rows:
        gap = timedelta(seconds=SHORTEST_PAUSE if row.is_looked_at_now else SHORTEST_GAP)
        at = max(now, row.looked_at + gap) if row.looked_at else now
        PullRequest.objects.filter(pk=row.pk, next_look_at__gt=at).update(next_look_at=at)
