"""What the installation allows its workers. A worker host learns it from its portal (M6).

A worker host has variables of its own, which may differ: then the portal's hold, or its own if they are
stricter. An older portal tells nothing, and the host's own variables hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from tasks_app.core.types import NETWORKS, Network, least_network

_network: Network = NETWORKS[-1]
_tasks_per_person: int | None = None


def follow_portal(told: Mapping[str, Any]) -> None:
    """From now on, keep to what the portal says of itself."""
    global _network, _tasks_per_person
    network = told.get("network", NETWORKS[-1])
    # A newer portal may know networks that this version does not: then the least.
    _network = network if network in NETWORKS else NETWORKS[0]
    number = told.get("tasks_per_person")
    _tasks_per_person = number if isinstance(number, int) else None


def most_network() -> Network:
    """Return the most that a step may reach."""
    own: Network = settings.ENVIRONMENT.network
    return least_network(own, _network)


def tasks_per_person() -> int | None:
    """Return how many tasks of one person may run at the same time; None: any number."""
    limits = (settings.ENVIRONMENT.tasks_per_person, _tasks_per_person)
    return min((limit for limit in limits if limit), default=None)
