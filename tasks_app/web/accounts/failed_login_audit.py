"""Failed logins in the audit log: one entry each while they are few, a count while they are many.

Strangers can fail as often as they like, and an entry stays for ever. So beyond a number per hour, for one IP
address and for all together, failures are counted in the cache (`attempts_cache.py`), and an entry with the
count is written whenever it has doubled. The rest of an hour is written with the next failure after it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Q
from django.utils import timezone

from tasks_app.history.audit import current_origin, record
from tasks_app.models import Action, AuditEntry

#: Failures per hour that get their own entry.
ENTRIES_PER_IP_ADDRESS = 20
ENTRIES_IN_ALL = 200
#: IP addresses of an hour that are counted separately.
MAX_IP_ADDRESSES = 1_000
_HOUR = 3600
_CACHE_SECONDS = 3 * _HOUR


@dataclass
class FailureCount:
    """The failures of one hour without their own entry; `recorded` is the count in the last entry."""

    count: int = 0
    recorded: int = 0
    ip_addresses: list[str] = field(default_factory=list)

    def add(self, ip_address: str) -> None:
        self.count += 1
        if ip_address not in self.ip_addresses and len(self.ip_addresses) < MAX_IP_ADDRESSES:
            self.ip_addresses.append(ip_address)

    def record(self) -> None:
        self.recorded = self.count
        logins = f"{self.count:,} more failed login{'s' * (self.count > 1)}"
        addresses = f"{len(self.ip_addresses):,} IP address{'es' * (len(self.ip_addresses) > 1)}"
        record(
            Action.LOGIN_FAILED,
            actor_name="unknown users",
            subject=f"various names: {logins} from {addresses} in an hour",
            count=self.count,
            addresses=self.ip_addresses[:20],
        )


def record_failed_login(name: str, **detail: Any) -> None:
    """Record a failed login as `name`; only count it after too many in the last hour."""
    hour = int(timezone.now().timestamp()) // _HOUR
    _record_rest_of_hour(hour - 1)
    ip_address = current_origin().ip_address
    if _gets_own_entry(ip_address):
        record(Action.LOGIN_FAILED, actor_name="somebody", subject=name, **detail)
        return
    failures = _load_count(hour)
    failures.add(ip_address)
    if failures.count >= 2 * failures.recorded:
        failures.record()
    _store_count(hour, failures)


def _gets_own_entry(ip_address: str) -> bool:
    since = timezone.now() - timedelta(seconds=_HOUR)
    entries = AuditEntry.objects.filter(action=Action.LOGIN_FAILED, at__gt=since)
    counts = entries.aggregate(all=Count("pk"), here=Count("pk", filter=Q(ip_address=ip_address)))
    return bool(counts["all"] < ENTRIES_IN_ALL and counts["here"] < ENTRIES_PER_IP_ADDRESS)


def _record_rest_of_hour(hour: int) -> None:
    """Record the failures that came in that hour after its last entry."""
    failures = _load_count(hour)
    if failures.count > failures.recorded:
        failures.record()
        _store_count(hour, failures)


def _load_count(hour: int) -> FailureCount:
    stored = cache.get(_cache_key(hour))
    return FailureCount(**stored) if isinstance(stored, dict) else FailureCount()


def _store_count(hour: int, failures: FailureCount) -> None:
    cache.set(_cache_key(hour), asdict(failures), _CACHE_SECONDS)


def _cache_key(hour: int) -> str:
    return f"failed-login-count-{hour}"
