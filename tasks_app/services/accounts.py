"""Accounts of people: closing them, budgets, sessions in browsers, failed logins and API tokens.

Failed logins: strangers can fail as often as they like, and an entry stays for ever. So beyond a number per
hour, for one IP address and for all together, failures are counted in the cache (`web/accounts/attempts.py`),
and an entry with the count is written whenever it has doubled. The rest of an hour is written with the next
failure after it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput
from tasks_app.core.text import storable_text
from tasks_app.history.audit import current_origin, record, record_once_an_hour
from tasks_app.models import (
    Action,
    ApiToken,
    AuditEntry,
    BrowserSession,
    Change,
    ChangeKind,
    Delivery,
    EventType,
    Medium,
    Notice,
    Project,
    Scope,
    Task,
    Theme,
    User,
)
from tasks_app.models.account import hash_session_key, lasting_sessions
from tasks_app.permissions import (
    HiddenRow,
    Principal,
    may_see,
    require_no_token,
    require_site_admin,
    require_token_owner,
)


def record_refusal(error: HiddenRow) -> None:
    """Record that a user asked for a row of a project that they may not see."""
    row = error.row
    project = row if isinstance(row, Project) else getattr(row, "project", None) or row.task.project  # type: ignore[attr-defined]
    name = f"{row._meta.verbose_name} {row.pk}"
    record_once_an_hour(Action.REFUSED, by=error.user, subject=name, most=20, project=project)


def lacks_second_factor(user: User) -> bool:
    """Return whether this portal requires a second factor and the user has none."""
    if settings.ENVIRONMENT.second_factor != "required":
        return False
    return not Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists()


def change_name(user: User, name: str) -> None:
    """Set the displayed name; "" displays the user name."""
    before = user.shown_name
    user.first_name, user.last_name = name, ""
    with transaction.atomic():
        user.save(update_fields=["first_name", "last_name"])
        _record_change(user, name=[before, user.shown_name])


def change_theme(user: User, theme: Theme) -> None:
    """Set the theme of pages. A personal preference, so the audit log does not record it."""
    user.theme = theme
    user.save(update_fields=["theme"])


def change_time_zone(user: User, name: str) -> None:
    """Set the user's zone; "" is UTC. Not recorded either.

    It is for quiet hours and digests, and for times on pages if the browser does not say its own.
    """
    user.time_zone = name
    user.save(update_fields=["time_zone"])


def dismiss_first_steps(user: User) -> None:
    """Hide the checklist of a new installation from this user."""
    user.first_steps_dismissed = True
    user.save(update_fields=["first_steps_dismissed"])


def change_email(user: User, email: str) -> None:
    """Set an unconfirmed address, in an installation without e-mail; "" removes it."""
    before = user.email
    user.email = email
    with transaction.atomic():
        user.save(update_fields=["email"])
        EmailAddress.objects.filter(user=user).delete()
        if email:
            EmailAddress.objects.create(user=user, email=email, primary=True, verified=False)
        _record_change(user, email=[before, email])


def unlink_login(account: SocialAccount, *, by: User) -> None:
    """Unlink a login of another provider. Raises BadInput if it is the user's only way to log in."""
    others = SocialAccount.objects.filter(user=by).exclude(pk=account.pk)
    if not by.has_usable_password() and not others.exists():
        raise BadInput("This is your only way to log in. Set a password first.")
    with transaction.atomic():
        _record_change(by, unlinked=[account.provider, account.uid])
        account.delete()


def _record_change(user: User, **changed: list[str]) -> None:
    record(Action.ACCOUNT_CHANGED, by=user, subject=user.get_username(), changed=changed)


def end_all_access(user: User, *, by: User) -> None:
    """Revoke all access: sessions with their sockets, API tokens, browsers that get pushed notifications.

    Nothing of it comes back if the account is activated again.
    """
    with transaction.atomic():
        end_sessions(user)
        revoke_all_tokens(user, by=by)
        user.push_subscriptions.all().delete()


def sessions_of(user: User) -> list[BrowserSession]:
    """Return the user's active sessions, the newest first."""
    lasting = lasting_sessions().filter(user=user).select_related("user")
    return [session for session in lasting if session.is_valid]


def session_exists(key: str) -> bool:
    """Return whether an active user has a session with this key, by one quick look."""
    return lasting_sessions().filter(pk=hash_session_key(key), user__is_active=True).exists()


