"""The common base of tasks, steps and sequences."""

from __future__ import annotations

from django.db import models

from tasks_app.core.phases import PHASE_DISPLAYS, Phase, PhaseDisplay

PHASE_CHOICES = [(phase.value, display.label) for phase, display in PHASE_DISPLAYS.items()]


class Phased(models.Model):
    """A row with a phase, which only `tasks_app.history.transitions` writes."""

    phase = models.CharField(max_length=20, choices=PHASE_CHOICES, default=Phase.PENDING, editable=False)
    failure = models.TextField(blank=True, help_text="Why it failed, for people.")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def phase_display(self) -> PhaseDisplay:
        return PHASE_DISPLAYS[Phase(self.phase)]

    @property
    def failure_line(self) -> str:
        """The reason of the failure in one sentence; the output of programs is in `failure_detail`."""
        return self.failure.partition("\n")[0]

    @property
    def failure_detail(self) -> str:
        return self.failure.partition("\n")[2]
