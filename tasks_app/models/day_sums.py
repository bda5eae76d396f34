"""Sums of each day in UTC: pages over a long time read days instead of runs, tasks and questions (P11).

`services/usage/day_sums.py` writes them when a day has passed, and again if one of its rows changed
since. The database itself notes such days (`migrations/0006_changed_days.py`).

The database does not require that projects and accounts exist: a web server of an older version, which may
still run beside these tables, removes them without knowing of these rows. Their days are noted even then.
"""

from __future__ import annotations

from django.db import models

from tasks_app.models.project import Project
from tasks_app.models.user import User


def _count() -> models.PositiveIntegerField[int, int]:
    return models.PositiveIntegerField(default=0)


class SummedDay(models.Model):
    """A day whose sums were written. They hold unless there is a ChangedDay for it, too."""

    day = models.DateField(unique=True)

    class Meta:
        ordering = ["day"]

    def __str__(self) -> str:
        return str(self.day)


class ChangedDay(models.Model):
    """A row of an earlier day was changed or deleted. Several rows for a day are usual: no writer waits."""

    day = models.DateField(db_index=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return str(self.day)


class DaySums(models.Model):
    """Sums of one day."""

    day = models.DateField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.day)


class UsageSums(DaySums):
    """Usage of the runs that started on the day."""

    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    cache_read_tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = models.FloatField(default=0)

    class Meta:
        abstract = True


class ModelUsage(UsageSums):
    """Usage of a model in a project; the model may be unknown."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    model = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["day"]), models.Index(fields=["project", "day"])]


class PersonUsage(UsageSums):
    """Usage of the tasks that a person created; `user` is empty if they were removed.

    Rows without a project are of all projects together: there are many fewer of them.
    """

    project = models.ForeignKey(
        Project,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    user = models.ForeignKey(
        User,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["day"]),
            models.Index(fields=["project", "day"]),
            models.Index(fields=["user", "day"]),
        ]


class DayFigures(DaySums):
    """Counts of a project's runs that started, tasks that were created and questions asked on the day.

    `services/usage/day_sums.py` says what each of them counts.
    """

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )

    runs_running = _count()
    runs_finished = _count()
    runs_asked = _count()
    runs_failed = _count()
    runs_limit = _count()
    runs_interrupted = _count()
    runs_crashed = _count()
    runs_lost = _count()
    # A server of the version before inserts rows without it.
    runs_undelivered = models.PositiveIntegerField(default=0, db_default=0)

    tasks_done = _count()
    tasks_finished_early = _count()
    tasks_failed = _count()
    tasks_cancelled = _count()
    tasks_ended = _count()
    task_seconds = models.FloatField(default=0)
    paused_seconds = models.FloatField(default=0)
    last_end = models.DateTimeField(null=True, blank=True)

    asked = _count()
    answered = _count()
    questions = _count()
    before_work = _count()
    tasks_before_work = _count()
    late = _count()
    recommended = _count()
    recommended_taken = _count()
    compared = _count()
    asked_before = _count()
    before_work_0 = _count()
    before_work_1 = _count()
    before_work_2 = _count()
    before_work_3 = _count()
    late_0 = _count()
    late_1 = _count()
    late_2 = _count()
    late_3 = _count()
    others_0 = _count()
    others_1 = _count()
    others_2 = _count()
    others_3 = _count()

    class Meta:
        ordering = ["pk"]
        verbose_name_plural = "day figures"
        indexes = [models.Index(fields=["day"]), models.Index(fields=["project", "day"])]