def end_sessions(user: User, *, but: str | None = None) -> int:
    """End all sessions of the user except the one with the key `but`; return their number.

    Their pages ask for a login at the next click. Their sockets close before they receive anything more.
    """
    ended = user.sessions.all()
    if but:
        ended = ended.exclude(pk=hash_session_key(but))
    return ended.delete()[0]


def end_session(user: User, pk: str) -> bool:
    """End one of the user's sessions. Return False if there is no such session."""
    return _log_out(user, user.sessions.filter(pk=pk)) > 0


def end_other_sessions(user: User, *, but: str | None) -> int:
    """End all other sessions of the user, and record it in the audit log; return their number."""
    return _log_out(user, user.sessions.exclude(pk=hash_session_key(but or "")))


def _log_out(user: User, sessions: QuerySet[BrowserSession]) -> int:
    with transaction.atomic():
        elsewhere = [
            f"{row.browser or 'a browser'} at {row.address}" for row in sessions.order_by("begun_at")
        ]
        if elsewhere:
            record(Action.LOGGED_OUT, by=user, elsewhere=elsewhere)
        return sessions.delete()[0]


#: Failures per hour that get their own entry.
ENTRIES_PER_IP_ADDRESS = 20
ENTRIES_IN_ALL = 200
#: IP addresses and names of an hour that are counted separately.
MAX_IP_ADDRESSES = 1_000
MAX_NAMES = 500
#: Of each of them, how many an entry lists: the names that were tried most come first.
_LISTED = 20
_WORDS = {Action.LOGIN_FAILED: "failed login", Action.TOKEN_REFUSED: "unusable token"}
_HOUR = 3600
_CACHE_SECONDS = 3 * _HOUR


@dataclass
class FailureCount:
    """The failures of one hour without their own entry; `recorded` is the count in the last entry."""

    count: int = 0
    recorded: int = 0
    ip_addresses: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, ip_address: str, name: str) -> None:
        self.count += 1
        name = name[:100]
        if name in self.names or len(self.names) < MAX_NAMES:
            self.names[name] = self.names.get(name, 0) + 1
        if ip_address not in self.ip_addresses and len(self.ip_addresses) < MAX_IP_ADDRESSES:
            self.ip_addresses.append(ip_address)

    def record(self, action: Action) -> None:
        self.recorded = self.count
        logins = counted(self.count, f"more {_WORDS[action]}")
        most_tried = sorted(self.names.items(), key=lambda one: -one[1])[:_LISTED]
        addresses = counted(len(self.ip_addresses), "IP address", ending="es")
        record(
            action,
            actor_name="unknown users",
            subject=f"various names: {logins} from {addresses} in an hour",
            count=self.count,
            addresses=self.ip_addresses[:_LISTED],
            names=dict(most_tried),
        )


def record_failed_login(name: str, action: Action = Action.LOGIN_FAILED, **detail: Any) -> None:
    """Record a failed login as `name`; only count it after too many in the last hour.

    With `TOKEN_REFUSED`, record that somebody showed an unusable API token; `name` says which.
    """
    hour = int(timezone.now().timestamp()) // _HOUR
    _record_rest_of_hour(hour - 1, action)
    ip_address = current_origin().ip_address
    entries = AuditEntry.objects.filter(action=action, at__gt=timezone.now() - timedelta(seconds=_HOUR))
    counts = entries.aggregate(all=Count("pk"), here=Count("pk", filter=Q(ip_address=ip_address)))
    if counts["all"] < ENTRIES_IN_ALL and counts["here"] < ENTRIES_PER_IP_ADDRESS:
        record(action, actor_name="somebody", subject=name, **detail)
        return
    failures = _load_count(hour, action)
    failures.add(ip_address, name)
    if failures.count >= 2 * failures.recorded:
        failures.record(action)
    _store_count(hour, action, failures)


def record_refused_token(secret: str) -> None:
    """Record that somebody showed an API token that is unknown, expired or revoked."""
    token = ApiToken.objects.select_related("user").filter(digest=digest(secret)).first()
    name = f"“{token.name}” of {token.user.shown_name}" if token else "an unknown one"
    record_failed_login(name, Action.TOKEN_REFUSED)


def _record_rest_of_hour(hour: int, action: Action) -> None:
    """Record the failures that came in that hour after its last entry."""
    failures = _load_count(hour, action)
    if failures.count > failures.recorded:
        failures.record(action)
        _store_count(hour, action, failures)


def _load_count(hour: int, action: Action) -> FailureCount:
    return FailureCount(**cache.get(_cache_key(hour, action), {}))


def _store_count(hour: int, action: Action, failures: FailureCount) -> None:
    cache.set(_cache_key(hour, action), asdict(failures), _CACHE_SECONDS)


