"""Create, revoke and look up personal API tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.core.storable import storable_text
from tasks_app.history.audit import record
from tasks_app.models import Action, ApiToken, Project, Scope, User
from tasks_app.permissions import Principal, require_no_token, require_token_owner

#: A prefix by which people and secret scanners recognise tokens.
PREFIX = "cath_"
MOST = 50
USE_NOTED_EVERY = timedelta(minutes=1)
USE_AUDITED_EVERY = timedelta(hours=1)


@dataclass(frozen=True)
class Made:
    """A new token and its secret, which is not stored."""

    token: ApiToken
    secret: str


def make_token(
    name: str,
    scopes: Collection[Scope],
    *,
    by: Principal,
    projects: Collection[Project] | None = None,
    expires_at: datetime | None = None,
) -> Made:
    """Create a token for the user; `projects` restricts it to these.

    Raises BadInput that names the field, or NotAllowed if the principal is itself a token.
    """
    require_no_token(by, "make API tokens")
    name = storable_text(" ".join(name.split()))
    _check(name, scopes, projects, expires_at, by=by.user)
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            token = ApiToken.objects.create(
                user=by.user,
                name=name,
                digest=digest(secret),
                scopes=[scope.value for scope in Scope if scope in scopes],
                restricted=projects is not None,
                expires_at=expires_at,
            )
            token.projects.set(projects or ())
            expires = expires_at.date().isoformat() if expires_at else "never"
            record(Action.TOKEN_MADE, by=by.user, subject=name, scopes=token.scopes, expires=expires)
    except IntegrityError:
        raise BadInput(f"you have a token named “{name}” already", where="name") from None
    return Made(token, secret)


def _check(
    name: str,
    scopes: Collection[Scope],
    projects: Collection[Project] | None,
    expires_at: datetime | None,
    *,
    by: User,
) -> None:
    if not name or len(name) > 100:
        raise BadInput("a token needs a name of up to 100 characters", where="name")
    if not scopes:
        raise BadInput("choose at least one scope", where="scopes")
    if projects is not None and not projects:
        raise BadInput("choose at least one project, or do not restrict the token", where="projects")
    if expires_at is not None and expires_at <= timezone.now():
        raise BadInput("that time has passed already", where="expires")
    if ApiToken.objects.filter(user=by, revoked_at=None).count() >= MOST:
        raise BadInput(f"you have {MOST} tokens; revoke one that is not used any more", where="name")


def revoke_token(token: ApiToken, *, by: Principal) -> None:
    """From now on it opens nothing; doing it twice changes nothing. Raises NotAllowed."""
    require_token_owner(by, token)
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            record(Action.TOKEN_REVOKED, by=by.user, subject=token.name, owner=token.user.shown_name)


def token_of(secret: str) -> ApiToken | None:
    """The usable token with this secret. Its digest is looked up, so timing tells nothing of use."""
    if not secret.startswith(PREFIX) or len(secret) > 200:
        return None
    return ApiToken.objects.usable().select_related("user").filter(digest=digest(secret)).first()


def note_use(token: ApiToken, *, ip_address: str) -> None:
    """Record a use of the token: its time at most once a minute, in the audit log at most once an hour."""
    now = timezone.now()
    if token.last_used_at and now - token.last_used_at < USE_NOTED_EVERY:
        return
    rows = ApiToken.objects.filter(pk=token.pk)
    rows.filter(_before("last_used_at", now - USE_NOTED_EVERY)).update(
        last_used_at=now, last_used_ip_address=ip_address[:60]
    )
    if token.use_audited_at and now - token.use_audited_at < USE_AUDITED_EVERY:
        return
    with transaction.atomic():
        if rows.filter(_before("use_audited_at", now - USE_AUDITED_EVERY)).update(use_audited_at=now):
            record(Action.TOKEN_USED, by=token.user, subject=token.name)


def digest(secret: str) -> str:
    """A fast hash is enough: nobody guesses 256 random bits."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _before(field: str, at: datetime) -> Q:
    return Q(**{field: None}) | Q(**{f"{field}__lt": at})
