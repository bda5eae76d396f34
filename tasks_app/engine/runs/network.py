"""The network that the sandbox of a step may reach."""

from __future__ import annotations

from tasks_app.config.pipeline import step_from_json
from tasks_app.core.types import Network, least_network
from tasks_app.models import Step
from tasks_app.services.workers.installation_limits import most_network


def network_of(step: Step) -> Network:
    """Return the network from the step's settings, but never more than this installation allows."""
    return least_network(step_from_json(step.config).network or "full", most_network())