def _cache_key(hour: int, action: Action) -> str:
    return f"{action.value}-count-{hour}"


#: A prefix by which people and secret scanners recognise tokens.
TOKEN_PREFIX = "cath_"  # noqa: S105 - not a secret itself
MOST_TOKENS = 50
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
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
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
    if ApiToken.objects.filter(user=by, revoked_at=None).count() >= MOST_TOKENS:
        raise BadInput(f"you have {MOST_TOKENS} tokens; revoke one that is not used any more", where="name")


def revoke_token(token: ApiToken, *, by: Principal) -> None:
    """Revoke the token; revoking it twice changes nothing. Raises NotAllowed."""
    require_token_owner(by, token)
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            record(Action.TOKEN_REVOKED, by=by.user, subject=token.name, owner=token.user.shown_name)


def revoke_all_tokens(user: User, *, by: User) -> int:
    """Revoke every token of the user, for example when they leave; return how many worked until now."""
    with transaction.atomic():
        usable = list(ApiToken.objects.select_for_update().filter(user=user, revoked_at=None))
        for token in usable:
            ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
            record(Action.TOKEN_REVOKED, by=by, subject=token.name, owner=user.shown_name)
    return len(usable)


_SECRET = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{43}}")


def has_secret(text: str) -> bool:
    """Return whether the text has something that looks like an API token."""
    return _SECRET.search(text) is not None


def revoke_seen_tokens(text: str, task: Task) -> list[str]:
    """Revoke each token whose secret stands in a text of the task's agent, and tell its owner (A2).

    Agents and all who see the task could act as that person otherwise. Owners are told in the page and by
    e-mail, whatever they have chosen. Returns a sentence about each token, for the log.
    """
    told = []
    for secret in sorted(set(_SECRET.findall(text))):
        token = token_of(secret)
        if token is None:
            continue
        with transaction.atomic():
            if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
                continue
            record(Action.TOKEN_REVOKED, task=task, subject=token.name, owner=token.user.shown_name)
            headline = f"Your API token “{token.name}” was revoked: an agent saw it"
            if may_see(Principal.unrestricted(token.user), task.project):
                headline += f" in {task.project} › {task}"
            event_type = EventType.TOKEN_SEEN
            notice = Notice.objects.create(
                user=token.user, task=task, event_type=event_type, headline=headline[:300]
            )
            if settings.SENDS_EMAIL and token.user.email:
                to = {"medium": Medium.EMAIL, "user": token.user, "due_at": notice.at}
                Delivery.objects.create(notice=notice, event_type=event_type, **to)
            Change.objects.create(task=task, kind=ChangeKind.NOTICE)
        told.append(f"The API token “{token.name}” of {token.user.shown_name} stood here. It was revoked.")
    return told


def token_of(secret: str) -> ApiToken | None:
    """Return the usable token with this secret. Looking up its digest keeps timing from revealing it."""
    if not secret.startswith(TOKEN_PREFIX) or len(secret) > 200:
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
    """Return a fast hash of the secret: nobody guesses 256 random bits."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _before(field: str, at: datetime) -> Q:
    return Q(**{field: None}) | Q(**{f"{field}__lt": at})


# What site admins change of people: their budget, and whether they can log in.


def set_budget(user: User, dollars: float | None, *, by: Principal) -> None:
    """Set what the tasks of this person may cost in a month; None for no limit."""
    require_site_admin(by, "change the budget of a person")
    if dollars is not None and dollars < 0:
        raise BadInput("Enter an amount of dollars, or nothing for no limit.")
    if user.monthly_budget_usd == dollars:
        return
    changed = {"monthly_budget_usd": [user.monthly_budget_usd, dollars]}
    user.monthly_budget_usd = dollars
    with transaction.atomic():
        user.save(update_fields=["monthly_budget_usd"])
        record(Action.ACCOUNT_CHANGED, by=by.user, subject=user.get_username(), changed=changed)


def set_active(user: User, active: bool, *, by: Principal) -> None:
    """Let a person log in, or end all their access. Their tasks go on. Raises NotAllowed, BadInput."""
    require_site_admin(by, "deactivate a person")
    if user == by.user:
        raise BadInput("You cannot deactivate your own account.")
    if user.is_active == active:
        return
    user.is_active = active
    with transaction.atomic():
        user.save(update_fields=["is_active"])
        record(Action.ACCOUNT_CHANGED, by=by.user, subject=user.get_username(), changed={"is_active": active})
        if not active:
            end_all_access(user, by=by.user)
