"""Failed logins in the audit log: one entry each while they are few, a count while they are many.

Strangers can fail as often as they like, and an entry stays for ever. So beyond a number in an hour, for one
address and for all, failures are counted in the cache (`counts.py`), and an entry with the count is written
whenever it has doubled. What is left at the end of an hour is written with the next failure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Q
from django.utils import timezone

from tasks_app.history.audit import origin, record
from tasks_app.models import Action, AuditEntry

#: Entries of their own in an hour.
FROM_ONE_ADDRESS = 20
FROM_ALL = 200
#: Addresses of an hour that are told apart.
ADDRESSES = 1_000
_HOUR = 3600
_KEPT_SECONDS = 3 * _HOUR


@dataclass
class Uncounted:
    """The failures of one hour without an entry of their own; `told` is the count that was written last."""

    count: int = 0
    told: int = 0
    addresses: list[str] = field(default_factory=list)

    def add(self, address: str) -> None:
        self.count += 1
        if address not in self.addresses and len(self.addresses) < ADDRESSES:
            self.addresses.append(address)


def note_failed_login(name: str, **detail: Any) -> None:
    """Record that somebody failed to log in as `name`; only count it after too many in the last hour."""
    hour = int(timezone.now().timestamp()) // _HOUR
    _finish(hour - 1)
    if _is_worth_an_entry(origin().address):
        record(Action.LOGIN_FAILED, actor_name="somebody", subject=name, **detail)
        return
    others = _others(hour)
    others.add(origin().address)
    if others.count >= 2 * others.told:
        _tell(others)
    _keep(hour, others)


def _is_worth_an_entry(address: str) -> bool:
    since = timezone.now() - timedelta(seconds=_HOUR)
    entries = AuditEntry.objects.filter(action=Action.LOGIN_FAILED, at__gt=since)
    found = entries.aggregate(all=Count("pk"), here=Count("pk", filter=Q(address=address)))
    return bool(found["all"] < FROM_ALL and found["here"] < FROM_ONE_ADDRESS)


def _finish(hour: int) -> None:
    """Record what came in that hour after its last entry."""
    others = _others(hour)
    if others.count > others.told:
        _tell(others)
        _keep(hour, others)


def _tell(others: Uncounted) -> None:
    others.told = others.count
    logins = f"{others.count:,} more failed login{'s' * (others.count > 1)}"
    addresses = f"{len(others.addresses):,} IP address{'es' * (len(others.addresses) > 1)}"
    record(
        Action.LOGIN_FAILED,
        actor_name="unknown users",
        subject=f"various names: {logins} from {addresses} in an hour",
        count=others.count,
        addresses=others.addresses[:20],
    )


def _others(hour: int) -> Uncounted:
    found = cache.get(_key(hour))
    return Uncounted(**found) if isinstance(found, dict) else Uncounted()


def _keep(hour: int, others: Uncounted) -> None:
    cache.set(_key(hour), asdict(others), _KEPT_SECONDS)


def _key(hour: int) -> str:
    return f"failed-logins-{hour}"
