"""What tasks, steps and sequences have in common: a phase."""

from __future__ import annotations

from django.db import models

from tasks_app.core.phases import FACTS, Phase, PhaseFacts

PHASE_CHOICES = [(phase.value, facts.label) for phase, facts in FACTS.items()]


class Phased(models.Model):
    """What has a phase. Only `tasks_app.history.transitions` writes it."""

    phase = models.CharField(max_length=20, choices=PHASE_CHOICES, default=Phase.PENDING, editable=False)
    failure = models.TextField(blank=True, help_text="Why it failed, for people.")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def phase_facts(self) -> PhaseFacts:
        return FACTS[Phase(self.phase)]

    @property
    def failure_line(self) -> str:
        """Why it failed, as a sentence; what a machine said of it follows as `failure_detail`."""
        return self.failure.partition("\n")[0]

    @property
    def failure_detail(self) -> str:
        return self.failure.partition("\n")[2]
