"""Events of ended runs, compressed."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from tasks_app.models.run import Run


class EventBlock(models.Model):
    """Consecutive events of a run in one compressed row, in place of their own rows.

    `history/events/blocks.py` has the format, and `history/events/reading.py` reads rows and blocks alike.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="event_blocks")
    first_seq = models.PositiveIntegerField()
    last_seq = models.PositiveIntegerField()
    first_id = models.PositiveBigIntegerField(help_text="The lowest id of its events; ids stay the same.")
    last_id = models.PositiveBigIntegerField(help_text="The highest id of its events.")
    kinds: models.JSONField[dict[str, int], dict[str, int]] = models.JSONField(
        help_text="How many events of each kind it has."
    )
    failures = models.PositiveIntegerField(help_text="How many of its events are failures.")
    content = models.BinaryField()

    class Meta:
        ordering = ["run_id", "first_seq"]
        indexes = [models.Index(fields=["last_id"], name="event_block_newest")]
        constraints = [
            models.UniqueConstraint(fields=["run", "first_seq"], name="one_event_block_per_seq"),
            models.CheckConstraint(
                condition=Q(first_seq__lte=F("last_seq"), first_id__lte=F("last_id")),
                name="event_block_is_in_order",
            ),
        ]

    def __str__(self) -> str:
        return f"events {self.first_seq} to {self.last_seq}"
