"""The common base of tasks, steps and sequences."""

from __future__ import annotations

from collections.abc import Collection

from django.db import models
from django.db.models import Q

from tasks_app.core.phases import PHASE_DISPLAYS, WORKER_LOST, Phase, PhaseDisplay

PHASE_CHOICES = [(phase.value, display.label) for phase, display in PHASE_DISPLAYS.items()]


def shown_in(phases: Collection[str], *, lost: Q) -> Q:
    """Return the condition for rows whose `shown_phase` is one of these; `lost` is for `lost_its_worker`."""
    found = Q(phase__in=phases)
    if Phase.RUNNING in phases and Phase.PENDING not in phases:
        return found & ~lost
    if Phase.PENDING in phases and Phase.RUNNING not in phases:
        return found | lost
    return found


class Phased(models.Model):
    """A row with a phase, which only `tasks_app.history.transitions` writes.

    Everybody is told the `shown_phase`: the phase of a task whose worker died stays `running` until another
    one takes it.
    """

    phase = models.CharField(max_length=20, choices=PHASE_CHOICES, default=Phase.PENDING, editable=False)
    failure = models.TextField(blank=True, help_text="Why it failed, for people.")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def lost_its_worker(self) -> bool:
        """Whether its phase is `running`, and the worker that claimed its task holds it no more."""
        return False

    @property
    def shown_phase(self) -> Phase:
        if self.lost_its_worker:
            return Phase.PENDING
        return Phase(self.phase)

    @property
    def phase_display(self) -> PhaseDisplay:
        if self.lost_its_worker:
            return WORKER_LOST
        return PHASE_DISPLAYS[Phase(self.phase)]

    @property
    def failure_line(self) -> str:
        """The reason of the failure in one sentence; the output of programs is in `failure_detail`."""
        return self.failure.partition("\n")[0]

    @property
    def failure_detail(self) -> str:
        return self.failure.partition("\n")[2]
