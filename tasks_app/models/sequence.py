"""A sequence: a folder of tasks run one after the other on one branch."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from tasks_app.core.phases import ALL_TASKS_DONE, Phase, PhaseDisplay
from tasks_app.models.installation import new_folder_key
from tasks_app.models.phased import Phased
from tasks_app.models.project import Project
from tasks_app.models.user import User


class Sequence(Phased):
    """A folder of tasks. Its phase follows the current task; it is done when the folder has no further one.

    At most one of its tasks has not ended: the next is created from the folder's content after the previous
    one is done, so that tasks which an agent wrote are included.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="sequences")
    slug = models.CharField(max_length=80)
    folder = models.CharField(max_length=300, help_text="Relative to the repository.")
    branch = models.CharField(max_length=200)
    pipeline = models.CharField(
        max_length=100, blank=True, help_text="For all tasks; else each says its own."
    )
    threshold = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="For all tasks; else each its own."
    )
    ask: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, db_default=models.Value([], models.JSONField()),
        help_text="The people and groups whom the questions of all tasks are put to; else each its own.",
    )  # fmt: skip
    base_commit = models.CharField(max_length=64, blank=True)
    head_commit = models.CharField(max_length=64, blank=True)
    folder_key = models.CharField(
        max_length=16,
        blank=True,
        editable=False,
        default=new_folder_key,
        help_text="Random part of the name of its folder; empty in rows from before there was one.",
    )
    created_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="sequences"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    form_key = models.CharField(
        max_length=40,
        blank=True,
        editable=False,
        help_text="Of the form that made it: sent twice, made once.",
    )

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["project", "slug"], name="one_sequence_per_slug"),
            models.UniqueConstraint(
                fields=["created_by", "form_key"], condition=~Q(form_key=""), name="one_sequence_per_form"
            ),
            models.CheckConstraint(
                condition=Q(threshold=None) | Q(threshold__lte=5), name="sequence_threshold_from_0_to_5"
            ),
        ]

    def __str__(self) -> str:
        return self.folder

    @property
    def phase_display(self) -> PhaseDisplay:
        if self.phase == Phase.DONE:
            return ALL_TASKS_DONE
        return super().phase_display

    @property
    def lost_its_worker(self) -> bool:
        return self.phase == Phase.RUNNING and self.tasks.without_worker().exists()
