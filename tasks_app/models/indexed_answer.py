"""The index by which similar answered questions are found."""

from __future__ import annotations

from django.db import models

from tasks_app.models.project import Project
from tasks_app.models.question import Question


class IndexedAnswer(models.Model):
    """An answered item of a clarification in the index of earlier answers; `place` counts items from 0.

    Written and deleted with the answer. `migrations/0002_search.py` makes the full text index of `words`.
    """

    question = models.ForeignKey(
        Question, on_delete=models.CASCADE, related_name="indexed_answers", db_index=False
    )
    place = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Which item of the question, from 0."
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    question_key = models.CharField(max_length=32, help_text="Equal for items that are the same.")
    words = models.TextField(help_text="Digests of the item's words, each with its project.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["question", "place"], name="one_indexed_answer_per_item")
        ]
        indexes = [
            models.Index(fields=["project", "question"], name="answers_of_project"),
            models.Index(fields=["project", "question_key", "question"], name="answers_of_same_question"),
        ]

    def __str__(self) -> str:
        return f"Answer to {self.question}"
